//! Switches to a changed configuration in one step.
//!
//! A reload is planned, starts the added and changed servers, publishes one new snapshot, then retires the replaced and
//! removed servers after their calls. Reading and watching the file is `config`.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bascule_model::{Event, ServerName, ToolId};
use foldhash::HashMap;
use tokio::time::Instant;
use tracing::{info, warn};

use crate::McpBridgeAdapter;
use crate::config::{ServerSettings, Settings};
use crate::fleet::client_profile::ClientProfile;
use crate::fleet::server::Server;
use crate::fleet::server_log::OPERATIONS;
use crate::fleet::snapshot::Snapshot;
use crate::fleet::status::ServerPhase;

/// The differences between two configurations.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Plan {
    pub added: Vec<ServerName>,
    pub changed: Vec<ServerName>,
    pub removed: Vec<ServerName>,
    /// The number of servers that stay as they are.
    pub unchanged: usize,
}

impl Plan {
    /// Compares two configurations.
    pub fn between(current: &Settings, next: &Settings) -> Self {
        let mut plan = Self::default();
        for server in &next.servers {
            match current.server(server.name.as_str()) {
                None => plan.added.push(server.name.clone()),
                Some(old) if old != server => plan.changed.push(server.name.clone()),
                Some(_) => plan.unchanged += 1,
            }
        }
        let gone = current.servers.iter().filter(|old| next.server(old.name.as_str()).is_none());
        plan.removed = gone.map(|server| server.name.clone()).collect();
        plan
    }
}

/// In one line: `added a, b; changed c; 3 unchanged`.
impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (change, names) in
            [("added", &self.added), ("changed", &self.changed), ("removed", &self.removed)]
        {
            if !names.is_empty() {
                let names: Vec<&str> = names.iter().map(ServerName::as_str).collect();
                write!(f, "{change} {}; ", names.join(", "))?;
            }
        }
        write!(f, "{} unchanged", self.unchanged)
    }
}

/// The result of a reload.
#[derive(Debug, Default)]
pub struct Reloaded {
    pub plan: Plan,
    /// Changed servers that did not start with their new configuration. They keep the old one.
    pub refused: Vec<(ServerName, String)>,
    /// A reload that began later was applied first, so this one has changed nothing.
    pub is_superseded: bool,
}

/// Orders concurrent reloads: the one that began last decides.
#[derive(Default)]
pub(crate) struct ReloadTickets {
    last_issued: u64,
    last_applied: u64,
}

/// The result of publishing a staged snapshot.
enum Commit {
    Published,
    /// The settings are no longer those that the snapshot was planned from.
    Outdated,
    /// A later reload was applied.
    Superseded,
}

impl McpBridgeAdapter {
    /// Switches to other settings. Calls in flight finish on the servers where they began, within `grace`. Of concurrent
    /// reloads the one that began last decides.
    pub async fn reload(&self, next: Settings, grace: Duration) -> Reloaded {
        let ticket = self.issue_ticket();
        loop {
            let current = self.fleet.snapshot.load_full();
            let plan = Plan::between(&current.settings, &next);
            let started = self.start_servers(&next, &plan).await;
            let staged = Staged::new(&current, next.clone(), plan, started);
            match self.commit(ticket, &current, &staged) {
                Commit::Published => {
                    let replaced = staged.replaced.iter().map(|(old, _)| old);
                    let retired = staged.retired.iter().chain(replaced).map(|server| server.retire(grace));
                    let retiring = futures_util::future::join_all(retired);
                    tokio::join!(retiring, self.announce_tools(&staged.added));
                    return staged.reloaded;
                }
                // The next plan may start the same servers, which must not run twice.
                Commit::Outdated => staged.stop_started().await,
                Commit::Superseded => {
                    info!("configuration not reloaded: a later reload was applied");
                    staged.stop_started().await;
                    return Reloaded { is_superseded: true, ..Reloaded::default() };
                }
            }
        }
    }

