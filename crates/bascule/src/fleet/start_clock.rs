//! The time that one start may take. It does not run while a package manager installs the server.
//!
//! `launch::find_installer` recognises package managers; the actor reports the progress.

use std::sync::Arc;
use std::time::Duration;

use bascule_model::{BridgeError, Delivery, ErrorCode, ServerName};
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};

use super::upstream::StartContext;
use crate::blocking::run_blocking;
use crate::config::ServerSettings;
use crate::deadline::CALLER;
use crate::launch::find_installer;
use crate::normalise;

/// The interval in which the processes of a start are examined.
const INTERVAL: Duration = Duration::from_millis(250);

/// The progress of an installation; `None` while nothing is installed.
pub(crate) type ProgressSender = Arc<watch::Sender<Option<InstallProgress>>>;

/// A package manager that installs a server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct InstallProgress {
    /// `npx`, say.
    pub(crate) installer: String,
    pub(crate) elapsed: Duration,
    /// The last line that it has printed; empty if none.
    pub(crate) output: String,
}

pub(crate) struct StartClock {
    server: ServerName,
    start_timeout: Duration,
    install_timeout: Duration,
    /// The caller's timeout and its end. Nothing extends it.
    caller: Option<(Duration, Instant)>,
    /// The end of `startTimeoutMs`. An installation moves it.
    deadline: Instant,
    /// The duration of installations so far.
    installed: Duration,
    checked: Instant,
    progress: ProgressSender,
}

/// The limit that a start has exceeded.
#[derive(Debug)]
pub(crate) enum Expiry {
    /// `startTimeoutMs`.
    Start,
    /// `installTimeoutMs`, while this package manager was at work.
    Install(String),
    Caller,
}

impl StartClock {
    pub(crate) fn start(settings: &ServerSettings, context: &StartContext) -> Self {
        let now = Instant::now();
        Self {
            server: settings.name.clone(),
            start_timeout: settings.start_timeout,
            install_timeout: settings.install_timeout,
            caller: context.timeout.map(|timeout| (timeout, now + timeout)),
            deadline: now + settings.start_timeout,
            installed: Duration::ZERO,
            checked: now,
            progress: context.progress.clone(),
        }
    }

    /// Returns when the time is up. `pid` is the root of the server's processes, `stderr` returns their last output.
    /// Cancel-safe.
    pub(crate) async fn expire(&mut self, pid: Option<u32>, stderr: impl Fn() -> String) -> Expiry {
        loop {
            let caller = self.caller.map(|(_, at)| at);
            let end = caller.map_or(self.deadline, |at| at.min(self.deadline));
            let next = pid.map_or(end, |_| end.min(self.checked + INTERVAL));
            sleep_until(next).await;
            if let Some(installer) = self.check(pid, &stderr).await
                && self.installed >= self.install_timeout
            {
                return Expiry::Install(installer);
            }
            let now = Instant::now();
            if caller.is_some_and(|at| now >= at) {
                return Expiry::Caller;
            }
            if now >= self.deadline {
                return Expiry::Start;
            }
        }
    }

    /// Looks for a package manager, and gives the start the time that it has taken since the last check.
    async fn check(&mut self, pid: Option<u32>, stderr: &impl Fn() -> String) -> Option<String> {
        let output = last_sentence(&stderr()).to_owned();
        let line = output.clone();
        let installer = match pid {
            Some(pid) => run_blocking(move || find_installer(pid, &line)).await,
            None => None,
        };
        let passed = self.checked.elapsed();
        self.checked += passed;
        if installer.is_some() {
            self.deadline += passed;
            self.installed += passed;
        }
        self.progress.send_if_modified(|progress| {
            let next = installer.clone().map(|installer| InstallProgress {
                installer,
                elapsed: self.installed,
                output,
            });
            let is_changed = *progress != next;
            *progress = next;
            is_changed
        });
        installer
    }

    /// Returns the error of a start that took too long. The next one may be quicker: packages are cached by then.
    pub(crate) fn error(&self, expiry: &Expiry, action: &str, stderr: String) -> Box<BridgeError> {
        let mut error = match expiry {
            Expiry::Caller => {
                let timeout = self.caller.map_or(Duration::ZERO, |(timeout, _)| timeout).as_millis();
                let installing = self
                    .progress
                    .borrow()
                    .as_ref()
                    .map(|progress| format!(": {progress}"))
                    .unwrap_or_default();
                let message = format!(
                    "server `{}` did not {action} within {timeout} ms ({CALLER}){installing}",
                    self.server
                );
                BridgeError::new(ErrorCode::ProviderTimeout, Delivery::NotSent, message)
            }
            Expiry::Start => normalise::start_error(&self.server, self.describe_timeout(action)),
            Expiry::Install(installer) => {
                let millis = self.install_timeout.as_millis();
                let reason = format!(
                    "`{installer}` was still installing it after {millis} ms; if it needs longer, raise its \
                     `installTimeoutMs`, or run its command once by hand to see what it waits for"
                );
                normalise::start_error(&self.server, reason)
            }
        };
        error.retryable = true;
        error.server = Some(self.server.clone());
        error.stderr = normalise::non_empty(stderr);
        error
    }

