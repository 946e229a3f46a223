//! A real `rabbitmq-server` for a test, on loopback ports, with a folder and an `epmd` of its own.

use std::fs;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::json;

use crate::folder::ScriptFolder;
use crate::port::lasting_port;

/// The virtual hosts that a broker has beside `/`.
const VHOSTS: usize = 32;

/// A RabbitMQ broker. Dropping it, or the end of the test process, kills all of its processes.
pub struct RabbitMqServer {
    folder: ScriptFolder,
    ports: Ports,
    settings: Vec<RabbitMqSetting>,
    /// The shell that starts the processes, and kills them once its stdin ends.
    process: Option<Child>,
    next_vhost: AtomicUsize,
}

/// A setting of the broker beside its ports and folders.
#[derive(Debug, Clone)]
pub enum RabbitMqSetting {
    /// Clients speak TLS, on the same port, and have a certificate of `ca`.
    Tls { ca: PathBuf, certificate: PathBuf, key: PathBuf },
    /// A channel ends if a delivery is not acknowledged within a second.
    ShortAcknowledgementTimeout,
}

#[derive(Debug, Clone, Copy)]
struct Ports {
    amqp: u16,
    /// Between Erlang nodes, of which there is only one.
    distribution: u16,
    epmd: u16,
}

impl RabbitMqServer {
    /// Starts a broker. It takes some seconds: tests that do not stop it use [`Self::shared`].
    ///
    /// # Panics
    /// If RabbitMQ is not installed, or does not start.
    pub fn start() -> Self {
        Self::start_with([])
    }

    /// # Panics
    /// If RabbitMQ is not installed, or does not start with these settings.
    pub fn start_with(settings: impl IntoIterator<Item = RabbitMqSetting>) -> Self {
        let mut server = Self {
            folder: ScriptFolder::create(),
            ports: Ports::find_free(),
            settings: settings.into_iter().collect(),
            process: None,
            next_vhost: AtomicUsize::new(0),
        };
        // A port that was free may be taken by now.
        for _ in 0..3 {
            if server.launch() {
                return server;
            }
            server.ports = Ports::find_free();
        }
        panic!("`rabbitmq-server` does not start; its log:\n{}", server.log());
    }

