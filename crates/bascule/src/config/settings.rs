//! What the program believes: every default filled in, every value checked.
//!
//! Made by `parse` from what people type; compared by whoever reloads the file.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use bascule_model::{Secret, ServerName};

use super::url::ServerUrl;

/// Everything in `mcp.json`.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Settings {
    /// The servers to use, in the order of the file.
    pub servers: Vec<ServerSettings>,
    /// The servers that are written down but not to be used (`"disabled": true`).
    pub disabled: Vec<ServerName>,
    /// The bridge itself.
    pub bridge: BridgeSettings,
}

impl Settings {
    /// A server by its name.
    pub fn server(&self, name: &str) -> Option<&ServerSettings> {
        self.servers.iter().find(|server| server.name.as_str() == name)
    }

    /// Whether there is a server of this name that was switched off.
    pub fn is_disabled(&self, name: &str) -> bool {
        self.disabled.iter().any(|disabled| disabled.as_str() == name)
    }
}

/// The `bascule` part: how the bridge shows itself.
#[derive(Debug, Clone, PartialEq)]
pub struct BridgeSettings {
    /// Where `serve` listens.
    pub listen: SocketAddr,
    /// Which tools an MCP client sees.
    pub show: Show,
    /// The longest message that is carried.
    pub max_message_bytes: usize,
    /// `sessionIdleMs`: how long a client may be silent before it is taken to be gone.
    pub session_idle: Duration,
    /// `allowedHosts`: names that clients may call the bridge by, besides loopback names.
    pub hosts: Vec<String>,
    /// `allowedOrigins`: where web pages may come from, besides loopback names.
    pub origins: Vec<String>,
    /// Any one of these must be shown by clients over HTTP; none need be where there are none.
    pub tokens: Vec<Secret<String>>,
    /// What scripts may use up.
    pub scripts: ScriptSettings,
}

impl Default for BridgeSettings {
    fn default() -> Self {
        Self {
            listen: SocketAddr::from((Ipv4Addr::LOCALHOST, 7420)),
            show: Show::All,
            max_message_bytes: 64 << 20,
            session_idle: Duration::from_secs(30 * 60),
            hosts: Vec::new(),
            origins: Vec::new(),
            tokens: Vec::new(),
            scripts: ScriptSettings::default(),
        }
    }
}

/// `bascule.scripts`: what a script may use up (CM-01), and how many are kept ready.
#[derive(Debug, Clone, PartialEq)]
pub struct ScriptSettings {
    /// How long one may run.
    pub timeout: Duration,
    /// What its objects may occupy.
    pub memory_mb: u32,
    /// How long each of its calls may take (CM-11).
    pub call_timeout: Duration,
    /// How many calls it may make.
    pub max_calls: u32,
    /// How many of them run at once; the others wait.
    pub max_concurrent_calls: u32,
    /// How long the JSON text of its value may be.
    pub max_output_bytes: u32,
    /// How much of its console is kept.
    pub max_log_bytes: u32,
    /// How many scripts run at once; the others wait.
    pub max_scripts: u32,
    /// How many workers are kept ready.
    pub pool_size: u32,
    /// The zone of its local dates.
    pub time_zone: String,
}

impl Default for ScriptSettings {
    fn default() -> Self {
        Self {
            timeout: Duration::from_secs(30),
            memory_mb: 512,
            call_timeout: Duration::from_secs(30),
            max_calls: 10_000,
            max_concurrent_calls: 64,
            max_output_bytes: 8 << 20,
            max_log_bytes: 256 << 10,
            max_scripts: 16,
            pool_size: 2,
            time_zone: "UTC".into(),
        }
    }
}

/// Which tools an MCP client sees (GW-08).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Show {
    /// Every tool of every server.
    All,
    /// The three of code mode.
    Code,
}

