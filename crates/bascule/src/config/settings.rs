//! The checked configuration: every default is filled in.
//!
//! `parse` creates it from the file; a reload compares two of them.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use bascule_mcp::{HttpEndpoint, Transport};
use bascule_model::{Secret, ServerName};
use serde::{Deserialize, Serialize};

use super::audit::AuditSettings;
use super::bus::BusSettings;
use super::sandbox_paths::SandboxPaths;
use super::traces::TraceSettings;
use super::url::ServerUrl;

/// The content of `mcp.json`.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Settings {
    /// The enabled servers, in file order.
    pub servers: Vec<ServerSettings>,
    /// Servers with `"disabled": true`.
    pub disabled: Vec<ServerName>,
    pub bridge: BridgeSettings,
}

impl Settings {
    /// Returns the enabled server of this name.
    pub fn server(&self, name: &str) -> Option<&ServerSettings> {
        self.servers.iter().find(|server| server.name.as_str() == name)
    }

    pub fn is_disabled(&self, name: &str) -> bool {
        self.disabled.iter().any(|disabled| disabled.as_str() == name)
    }
}

/// The `bascule` object: settings of the bridge itself.
#[derive(Debug, Clone, PartialEq)]
pub struct BridgeSettings {
    pub listen: SocketAddr,
    /// The file has `listen`. A bridge on a bus opens a port only then.
    pub is_listen_given: bool,
    pub show: ToolView,
    /// Larger messages are refused.
    pub max_message_bytes: usize,
    /// `sessionIdleMs`: an MCP client that is silent for longer loses its session.
    pub session_idle: Duration,
    /// Accepted `Host` names, in addition to loopback names.
    pub allowed_hosts: Vec<String>,
    /// Accepted `Origin` values, in addition to loopback names.
    pub allowed_origins: Vec<String>,
    pub auth: Authentication,
    /// Tokens of HTTP clients, in addition to the one that the bridge generates.
    pub tokens: Vec<Secret<String>>,
    pub scripts: ScriptSettings,
    /// `learnResultTypes`: types of results are learned from answers, kept and shown.
    pub learns_result_types: bool,
    /// `search.encoder`: ranks tools instead of the built-in table.
    pub encoder: Option<EncoderSettings>,
    pub traces: TraceSettings,
    /// `metrics.listen`: the address of the pages for operators, if it is not that of clients.
    pub metrics_listen: Option<SocketAddr>,
    /// `None`: there is no audit log.
    pub audit: Option<AuditSettings>,
    pub bus: BusSettings,
}

/// `bascule.search.encoder`: embeds texts instead of the built-in table.
#[derive(Debug, Clone, PartialEq)]
pub struct EncoderSettings {
    pub source: EncoderSource,
    /// The longest time that a search waits for it.
    pub timeout: Duration,
}

/// The origin of vectors.
#[derive(Debug, Clone, PartialEq)]
pub enum EncoderSource {
    /// An endpoint with the protocol of OpenAI.
    Endpoint {
        /// The whole address, such as `https://api.openai.com/v1/embeddings`.
        url: ServerUrl,
        model: String,
        api_key: Option<Secret<String>>,
    },
    /// A folder with the files of a model.
    Folder(PathBuf),
}

impl Default for BridgeSettings {
    fn default() -> Self {
        Self {
            listen: SocketAddr::from((Ipv4Addr::LOCALHOST, 7420)),
            is_listen_given: false,
            show: ToolView::All,
            max_message_bytes: 64 << 20,
            session_idle: Duration::from_secs(30 * 60),
            allowed_hosts: Vec::new(),
            allowed_origins: Vec::new(),
            auth: Authentication::default(),
            tokens: Vec::new(),
            scripts: ScriptSettings::default(),
            learns_result_types: true,
            encoder: None,
            traces: TraceSettings::default(),
            metrics_listen: None,
            audit: None,
            bus: BusSettings::default(),
        }
    }
}

/// `bascule.auth`: authentication of HTTP clients.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Authentication {
    /// A token.
    #[default]
    Token,
    /// None. Only unconfined processes of the same user on this machine are served.
    None,
}

/// `bascule.scripts`: the limits of a script and of the worker pool.
#[derive(Debug, Clone, PartialEq)]
pub struct ScriptSettings {
    pub timeout: Duration,
    /// The JavaScript heap of a script.
    pub memory_mb: u32,
    /// The timeout of each call.
    pub call_timeout: Duration,
    pub max_calls: u32,
    /// Concurrent calls per script; further calls wait.
    pub max_concurrent_calls: u32,
    /// The size of the returned value as JSON.
    pub max_output_bytes: u32,
    /// The console output that is kept.
    pub max_log_bytes: u32,
    /// The longest text of a script's answer to an MCP client.
    pub max_text_bytes: u32,
    /// Concurrent scripts; further scripts wait.
    pub max_scripts: u32,
    pub pool_size: u32,
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
            max_text_bytes: 50_000,
            max_scripts: 16,
            pool_size: 2,
            time_zone: "UTC".into(),
        }
    }
}