    /// The broker of this test process, for all tests that let it run.
    pub fn shared() -> &'static Self {
        static SHARED: OnceLock<RabbitMqServer> = OnceLock::new();
        SHARED.get_or_init(Self::start)
    }

    pub fn port(&self) -> u16 {
        self.ports.amqp
    }

    /// The address of the virtual host `/`, with the user `guest` and its password.
    pub fn url(&self) -> String {
        format!("{}://guest:guest@127.0.0.1:{}", self.scheme(), self.port())
    }

    /// The address of a virtual host that no earlier call has returned.
    ///
    /// # Panics
    /// If all are taken.
    pub fn vhost_url(&self) -> String {
        let number = self.next_vhost.fetch_add(1, Ordering::Relaxed);
        assert!(number < VHOSTS, "all {VHOSTS} virtual hosts are taken: raise the constant");
        format!("{}/{}", self.url(), vhost(number))
    }

    /// Like [`Self::vhost_url`], for the user `limited`, who may not publish to topics with the word `closed`.
    ///
    /// # Panics
    /// If all virtual hosts are taken.
    pub fn limited_vhost_url(&self) -> String {
        self.vhost_url().replace("guest:guest", "limited:limited")
    }

    fn scheme(&self) -> &'static str {
        let has_tls = self.settings.iter().any(|setting| matches!(setting, RabbitMqSetting::Tls { .. }));
        if has_tls { "amqps" } else { "amqp" }
    }

    /// The folder of the configuration, the log and the queues.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    pub fn log(&self) -> String {
        let file = self.folder().join(format!("log/{}.log", self.node()));
        let output = fs::read_to_string(self.folder().join("output")).unwrap_or_default();
        output + &fs::read_to_string(file).unwrap_or_default()
    }

    /// Ends the broker as an operator would, and waits for its end.
    pub fn stop(&mut self) {
        self.end(b"stop\n");
    }

    /// Kills all processes (`kill -9`). Durable queues stay on the disk.
    pub fn kill(&mut self) {
        self.end(b"");
    }

    /// Starts the broker again, with the same ports and queues.
    ///
    /// # Panics
    /// If it does not start.
    pub fn restart(&mut self) {
        self.kill();
        assert!(self.launch(), "`rabbitmq-server` does not start again; its log:\n{}", self.log());
    }

    fn end(&mut self, order: &[u8]) {
        let Some(mut process) = self.process.take() else { return };
        if let Some(mut stdin) = process.stdin.take() {
            let _ = stdin.write_all(order);
        }
        process.wait().expect("the shell is a child");
        // The broker's sockets outlive its signal for a moment.
        for port in [self.ports.amqp, self.ports.epmd, self.ports.distribution] {
            wait_until(Duration::from_secs(20), || TcpStream::connect((Ipv4Addr::LOCALHOST, port)).is_err());
        }
    }

    /// Returns false if the broker has ended instead.
    fn launch(&mut self) -> bool {
        self.write_configuration();
        let _ = fs::remove_file(self.folder().join("ended"));
        let output = fs::File::create(self.folder().join("output")).expect("the folder is writable");
        let mut command = Command::new("sh");
        command.arg("-c").arg(SUPERVISOR).arg(program()).current_dir(self.folder());
        command.env_clear().envs(self.environment());
        command.stdin(Stdio::piped()).stdout(output.try_clone().expect("a file")).stderr(output);
        // A group of its own, which the shell kills.
        self.process = Some(command.process_group(0).spawn().expect("`sh` starts"));
        let has_ended = || self.folder().join("ended").exists();
        wait_until(Duration::from_secs(120), || self.is_ready() || has_ended());
        let is_ready = !has_ended() && self.is_ready();
        if !is_ready {
            self.kill();
        }
        is_ready
    }

    /// Returns true if a broker greets. With TLS it is enough that it accepts.
    fn is_ready(&self) -> bool {
        let Ok(mut stream) = TcpStream::connect((Ipv4Addr::LOCALHOST, self.port())) else { return false };
        if self.scheme() == "amqps" {
            return true;
        }
        let _ = stream.set_read_timeout(Some(Duration::from_secs(5)));
        // The header of AMQP 0-9-1. `connection.start` comes back in a method frame (1) on channel 0.
        let mut frame = [0; 3];
        stream.write_all(b"AMQP\0\0\x09\x01").is_ok()
            && stream.read_exact(&mut frame).is_ok()
            && frame == [1, 0, 0]
    }

    fn node(&self) -> String {
        format!("bascule{}@localhost", self.ports.amqp)
    }

    fn environment(&self) -> Vec<(&'static str, String)> {
        let path = |name: &str| self.folder().join(name).display().to_string();
        vec![
            ("PATH", std::env::var("PATH").unwrap_or_default()),
            ("HOME", path("")),
            ("ERL_EPMD_ADDRESS", "127.0.0.1".into()),
            ("ERL_EPMD_PORT", self.ports.epmd.to_string()),
            ("RABBITMQ_NODENAME", self.node()),
            ("RABBITMQ_DIST_PORT", self.ports.distribution.to_string()),
            ("RABBITMQ_MNESIA_BASE", path("mnesia")),
            ("RABBITMQ_LOG_BASE", path("log")),
            ("RABBITMQ_GENERATED_CONFIG_DIR", path("schema")),
            ("RABBITMQ_CONFIG_FILE", path("rabbitmq.conf")),
            ("RABBITMQ_ENABLED_PLUGINS_FILE", path("enabled_plugins")),
            ("RABBITMQ_ADVANCED_CONFIG_FILE", path("advanced.config")),
            ("RABBITMQ_CONF_ENV_FILE", "/dev/null".into()),
            ("RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS", "-kernel inet_dist_use_interface {127,0,0,1}".into()),
        ]
    }

    fn write_configuration(&self) {
        let definitions = self.folder().join("definitions.json");
        let kind = if self.scheme() == "amqps" { "ssl" } else { "tcp" };
        let mut lines = vec![
            format!("listeners.{kind}.1 = 127.0.0.1:{}", self.port()),
            format!("load_definitions = {}", definitions.display()),
        ];
        if kind == "ssl" {
            lines.push("listeners.tcp = none".into());
        }
        lines.extend(self.settings.iter().map(RabbitMqSetting::to_lines));
        let write = |path: &Path, text: &str| fs::write(path, text).expect("the folder is writable");
        write(&self.folder().join("rabbitmq.conf"), &(lines.join("\n") + "\n"));
        write(&self.folder().join("enabled_plugins"), "[].\n");
        write(&self.folder().join("advanced.config"), self.advanced_configuration());
        write(&definitions, &definitions_json());
    }

    /// Settings that have no name in the other file.
    fn advanced_configuration(&self) -> &'static str {
        let is_short = |it: &RabbitMqSetting| matches!(it, RabbitMqSetting::ShortAcknowledgementTimeout);
        match self.settings.iter().any(is_short) {
            // Channels look at the time every minute otherwise.
            true => "[{rabbit, [{channel_tick_interval, 100}]}].\n",
            false => "[].\n",
        }
    }
}

