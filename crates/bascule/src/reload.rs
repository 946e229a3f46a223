//! Takes over a changed configuration (BR-13): all of it, in one moment, or what cannot be had of it not at all.
//!
//! Planned first, without doing anything; then what is new is started, then the snapshot changes at once, then what
//! is no longer wanted ends, after its calls. Reading the file and noticing changes are others' business.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use bascule_model::{Event, ServerName, ToolId};
use tokio::time::Instant;
use tracing::{info, warn};

use crate::McpBridgeAdapter;
use crate::config::{ServerSettings, Settings};
use crate::fleet::client_profile::ClientProfile;
use crate::fleet::server::Server;
use crate::fleet::snapshot::Snapshot;
use crate::fleet::status::State;

/// What has to be done to get from one configuration to another.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Plan {
    /// Servers that are new.
    pub added: Vec<ServerName>,
    /// Servers that are configured differently.
    pub changed: Vec<ServerName>,
    /// Servers that are gone.
    pub removed: Vec<ServerName>,
    /// How many stay as they are.
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

    /// Whether there is nothing to do.
    pub fn is_empty(&self) -> bool {
        self.added.is_empty() && self.changed.is_empty() && self.removed.is_empty()
    }
}

/// What came of a change.
#[derive(Debug, Default)]
pub struct Reloaded {
    /// What was to be done.
    pub plan: Plan,
    /// Changed servers that would not start as they are configured now. They go on as they were.
    pub refused: Vec<(ServerName, String)>,
}

impl McpBridgeAdapter {
    /// Takes over other settings. Calls under way finish where they began, within `grace`.
    pub async fn reload(&self, next: Settings, grace: Duration) -> Reloaded {
        let _one_at_a_time = self.reloading.lock().await;
        let current = self.fleet.snapshot.load_full();
        let plan = Plan::between(&current.settings, &next);
        let mut reloaded = Reloaded { plan: plan.clone(), refused: Vec::new() };
        let mut settings = next;
        let mut servers = HashMap::clone(&current.servers);
        let mut retired: Vec<Arc<Server>> =
            plan.removed.iter().filter_map(|name| servers.remove(name)).collect();

        let (mut added, mut replaced) = (Vec::new(), Vec::new());
        for (name, server) in self.start_all(&settings, &plan).await {
            let is_change = plan.changed.contains(&name);
            if let (true, Some(why)) = (is_change, not_ready(&server)) {
                warn!(server = %name, why, "its new configuration does not work; it goes on with the old one");
                keep_old(&mut settings, &current.settings, &name);
                reloaded.refused.push((name, why));
                retired.push(server);
                continue;
            }
            match servers.insert(name, server.clone()) {
                Some(old) => replaced.push((old, server)),
                None => added.push(server),
            }
        }
        self.fleet.snapshot.store(Arc::new(Snapshot::of(Arc::new(settings), servers)));
        self.fleet.catch_up();
        replaced.iter().for_each(|(old, new)| self.tell_change(old, new));
        self.fleet.snapshot.load().in_order().for_each(|server| server.give_another_chance());
        info!(
            added = plan.added.len(),
            changed = plan.changed.len(),
            removed = plan.removed.len(),
            "reloaded"
        );
        retired.extend(replaced.into_iter().map(|(old, _)| old));
        let retiring = futures_util::future::join_all(retired.iter().map(|server| server.retire(grace)));
        tokio::join!(retiring, self.tell_what_is_available(&added));
        reloaded
    }

    /// One word on all tools, those of the newcomers included unless they are slow.
    async fn tell_what_is_available(&self, added: &[Arc<Server>]) {
        let by = Instant::now() + NEWCOMERS_WITHIN;
        futures_util::future::join_all(added.iter().map(|server| server.first_start(by))).await;
        let tools: Vec<ToolId> = self.list_tools().iter().map(|tool| tool.id().clone()).collect();
        self.fleet.events.offer(Event::ToolsAvailable { count: tools.len(), tools });
    }

    /// Another server goes by a name, and may be better or worse than the one before.
    fn tell_change(&self, old: &Server, new: &Server) {
        let (from, to) = (old.state().health(), new.state().health());
        if from != to {
            let server = new.settings.name.clone();
            self.fleet.events.offer(Event::HealthChanged { server, from, to, cause: None });
        }
    }

    /// Starts what is new or changed, and waits for the changed ones: who replaces somebody must be ready.
    async fn start_all(&self, settings: &Settings, plan: &Plan) -> Vec<(ServerName, Arc<Server>)> {
        let wanted = settings
            .servers
            .iter()
            .filter(|server| plan.added.contains(&server.name) || plan.changed.contains(&server.name));
        let fresh: Vec<_> = wanted
            .map(|server| {
                (
                    server.name.clone(),
                    Server::spawn(Arc::new(server.clone()), ClientProfile::new("{}"), &self.fleet),
                )
            })
            .collect();
        let replacing = fresh.iter().filter(|(name, _)| plan.changed.contains(name));
        let ready = replacing.map(|(_, server)| server.first_start(Instant::now() + START_LATEST));
        futures_util::future::join_all(ready).await;
        fresh
    }
}

/// Each server has its own bound for starting; this one is for what goes wrong with that.
const START_LATEST: Duration = Duration::from_secs(3600);

/// So long the word on what is available waits for servers that are new.
const NEWCOMERS_WITHIN: Duration = Duration::from_secs(10);

fn not_ready(server: &Server) -> Option<String> {
    match server.state() {
        State::Healthy(_) => None,
        state => Some(state.why().map_or_else(|| "it did not start".to_owned(), |why| why.message.clone())),
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
    fn a_plan_names_what_is_new_other_and_gone() {
        let current = settings(r#""a": {"command": "x"}, "b": {"command": "x"}, "c": {"command": "x"}"#);
        let next = settings(r#""d": {"command": "x"}, "b": {"command": "y"}, "a": {"command": "x"}"#);
        let name = |name| ServerName::parse(name).unwrap();
        let expected =
            Plan { added: vec![name("d")], changed: vec![name("b")], removed: vec![name("c")], unchanged: 1 };
        assert_eq!(Plan::between(&current, &next), expected);
        assert!(Plan::between(&current, &current).is_empty());
    }
}