/// The tools that MCP clients see.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum ToolView {
    /// Every tool of every server
    All,
    /// Only the tools that search, describe and call the others
    Code,
}

/// The settings of one server.
#[derive(Debug, Clone, PartialEq)]
pub struct ServerSettings {
    pub name: ServerName,
    pub transport: TransportSettings,
    /// `timeoutMs`: the timeout of a call; progress notifications restart it.
    pub call_timeout: Duration,
    pub start: StartMode,
    /// `startTimeoutMs`: the timeout for connecting and listing tools.
    pub start_timeout: Duration,
    /// `installTimeoutMs`: the time for a package manager to install the server, in addition to the start timeout.
    pub install_timeout: Duration,
    /// `idleStopMs`: a lazy server is stopped after this time without calls. `None`: never.
    pub idle_stop: Option<Duration>,
    /// Attempts to reconnect before the server is `unavailable`.
    pub max_retries: u32,
    /// The wait before the first attempt; it doubles with each further one.
    pub reconnect_backoff: Duration,
    /// The random share of a wait, from 0 to 1.
    pub reconnect_jitter: f64,
    /// `keepAliveMs`: the interval of pings to an idle server. `None`: no pings.
    pub keep_alive: Option<Duration>,
    /// `cancelGraceMs`: a server that is silent for this long after a cancellation has ignored it.
    pub cancel_grace: Duration,
    /// Patterns. `None` allows all tools; `denied_tools` wins.
    pub allowed_tools: Option<Vec<String>>,
    pub denied_tools: Vec<String>,
    pub isolation: Isolation,
    /// Processes that are kept ready for `Isolation::PerCall`.
    pub pool_size: usize,
    pub session: SessionSharing,
    /// `maxSessions`: sessions for clients, in addition to the bridge's own.
    pub max_sessions: usize,
    pub sandbox: Sandbox,
    pub limits: ResourceLimits,
    /// The settings of tools with overrides, by exact name.
    pub tools: BTreeMap<String, ToolSettings>,
    /// `envFile`, whose variables are in the transport's environment already.
    pub env_file: Option<PathBuf>,
    /// The values of variables in `args` and `url`, which may be secret.
    pub expanded_secrets: Vec<Secret<String>>,
    /// The paths in the settings above that the sandbox grants.
    pub paths: SandboxPaths,
}

impl ServerSettings {
    /// The default of `timeoutMs` and `maxExecutionMs`.
    pub const CALL_TIMEOUT: Duration = Duration::from_secs(30);
    pub const START_TIMEOUT: Duration = Duration::from_secs(30);
    pub const INSTALL_TIMEOUT: Duration = Duration::from_secs(300);
    pub const IDLE_STOP: Duration = Duration::from_secs(10 * 60);
    pub const MAX_RETRIES: u32 = 10;
    pub const RECONNECT_BACKOFF: Duration = Duration::from_secs(1);
    pub const KEEP_ALIVE: Duration = Duration::from_secs(30);
    pub const MAX_SESSIONS: usize = 100;
    pub const CANCEL_GRACE: Duration = Duration::from_secs(5);

    /// A server with default settings.
    pub fn new(name: ServerName, transport: TransportSettings) -> Self {
        Self {
            name,
            transport,
            call_timeout: Self::CALL_TIMEOUT,
            start: StartMode::default(),
            start_timeout: Self::START_TIMEOUT,
            install_timeout: Self::INSTALL_TIMEOUT,
            idle_stop: Some(Self::IDLE_STOP),
            max_retries: Self::MAX_RETRIES,
            reconnect_backoff: Self::RECONNECT_BACKOFF,
            reconnect_jitter: 0.0,
            keep_alive: Some(Self::KEEP_ALIVE),
            cancel_grace: Self::CANCEL_GRACE,
            allowed_tools: None,
            denied_tools: Vec::new(),
            isolation: Isolation::default(),
            pool_size: 1,
            session: SessionSharing::default(),
            max_sessions: Self::MAX_SESSIONS,
            sandbox: Sandbox::default(),
            limits: ResourceLimits::default(),
            tools: BTreeMap::new(),
            env_file: None,
            expanded_secrets: Vec::new(),
            paths: SandboxPaths::default(),
        }
    }