/// One server: how to reach it and how to treat it.
#[derive(Debug, Clone, PartialEq)]
pub struct ServerSettings {
    /// Its key in the file.
    pub name: ServerName,
    /// How to reach it.
    pub transport: TransportSettings,
    /// `timeoutMs`: how long a call may go without a sign of life.
    pub call_timeout: Duration,
    /// `startTimeoutMs`: how long it may take to connect and list its tools.
    pub start_timeout: Duration,
    /// How many attempts at reconnecting are made before it is given up.
    pub max_retries: u32,
    /// The wait before the first of these attempts; it doubles from then on.
    pub reconnect_backoff: Duration,
    /// The share of a wait, 0 to 1, that is left to chance.
    pub reconnect_jitter: f64,
    /// `keepAliveMs`: how often an idle server is asked whether it is still there, if at all.
    pub keep_alive: Option<Duration>,
    /// `cancelGraceMs`: how long it may stay silent after a cancellation before that counts as ignored.
    pub cancel_grace: Duration,
    /// Patterns of the tools that may be used; without any list, all may.
    pub allowed: Option<Vec<String>>,
    /// Patterns of the tools that may not be used; these win.
    pub denied: Vec<String>,
    /// Whether calls share a process.
    pub isolation: Isolation,
    /// How many processes are kept ready where each call has its own.
    pub pool_size: usize,
    /// Whether clients share a connection.
    pub session: Session,
    /// `maxSessions`: how many connections it may have for clients, besides the bridge's own.
    pub max_sessions: usize,
    /// What confines its process.
    pub sandbox: Sandbox,
    /// What it may use up.
    pub limits: Limits,
    /// Tools that are treated differently, by their exact name. Ask `tool` instead: it knows the others too.
    pub tools: BTreeMap<String, ToolSettings>,
}

impl ServerSettings {
    /// The default of `timeoutMs`, and of `maxExecutionMs`.
    pub const CALL_TIMEOUT: Duration = Duration::from_secs(30);
    /// The default of `startTimeoutMs`.
    pub const START_TIMEOUT: Duration = Duration::from_secs(30);
    /// The default of `maxRetries`.
    pub const MAX_RETRIES: u32 = 10;
    /// The default of `reconnectBackoffMs`.
    pub const RECONNECT_BACKOFF: Duration = Duration::from_secs(1);

    /// The default of `keepAliveMs`.
    pub const KEEP_ALIVE: Duration = Duration::from_secs(30);
    /// The default of `maxSessions`.
    pub const MAX_SESSIONS: usize = 100;
    /// The default of `cancelGraceMs`.
    pub const CANCEL_GRACE: Duration = Duration::from_secs(5);

    /// A server about which nothing was said but how to reach it.
    pub fn new(name: ServerName, transport: TransportSettings) -> Self {
        Self {
            name,
            transport,
            call_timeout: Self::CALL_TIMEOUT,
            start_timeout: Self::START_TIMEOUT,
            max_retries: Self::MAX_RETRIES,
            reconnect_backoff: Self::RECONNECT_BACKOFF,
            reconnect_jitter: 0.0,
            keep_alive: Some(Self::KEEP_ALIVE),
            cancel_grace: Self::CANCEL_GRACE,
            allowed: None,
            denied: Vec::new(),
            isolation: Isolation::default(),
            pool_size: 1,
            session: Session::default(),
            max_sessions: Self::MAX_SESSIONS,
            sandbox: Sandbox::default(),
            limits: Limits::default(),
            tools: BTreeMap::new(),
        }
    }

    /// What holds for a tool: what was said about it, else what was said about its server.
    pub fn tool(&self, name: &str) -> ToolSettings {
        self.tools.get(name).cloned().unwrap_or_else(|| ToolSettings {
            limits: self.limits.clone(),
            call_timeout: self.call_timeout,
            retry: Retry::default(),
        })
    }

    /// Whether a tool's failed call may be sent again.
    pub fn retry_for(&self, tool: &str) -> Retry {
        self.tools.get(tool).map_or_else(Retry::default, |tool| tool.retry)
    }