    /// Records and announces that the configuration file cannot be used.
    pub(crate) fn refuse_reload(&self, cause: String) {
        self.fleet.events.offer(Event::ReloadRefused { server: None, cause: cause.clone() });
        *self.refused_reload.lock().expect("no code panics while it holds the lock") = Some(cause);
    }

    /// Returns the reason for which the last reload was refused, if it was.
    pub(crate) fn refused_reload(&self) -> Option<String> {
        self.refused_reload.lock().expect("no code panics while it holds the lock").clone()
    }

    fn issue_ticket(&self) -> u64 {
        let mut tickets = self.reloads.lock().expect("no code panics while it holds the lock");
        tickets.last_issued += 1;
        tickets.last_issued
    }

    /// Publishes a staged snapshot, if no later reload was applied and the settings are still those that it was planned
    /// from. Otherwise changes nothing: the servers that were started for it are left to the caller.
    fn commit(&self, ticket: u64, current: &Snapshot, staged: &Staged) -> Commit {
        let mut tickets = self.reloads.lock().expect("no code panics while it holds the lock");
        if tickets.last_applied > ticket {
            return Commit::Superseded;
        }
        if !Arc::ptr_eq(&self.fleet.snapshot.load().settings, &current.settings) {
            return Commit::Outdated;
        }
        tickets.last_applied = ticket;
        *self.refused_reload.lock().expect("no code panics while it holds the lock") = None;
        self.fleet.notify(|observer| observer.on_reload_started());
        let Staged { settings, servers, reloaded, replaced, .. } = staged;
        self.fleet.snapshot.store(Arc::new(Snapshot::new(settings.clone(), servers.clone())));
        self.fleet.catch_up();
        replaced.iter().for_each(|(old, new)| self.announce_health(old, new));
        for (server, cause) in &reloaded.refused {
            let (server, cause) = (Some(server.clone()), cause.clone());
            self.fleet.events.offer(Event::ReloadRefused { server, cause });
        }
        self.fleet.snapshot.load().in_order().for_each(|server| server.retry_unavailable());
        info!(target: OPERATIONS, "configuration reloaded: {}", reloaded.plan);
        Commit::Published
    }

    /// Announces the tools of all servers, once the added ones have started or have taken too long.
    async fn announce_tools(&self, added: &[Arc<Server>]) {
        let by = Instant::now() + ADDED_WITHIN;
        futures_util::future::join_all(added.iter().map(|server| server.wait_for_first_start(by))).await;
        self.fleet.notify(|observer| observer.on_reloaded());
        let tools: Vec<ToolId> = self.list_tools().iter().map(|tool| tool.id().clone()).collect();
        self.fleet.events.offer(Event::ToolsAvailable { count: tools.len(), tools });
    }

    /// Announces that a replaced server's health differs from its predecessor's.
    fn announce_health(&self, old: &Server, new: &Server) {
        let (from, to) = (old.state().health(), new.state().health());
        if from != to {
            let server = new.settings.name.clone();
            self.fleet.events.offer(Event::HealthChanged { server, from, to, cause: None });
        }
    }

    /// Starts the added and the changed servers, and waits for the changed ones: a replacement must be ready.
    async fn start_servers(&self, settings: &Settings, plan: &Plan) -> Vec<(ServerName, Arc<Server>)> {
        let is_wanted = |name| plan.added.contains(name) || plan.changed.contains(name);
        let wanted = settings.servers.iter().filter(|server| is_wanted(&server.name));
        let start = |settings: &ServerSettings| {
            Server::spawn(Arc::new(settings.clone()), ClientProfile::default(), &self.fleet)
        };
        let started: Vec<_> = wanted.map(|settings| (settings.name.clone(), start(settings))).collect();
        let changed = started.iter().filter(|(name, _)| plan.changed.contains(name));
        let ready = changed.map(|(_, server)| server.wait_for_first_start(Instant::now() + START_LATEST));
        futures_util::future::join_all(ready).await;
        started
    }
}