    pub fn retry_for(&self, tool: &str) -> RetryPolicy {
        self.tools.get(tool).map_or_else(RetryPolicy::default, |tool| tool.retry)
    }

    pub fn limits_for(&self, tool: &str) -> &ResourceLimits {
        self.tools.get(tool).map_or(&self.limits, |tool| &tool.limits)
    }

    /// Returns the limits of a process that may run any tool of the server.
    pub fn largest_limits(&self) -> ResourceLimits {
        let all = || self.tools.values().map(|tool| &tool.limits).chain([&self.limits]);
        let mut limits = self.limits.clone();
        limits.max_memory_mb = all().map(|limits| limits.max_memory_mb).max().unwrap_or(limits.max_memory_mb);
        // `None` means unlimited.
        let processes = all().map(|limits| limits.max_processes.unwrap_or(u32::MAX)).max();
        limits.max_processes = processes.filter(|most| *most != u32::MAX);
        limits
    }

    /// Returns the timeout of a tool's call; progress notifications restart it.
    pub fn call_timeout_for(&self, tool: &str) -> Duration {
        self.tools.get(tool).map_or(self.call_timeout, |tool| tool.call_timeout)
    }

    /// Returns the folder that relative paths of the command start at.
    pub(crate) fn base_folder(&self) -> PathBuf {
        match &self.transport {
            TransportSettings::Stdio { cwd: Some(folder), .. } => folder.clone(),
            _ => std::env::current_dir().unwrap_or_default(),
        }
    }
}

/// The transport of a server.
#[derive(Debug, Clone, PartialEq)]
pub enum TransportSettings {
    /// A child process that uses its stdin and stdout.
    Stdio {
        /// A path, or a name to look up in `PATH`.
        command: String,
        args: Vec<String>,
        /// Variables to add to its environment, in file order.
        env: Vec<(String, Secret<String>)>,
        /// Its absolute working directory. `None`: the bridge's own.
        cwd: Option<PathBuf>,
    },
    /// A server at a URL.
    Remote {
        protocol: RemoteProtocol,
        url: ServerUrl,
        /// Names and values are valid HTTP.
        headers: Vec<(String, Secret<String>)>,
    },
}

/// The protocol of a remote server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum RemoteProtocol {
    /// Streamable HTTP.
    Http,
    /// HTTP+SSE of protocol version 2024-11-05.
    Sse,
    /// Streamable HTTP first, then HTTP+SSE.
    HttpOrSse,
}

impl RemoteProtocol {
    pub(crate) fn transport(self, endpoint: HttpEndpoint) -> Transport {
        match self {
            Self::Http => Transport::Http(endpoint),
            Self::Sse => Transport::Sse(endpoint),
            Self::HttpOrSse => Transport::HttpOrSse(endpoint),
        }
    }
}

/// The time at which a server starts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum StartMode {
    /// With the bridge.
    #[default]
    Eager,
    /// At its first call, if its tools are known from an earlier start.
    Lazy,
}

/// The processes that calls use.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Isolation {
    /// One long-lived process for all calls.
    #[default]
    Shared,
    /// A new process for each call.
    PerCall,
}

/// The sessions with a server that MCP clients use.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum SessionSharing {
    /// Clients of equal capabilities share one.
    #[default]
    Shared,
    /// Each client has its own.
    PerClient,
}

/// The confinement of a server's process.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Sandbox {
    Off,
    /// A profile that works for nearly every server.
    #[default]
    Standard,
    /// The least access that a server can start with.
    Strict,
    /// The rules of the configuration file.
    Custom {
        profile: CustomProfile,
        home: HomeAccess,
        /// Absolute paths with read access.
        read: Vec<PathBuf>,
        /// Absolute paths with read and write access.
        write: Vec<PathBuf>,
        network: NetworkAccess,
        /// Allows sockets of other programs on this machine.
        unix_sockets: bool,
        /// Replaces `limits.maxProcesses`.
        processes: Option<u32>,
        /// Replaces `limits.maxOpenFiles`.
        files: Option<u32>,
    },
}

/// The profile that the rules of a configuration file extend.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum CustomProfile {
    Standard,
    #[default]
    Strict,
}

/// The home of a confined server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum HomeAccess {
    /// A private folder, kept for the next start. The user's home is closed.
    #[default]
    Own,
    /// The user's home, readable except for secrets, with writable package caches.
    User,
    /// None: the user's home is closed.
    None,
}

/// Network access of a confined server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum NetworkAccess {
    #[default]
    Full,
    None,
}