/// Starts `epmd` and the broker, waits for an order, and kills its group, itself included.
const SUPERVISOR: &str = r#"
epmd -port "$ERL_EPMD_PORT" -address 127.0.0.1 </dev/null &
{ "$0" </dev/null; echo >ended; } &
read -r order
if [ "$order" = stop ]; then
  kill -TERM "$(cat "mnesia/$RABBITMQ_NODENAME.pid")"
  while [ ! -e ended ]; do sleep 0.05; done
fi
kill -9 0
"#;

impl Drop for RabbitMqServer {
    fn drop(&mut self) {
        self.kill();
        self.folder.remove();
    }
}

impl RabbitMqSetting {
    fn to_lines(&self) -> String {
        match self {
            Self::Tls { ca, certificate, key } => [
                format!("ssl_options.cacertfile = {}", ca.display()),
                format!("ssl_options.certfile = {}", certificate.display()),
                format!("ssl_options.keyfile = {}", key.display()),
                "ssl_options.verify = verify_peer".into(),
                "ssl_options.fail_if_no_peer_cert = true".into(),
            ]
            .join("\n"),
            Self::ShortAcknowledgementTimeout => "consumer_timeout = 1000".into(),
        }
    }
}

impl Ports {
    fn find_free() -> Self {
        let [amqp, distribution, epmd] = [(); 3].map(|()| lasting_port());
        Self { amqp, distribution, epmd }
    }
}

fn vhost(number: usize) -> String {
    format!("test-{number}")
}

fn definitions_json() -> String {
    let vhosts: Vec<String> = ["/".to_owned()].into_iter().chain((0..VHOSTS).map(vhost)).collect();
    let permission = |user: &str, vhost: &String| json!({"user": user, "vhost": vhost, "configure": ".*", "write": ".*", "read": ".*"});
    let of_all = |user: &'static str| vhosts.iter().map(move |vhost| permission(user, vhost));
    let topics = |vhost: &String| json!({"user": "limited", "vhost": vhost, "exchange": "bascule", "write": "^((?!closed).)*$", "read": ".*"});
    let definitions = json!({
        "users": [
            {"name": "guest", "password": "guest", "tags": "administrator"},
            {"name": "limited", "password": "limited", "tags": ""},
        ],
        "vhosts": vhosts.iter().map(|name| json!({"name": name})).collect::<Vec<_>>(),
        "permissions": of_all("guest").chain(of_all("limited")).collect::<Vec<_>>(),
        "topic_permissions": vhosts.iter().map(topics).collect::<Vec<_>>(),
    });
    definitions.to_string()
}

/// Returns the broker's own script. Debian's `rabbitmq-server` in the path runs as another user.
fn program() -> PathBuf {
    let debian = PathBuf::from("/usr/lib/rabbitmq/bin/rabbitmq-server");
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut candidates =
        [debian].into_iter().chain(std::env::split_paths(&path).map(|p| p.join("rabbitmq-server")));
    candidates.find(|path| path.exists()).unwrap_or_else(|| {
        panic!(
            "RabbitMQ is missing: run `scripts/test-env` as root, or install `rabbitmq-server` 3.10 or later"
        )
    })
}

fn wait_until(timeout: Duration, is_done: impl Fn() -> bool) {
    let start = Instant::now();
    while !is_done() && start.elapsed() < timeout {
        thread::sleep(Duration::from_millis(20));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rabbitmq_server_keeps_its_port_when_it_is_killed_or_stopped() {
        let mut server = RabbitMqServer::start();
        let port = server.port();
        server.restart();
        assert!(server.port() == port && server.is_ready());
        server.stop();
        assert!(!server.is_ready());
        assert!(server.log().contains("SIGTERM received - shutting down"), "{}", server.log());
        server.restart();
        assert!(server.is_ready() && server.vhost_url().ends_with("/test-0"));
    }
}