    fn describe_timeout(&self, action: &str) -> String {
        let millis = self.start_timeout.as_millis();
        let installed = match self.installed.as_secs() {
            0 => String::new(),
            seconds => format!(" (besides {seconds} s of installing it)"),
        };
        format!(
            "it did not {action} within {millis} ms{installed}; if it needs longer, raise its `startTimeoutMs`"
        )
    }
}

/// Returns the last line that is not a fragment of a printed object.
fn last_sentence(output: &str) -> &str {
    let mut lines = output.lines().rev().map(str::trim);
    lines.find(|line| !line.is_empty() && !line.ends_with(['{', '}', '[', ']', ','])).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use std::process::{Child, Command, Stdio};

    use tokio_util::sync::CancellationToken;

    use super::*;
    use crate::config::TransportSettings;
    use crate::fleet::client_profile::ClientProfile;
    use crate::in_flight::{AbandonedRequests, InFlightRegistry};

    /// A process that waits for the end of its stdin, as `npx` or as a server.
    fn waiting_process(folder: &std::path::Path, name: &str) -> Child {
        let script = folder.join(name);
        std::fs::write(&script, "while read line; do :; done").unwrap();
        Command::new("sh").arg(script).stdin(Stdio::piped()).spawn().unwrap()
    }

    /// Returns the limit that the process exceeds, and the time until then.
    async fn expiry(name: &str, caller: Option<u64>) -> (Duration, Box<BridgeError>) {
        let folder = tempfile::tempdir().unwrap();
        let mut process = waiting_process(folder.path(), name);
        let transport =
            TransportSettings::Stdio { command: "x".into(), args: vec![], env: vec![], cwd: None };
        let settings = ServerSettings::new(ServerName::parse("s").unwrap(), transport);
        let context = StartContext {
            message_limit: 1,
            timeout: caller.map(Duration::from_secs),
            jailer: None,
            stop: CancellationToken::new(),
            profile: ClientProfile::default(),
            abandoned: AbandonedRequests::new(&Arc::new(InFlightRegistry::default()), 0),
            progress: Arc::new(watch::Sender::new(None)),
            traces: None,
            trace: None,
            logged: Arc::default(),
        };
        let (mut clock, began) = (StartClock::start(&settings, &context), Instant::now());
        let stderr = || "first line\nfetching\n{ a: 1 }".to_owned();
        let expiry = clock.expire(Some(process.id()), stderr).await;
        drop(process.stdin.take());
        process.wait().unwrap();
        (began.elapsed(), clock.error(&expiry, "respond", stderr()))
    }

    // req: US-02
    #[tokio::test(start_paused = true)]
    async fn start_timeout_does_not_run_during_installation() {
        let (elapsed, error) = expiry("npx", None).await;
        assert!(elapsed >= ServerSettings::INSTALL_TIMEOUT, "{elapsed:?}");
        assert!(error.message.contains("`npx` was still installing it after 300000 ms"), "{error}");
        assert!(error.message.contains("`installTimeoutMs`") && error.retryable, "{error}");
        assert_eq!(error.stderr.as_deref(), Some("first line\nfetching\n{ a: 1 }"));
    }

    // req: US-02, BR-05
    #[tokio::test(start_paused = true)]
    async fn start_timeout_runs_for_server() {
        let (elapsed, error) = expiry("server", None).await;
        assert!(elapsed < 2 * ServerSettings::START_TIMEOUT, "{elapsed:?}");
        assert!(error.message.contains("within 30000 ms; ") && error.retryable, "{error}");
    }

    // req: US-02
    #[tokio::test(start_paused = true)]
    async fn installation_does_not_extend_timeout_of_caller() {
        let (elapsed, error) = expiry("uvx", Some(40)).await;
        assert!(elapsed < Duration::from_secs(50), "{elapsed:?}");
        let expected = "within 40000 ms (the caller's timeout): `uvx` is installing it (fetching)";
        assert!(error.code == ErrorCode::ProviderTimeout && error.message.contains(expected), "{error}");
    }
}