/// The limits of a server or of one of its tools.
#[derive(Debug, Clone, PartialEq)]
pub struct ResourceLimits {
    /// The memory of all processes of the server together.
    pub max_memory_mb: u32,
    /// The longest duration of a call, regardless of progress.
    pub max_execution: Duration,
    pub max_concurrent: usize,
    /// Calls that wait for a slot.
    pub max_queue: usize,
    /// Calls that start per second.
    pub rate_per_second: Option<f64>,
    /// The number of processes of the server's tree. Not RLIMIT_NPROC, which counts all processes of the user.
    pub max_processes: Option<u32>,
    /// Open files of each process.
    pub max_open_files: Option<u32>,
    /// The size of the server's own home and temporary files.
    pub max_home_mb: Option<u32>,
    /// The size of a result, where it is smaller than the bridge's `max_message_bytes`.
    pub max_output_bytes: Option<usize>,
}

impl Default for ResourceLimits {
    fn default() -> Self {
        Self {
            max_memory_mb: 256,
            max_execution: ServerSettings::CALL_TIMEOUT,
            max_concurrent: 32,
            max_queue: 256,
            rate_per_second: None,
            max_processes: Some(128),
            max_open_files: Some(1024),
            max_home_mb: Some(4096),
            max_output_bytes: None,
        }
    }
}

/// The settings of one tool: its overrides, and the server's settings for the rest.
#[derive(Debug, Clone, PartialEq)]
pub struct ToolSettings {
    pub limits: ResourceLimits,
    /// The timeout of a call; progress notifications restart it.
    pub call_timeout: Duration,
    pub retry: RetryPolicy,
}

/// Says when a call is sent again after the connection broke.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum RetryPolicy {
    /// If it was not sent, or if running it twice does no harm.
    #[default]
    Safe,
    Always,
    Never,
}

#[cfg(test)]
mod tests {
    use super::super::testing::{server, server_from};
    use super::*;

    // req: BR-01
    // req: SB-02
    #[test]
    fn defaults_match_the_documentation() {
        let plain = server(r#"{"command": "x"}"#);
        assert_eq!(plain, ServerSettings::new(plain.name.clone(), plain.transport.clone()));
        assert_eq!(plain.limits.max_memory_mb, 256);
        assert_eq!(plain.limits.max_execution, Duration::from_millis(30_000));
        assert_eq!((plain.limits.max_concurrent, plain.limits.max_queue), (32, 256));
        assert_eq!((plain.isolation, plain.session), (Isolation::Shared, SessionSharing::Shared));
        assert_eq!(plain.sandbox, Sandbox::Standard);
        assert_eq!(BridgeSettings::default().listen.to_string(), "127.0.0.1:7420");
        assert_eq!(BridgeSettings::default().max_message_bytes, 67_108_864);
    }

    // req: BR-09
    #[test]
    fn reconnect_defaults_match_the_documentation() {
        let plain = server(r#"{"command": "x"}"#);
        assert_eq!((plain.max_retries, plain.reconnect_jitter), (10, 0.0));
        assert_eq!(plain.reconnect_backoff, Duration::from_millis(1000));
    }

    // req: SB-02
    #[test]
    fn tool_overrides_keep_the_servers_other_settings() {
        let server = server(
            r#"{"command": "x", "timeoutMs": 7, "limits": {"maxQueue": 3}, "tools": {
                 "slow": {"timeoutMs": 90, "limits": {"maxExecutionMs": 80, "maxProcesses": null}, "retry": "never"}}}"#,
        );
        let slow = &server.tools["slow"];
        assert_eq!(slow.limits.max_execution, Duration::from_millis(80));
        assert_eq!((slow.limits.max_queue, slow.limits.max_processes), (3, None));
        assert_eq!((slow.call_timeout, slow.retry), (Duration::from_millis(90), RetryPolicy::Never));
        assert_eq!(server.limits_for("slow"), &slow.limits);
        assert_eq!(server.call_timeout_for("slow"), slow.call_timeout);
        assert_eq!(server.retry_for("slow"), slow.retry);

        assert_eq!(server.limits_for("other"), &server.limits);
        assert_eq!(server.call_timeout_for("other"), Duration::from_millis(7));
        assert_eq!(server.retry_for("other"), RetryPolicy::Safe);
    }

    // req: BR-13
    #[test]
    fn changed_secret_changes_the_server() {
        let entry = r#"{"command": "x", "env": {"TOKEN": "${TOKEN}"}}"#;
        let with = |token: &'static str| server_from(entry, &move |_| Some(token.into()));
        assert_eq!(with("a"), with("a"));
        assert_ne!(with("a"), with("b"));
        assert!(!format!("{:?}", with("hunter2")).contains("hunter2"));
    }
}
