//! A bridge inside the test process whose events are recorded and can be waited for.

use std::sync::Arc;
use std::time::Duration;

use bascule::config::{Settings, SourceFile, parse};
use bascule::{BridgeConfig, McpBridgeAdapter, Reloaded};
use bascule_model::{Event, EventSink, ProviderAdapter, ServerName};
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::embedded::{self, within_timeout};
use crate::support::TIMEOUT;

/// Grace period of a reload: far longer than any call in these tests.
pub const GRACE: Duration = Duration::from_secs(60);

pub struct ObservedBridge {
    pub adapter: Arc<McpBridgeAdapter>,
    events: watch::Receiver<Vec<Value>>,
    /// Number of events that earlier waits have consumed.
    seen: usize,
}

struct EventRecorder(watch::Sender<Vec<Value>>);

impl EventSink for EventRecorder {
    fn offer(&self, event: Event) {
        self.0.send_modify(|events| events.push(serde_json::to_value(event).unwrap()));
    }
}

impl ObservedBridge {
    /// Returns after one start attempt of every server.
    pub async fn start(servers: Value) -> Self {
        Self::init(&servers, true).await
    }

    /// Returns before the servers have started.
    pub async fn start_without_waiting(servers: Value) -> Self {
        Self::init(&servers, false).await
    }

    async fn init(servers: &Value, wait_for_servers: bool) -> Self {
        let (sender, events) = watch::channel(Vec::new());
        let config = BridgeConfig {
            events: Arc::new(EventRecorder(sender)),
            wait_for_servers,
            ..BridgeConfig::new(settings(servers))
        };
        let adapter = within_timeout(McpBridgeAdapter::init(config)).await.unwrap();
        Self { adapter: Arc::new(adapter), events, seen: 0 }
    }

    /// Waits for the next event of this kind after the last one returned.
    pub async fn wait_for_event(&mut self, kind: &str) -> Value {
        self.wait_for_event_where(kind, |_| true).await
    }

    pub async fn wait_for_event_where(&mut self, kind: &str, matches: impl Fn(&Value) -> bool) -> Value {
        let (kind, from) = (format!("provider.mcp.{kind}"), self.seen);
        let find = |events: &Vec<Value>| {
            let is_match = |event: &Value| event["type"] == kind && matches(event);
            events.iter().skip(from).position(is_match).map(|index| from + index)
        };
        let waiting = self.events.wait_for(|events| find(events).is_some());
        let waited = tokio::time::timeout(TIMEOUT, waiting).await.map(|events| events.map(|e| e.clone()));
        let Ok(Ok(events)) = waited else { panic!("no `{kind}` in {:#?}", &self.events.borrow()[from..]) };
        let index = find(&events).unwrap();
        self.seen = index + 1;
        events[index].clone()
    }

    /// Waits until the health of a server changes to this value.
    pub async fn wait_for_health(&mut self, server: &str, health: &str) -> Value {
        self.wait_for_event_where("health.changed", |event| {
            event["server"] == server && event["to"] == health
        })
        .await
    }

    /// All events of this kind so far.
    pub fn events(&self, kind: &str) -> Vec<Value> {
        let kind = format!("provider.mcp.{kind}");
        self.events.borrow().iter().filter(|event| event["type"] == kind).cloned().collect()
    }

    /// Status of a server.
    pub fn health(&self, server: &str) -> Value {
        let all = self.adapter.health();
        let one = all.iter().find(|health| health.name.as_str() == server);
        serde_json::to_value(one.unwrap_or_else(|| panic!("no `{server}` in {all:?}"))).unwrap()
    }

    /// Ids of all tools.
    pub fn tools(&self) -> Vec<String> {
        self.adapter.list_tools().iter().map(|tool| tool.id().to_string()).collect()
    }

    /// Calls a tool and returns its result or the normalised error.
    pub async fn call(&self, tool: &str, arguments: &str) -> Result<Value, Value> {
        embedded::call(&self.adapter, tool, arguments).await
    }

    /// Calls a tool in the background.
    pub fn spawn_call(&self, tool: &'static str) -> JoinHandle<Result<Value, Value>> {
        let adapter = self.adapter.clone();
        tokio::spawn(async move { embedded::call(&adapter, tool, "{}").await })
    }

    pub async fn refresh(&self, server: &str) -> Result<(), Value> {
        let refreshed = within_timeout(self.adapter.refresh(&ServerName::parse(server).unwrap())).await;
        refreshed.map_err(|error| serde_json::to_value(&error).unwrap())
    }

    pub async fn reload(&self, servers: Value) -> Reloaded {
        within_timeout(self.adapter.reload(settings(&servers), GRACE)).await
    }

    pub async fn terminate(self) {
        embedded::terminate(&self.adapter).await;
    }
}

pub fn settings(servers: &Value) -> Settings {
    let origin = SourceFile { name: "mcp.json".into(), directory: std::env::temp_dir() };
    let configuration = json!({ "mcpServers": servers }).to_string();
    parse(&configuration, &origin, &|_| None).unwrap().settings
}