    /// The limits of a tool's calls.
    pub fn limits_for(&self, tool: &str) -> &Limits {
        self.tools.get(tool).map_or(&self.limits, |tool| &tool.limits)
    }

    /// What a process may use that may yet be given any of its tools to run.
    pub fn largest_limits(&self) -> Limits {
        let all = || self.tools.values().map(|tool| &tool.limits).chain([&self.limits]);
        let mut limits = self.limits.clone();
        limits.max_memory_mb = all().map(|limits| limits.max_memory_mb).max().unwrap_or(limits.max_memory_mb);
        // None is no limit at all, which is more than any.
        let processes = all().map(|limits| limits.max_processes.unwrap_or(u32::MAX)).max();
        limits.max_processes = processes.filter(|most| *most != u32::MAX);
        limits
    }

    /// How long a tool's call may go without a sign of life; progress starts it anew.
    pub fn call_timeout_for(&self, tool: &str) -> Duration {
        self.tools.get(tool).map_or(self.call_timeout, |tool| tool.call_timeout)
    }
}

/// How to reach a server.
#[derive(Debug, Clone, PartialEq)]
pub enum TransportSettings {
    /// A child process that speaks on its stdin and stdout.
    Stdio {
        /// The program: a path, or a name to look for in `PATH`.
        command: String,
        /// Its arguments.
        args: Vec<String>,
        /// What is added to its environment, in the order of the file.
        env: Vec<(String, Secret<String>)>,
        /// The absolute folder it starts in, else the bridge's own.
        cwd: Option<PathBuf>,
    },
    /// Streamable HTTP.
    Http {
        /// Its address.
        url: ServerUrl,
        /// What every request carries; names and values are legal HTTP.
        headers: Vec<(String, Secret<String>)>,
    },
    /// HTTP+SSE, as it was before 2025.
    Sse {
        /// Its address.
        url: ServerUrl,
        /// What every request carries; names and values are legal HTTP.
        headers: Vec<(String, Secret<String>)>,
    },
    /// Whichever of the two the server turns out to speak, Streamable HTTP first.
    HttpOrSse {
        /// Its address.
        url: ServerUrl,
        /// What every request carries; names and values are legal HTTP.
        headers: Vec<(String, Secret<String>)>,
    },
}

/// Whether calls share a process (SB-01).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Isolation {
    /// One long-lived process.
    #[default]
    Shared,
    /// A fresh process for each call.
    PerCall,
}

/// Whether clients share a connection (GW-04).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Session {
    /// One for all.
    #[default]
    Shared,
    /// One for each.
    PerClient,
}

/// What confines a server's process (SB-04).
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Sandbox {
    /// Nothing.
    Off,
    /// What nearly every server can live with.
    #[default]
    Standard,
    /// As little as possible is allowed.
    Strict,
    /// What the file says.
    Custom {
        /// Absolute paths that may be read.
        read: Vec<PathBuf>,
        /// Absolute paths that may be written, and read.
        write: Vec<PathBuf>,
        /// Whether there is a network.
        network: Network,
        /// How many processes there may be, where that is less than the limits say.
        processes: Option<u32>,
        /// How many files each may hold open, where that is less than the limits say.
        files: Option<u32>,
    },
}

/// Whether there is a network.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Network {
    /// All of it.
    #[default]
    Full,
    /// None at all.
    None,
}

/// What a server, or one of its tools, may use up (SB-02, BR-17).
#[derive(Debug, Clone, PartialEq)]
pub struct Limits {
    /// Memory of all its processes together.
    pub max_memory_mb: u32,
    /// How long a call may take, whatever progress it makes.
    pub max_execution: Duration,
    /// How many calls may run at once.
    pub max_concurrent: usize,
    /// How many more may wait.
    pub max_queue: usize,
    /// How many may start in a second.
    pub rate_per_second: Option<f64>,
    /// How many processes it and its descendants may be. Not how many its user may have, as RLIMIT_NPROC counts.
    pub max_processes: Option<u32>,
    /// How many files each of its processes may hold open.
    pub max_open_files: Option<u32>,
    /// How long one answer may be, where that is less than the bridge's `max_message_bytes`.
    pub max_output_bytes: Option<usize>,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            max_memory_mb: 256,
            max_execution: ServerSettings::CALL_TIMEOUT,
            max_concurrent: 32,
            max_queue: 256,
            rate_per_second: None,
            max_processes: Some(128),
            max_open_files: Some(1024),
            max_output_bytes: None,
        }
    }
}