/// A snapshot that is ready to be published, and the servers that come and go with it.
struct Staged {
    settings: Arc<Settings>,
    servers: HashMap<ServerName, Arc<Server>>,
    reloaded: Reloaded,
    added: Vec<Arc<Server>>,
    /// Each old server with its replacement.
    replaced: Vec<(Arc<Server>, Arc<Server>)>,
    retired: Vec<Arc<Server>>,
    /// All servers that were started for the snapshot.
    started: Vec<Arc<Server>>,
}

impl Staged {
    fn new(
        current: &Snapshot,
        mut settings: Settings,
        plan: Plan,
        started: Vec<(ServerName, Arc<Server>)>,
    ) -> Self {
        let mut servers = HashMap::clone(&current.servers);
        let mut retired: Vec<_> = plan.removed.iter().filter_map(|name| servers.remove(name)).collect();
        let (mut added, mut replaced, mut refused) = (Vec::new(), Vec::new(), Vec::new());
        let all_started = started.iter().map(|(_, server)| server.clone()).collect();
        for (name, server) in started {
            if let (true, Some(reason)) = (plan.changed.contains(&name), not_ready(&server)) {
                warn!(server = %name, reason, "keeping the old configuration: the server does not start with the new one");
                keep_old(&mut settings, &current.settings, &name);
                refused.push((name, reason));
                retired.push(server);
                continue;
            }
            match servers.insert(name, server.clone()) {
                Some(old) => replaced.push((old, server)),
                None => added.push(server),
            }
        }
        let reloaded = Reloaded { plan, refused, is_superseded: false };
        let settings = Arc::new(settings);
        Self { settings, servers, reloaded, added, replaced, retired, started: all_started }
    }

    /// Stops the servers of a snapshot that is not published, and returns when their processes have ended.
    async fn stop_started(&self) {
        futures_util::future::join_all(self.started.iter().map(|server| server.stop())).await;
    }
}

/// Bounds the wait for a replacement. Each server has a start timeout of its own.
const START_LATEST: Duration = Duration::from_secs(3600);

/// The announcement of the tools waits this long for added servers.
const ADDED_WITHIN: Duration = Duration::from_secs(10);

fn not_ready(server: &Server) -> Option<String> {
    match server.state() {
        ServerPhase::Healthy(_) | ServerPhase::OnDemand(_) => None,
        state => {
            Some(state.cause().map_or_else(|| "it did not start".to_owned(), |error| error.message.clone()))
        }
    }
}

fn keep_old(settings: &mut Settings, old: &Settings, name: &ServerName) {
    let place = settings.servers.iter_mut().find(|server| server.name == *name);
    if let (Some(place), Some(old)) = (place, old.server(name.as_str())) {
        *place = ServerSettings::clone(old);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{SourceFile, parse};

    fn settings(servers: &str) -> Settings {
        let source = SourceFile { name: "mcp.json".into(), directory: "/".into() };
        parse(&format!(r#"{{"mcpServers": {{{servers}}}}}"#), &source, &|_| None).unwrap().settings
    }

    // req: BR-13
    #[test]
    fn plans_added_changed_and_removed_servers() {
        let current = settings(r#""a": {"command": "x"}, "b": {"command": "x"}, "c": {"command": "x"}"#);
        let next = settings(r#""d": {"command": "x"}, "b": {"command": "y"}, "a": {"command": "x"}"#);
        let name = |name| ServerName::parse(name).unwrap();
        let expected =
            Plan { added: vec![name("d")], changed: vec![name("b")], removed: vec![name("c")], unchanged: 1 };
        assert_eq!(Plan::between(&current, &next), expected);
        assert_eq!(expected.to_string(), "added d; changed b; removed c; 1 unchanged");
        assert_eq!(
            Plan::between(&current, &current),
            Plan { unchanged: current.servers.len(), ..Plan::default() }
        );
    }
}