/// What holds for one tool, whatever part of it was said about the tool and whatever about its server.
#[derive(Debug, Clone, PartialEq)]
pub struct ToolSettings {
    /// Its limits.
    pub limits: Limits,
    /// How long a call may go without a sign of life.
    pub call_timeout: Duration,
    /// Whether a failed call may be sent again.
    pub retry: Retry,
}

/// Whether a call whose fate is unknown may be sent again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Retry {
    /// When it cannot have run, or running it twice does no harm.
    #[default]
    Safe,
    /// In any case.
    Always,
    /// In no case.
    Never,
}

#[cfg(test)]
mod tests {
    use super::super::testing::{server, server_from};
    use super::*;

    // req: BR-01
    // req: SB-02
    #[test]
    fn defaults_are_the_documented_ones() {
        let plain = server(r#"{"command": "x"}"#);
        assert_eq!(plain, ServerSettings::new(plain.name.clone(), plain.transport.clone()));
        assert_eq!(plain.limits.max_memory_mb, 256);
        assert_eq!(plain.limits.max_execution, Duration::from_millis(30_000));
        assert_eq!((plain.limits.max_concurrent, plain.limits.max_queue), (32, 256));
        assert_eq!((plain.isolation, plain.session), (Isolation::Shared, Session::Shared));
        assert_eq!(plain.sandbox, Sandbox::Standard);
        assert_eq!(BridgeSettings::default().listen.to_string(), "127.0.0.1:7420");
        assert_eq!(BridgeSettings::default().max_message_bytes, 67_108_864);
    }

    // req: BR-09
    #[test]
    fn reconnecting_defaults_are_the_documented_ones() {
        let plain = server(r#"{"command": "x"}"#);
        assert_eq!((plain.max_retries, plain.reconnect_jitter), (10, 0.0));
        assert_eq!(plain.reconnect_backoff, Duration::from_millis(1000));
    }

    // req: SB-02
    #[test]
    fn a_tool_has_its_own_limits_and_for_the_rest_its_servers() {
        let server = server(
            r#"{"command": "x", "timeoutMs": 7, "limits": {"maxQueue": 3}, "tools": {
                 "slow": {"timeoutMs": 90, "limits": {"maxExecutionMs": 80, "maxProcesses": null}, "retry": "never"}}}"#,
        );
        let slow = server.tool("slow");
        assert_eq!(slow.limits.max_execution, Duration::from_millis(80));
        assert_eq!((slow.limits.max_queue, slow.limits.max_processes), (3, None));
        assert_eq!((slow.call_timeout, slow.retry), (Duration::from_millis(90), Retry::Never));
        assert_eq!(server.limits_for("slow"), &slow.limits);
        assert_eq!(server.call_timeout_for("slow"), slow.call_timeout);

        let other = server.tool("other");
        assert_eq!((other.call_timeout, other.retry), (Duration::from_millis(7), Retry::Safe));
        assert_eq!((&other.limits, server.limits_for("other")), (&server.limits, &server.limits));
        assert_eq!(server.call_timeout_for("other"), Duration::from_millis(7));
    }

    // req: BR-13
    #[test]
    fn a_changed_secret_is_a_changed_server() {
        let entry = r#"{"command": "x", "env": {"TOKEN": "${TOKEN}"}}"#;
        let with = |token: &'static str| server_from(entry, &move |_| Some(token.into()));
        assert_eq!(with("a"), with("a"));
        assert_ne!(with("a"), with("b"));
        assert!(!format!("{:?}", with("hunter2")).contains("hunter2"));
    }
}
