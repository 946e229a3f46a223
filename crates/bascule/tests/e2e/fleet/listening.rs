//! A bridge in the test's own process, with somebody who hears every event and can wait for the next one.

use std::sync::Arc;
use std::time::Duration;

use bascule::config::{Origin, Settings, parse};
use bascule::{BridgeConfig, McpBridgeAdapter, Reloaded};
use bascule_model::{Event, EventSink, ProviderAdapter, ServerName};
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::embedded::{self, patiently};
use crate::support::PATIENCE;

/// Far more than any call of these tests takes to finish.
pub const GRACE: Duration = Duration::from_secs(60);

/// A bridge and what it has told.
pub struct Fleet {
    pub bridge: Arc<McpBridgeAdapter>,
    told: watch::Receiver<Vec<Value>>,
    /// Events up to here were waited for.
    seen: usize,
}

struct Ear(watch::Sender<Vec<Value>>);

impl EventSink for Ear {
    fn offer(&self, event: Event) {
        self.0.send_modify(|told| told.push(serde_json::to_value(event).unwrap()));
    }
}

impl Fleet {
    /// With these servers, each of which was tried once.
    pub async fn start(servers: Value) -> Self {
        Self::init(&servers, true).await
    }

    /// With these servers, which join as they come.
    pub async fn open(servers: Value) -> Self {
        Self::init(&servers, false).await
    }

    async fn init(servers: &Value, wait_for_servers: bool) -> Self {
        let (ear, told) = watch::channel(Vec::new());
        let config = BridgeConfig {
            events: Arc::new(Ear(ear)),
            wait_for_servers,
            ..BridgeConfig::new(settings(servers))
        };
        let bridge = patiently(McpBridgeAdapter::init(config)).await.unwrap();
        Self { bridge: Arc::new(bridge), told, seen: 0 }
    }

    /// Waits for the next event of this kind, after the last one that was waited for.
    pub async fn until(&mut self, kind: &str) -> Value {
        self.until_such(kind, |_| true).await
    }

    /// Waits for the next event of this kind that is such.
    pub async fn until_such(&mut self, kind: &str, such: impl Fn(&Value) -> bool) -> Value {
        let (kind, from) = (format!("provider.mcp.{kind}"), self.seen);
        let find = |told: &Vec<Value>| {
            told.iter().skip(from).position(|event| event["type"] == kind && such(event)).map(|at| from + at)
        };
        let waiting = self.told.wait_for(|told| find(told).is_some());
        let waited = tokio::time::timeout(PATIENCE, waiting).await.map(|told| told.map(|told| told.clone()));
        let Ok(Ok(told)) = waited else { panic!("no `{kind}` in {:#?}", &self.told.borrow()[from..]) };
        let at = find(&told).unwrap();
        self.seen = at + 1;
        told[at].clone()
    }

    /// Waits until a server's health becomes this.
    pub async fn until_health(&mut self, server: &str, health: &str) -> Value {
        self.until_such("health.changed", |event| event["server"] == server && event["to"] == health).await
    }

    /// All events of this kind so far.
    pub fn told(&self, kind: &str) -> Vec<Value> {
        let kind = format!("provider.mcp.{kind}");
        self.told.borrow().iter().filter(|event| event["type"] == kind).cloned().collect()
    }

    /// How a server is, as `status` has it.
    pub fn health(&self, server: &str) -> Value {
        let all = self.bridge.health();
        let one = all.iter().find(|health| health.name.as_str() == server);
        serde_json::to_value(one.unwrap_or_else(|| panic!("no `{server}` in {all:?}"))).unwrap()
    }

    /// The ids of all tools.
    pub fn tools(&self) -> Vec<String> {
        self.bridge.list_tools().iter().map(|tool| tool.id().to_string()).collect()
    }

    /// Calls a tool: its result, or the normalised error.
    pub async fn call(&self, tool: &str, arguments: &str) -> Result<Value, Value> {
        embedded::call(&self.bridge, tool, arguments).await
    }

    /// Begins to call a tool.
    pub fn calling(&self, tool: &'static str) -> JoinHandle<Result<Value, Value>> {
        let bridge = self.bridge.clone();
        tokio::spawn(async move { embedded::call(&bridge, tool, "{}").await })
    }

    pub async fn refresh(&self, server: &str) -> Result<(), Value> {
        let refreshed = patiently(self.bridge.refresh(&ServerName::parse(server).unwrap())).await;
        refreshed.map_err(|error| serde_json::to_value(&error).unwrap())
    }

    /// Takes over another configuration.
    pub async fn reload(&self, servers: Value) -> Reloaded {
        patiently(self.bridge.reload(settings(&servers), GRACE)).await
    }

    pub async fn end(self) {
        embedded::terminate(&self.bridge).await;
    }
}

/// Settings with these servers.
pub fn settings(servers: &Value) -> Settings {
    let origin = Origin { name: "mcp.json".into(), folder: std::env::temp_dir() };
    let configuration = json!({ "mcpServers": servers }).to_string();
    parse(&configuration, &origin, &|_| None).unwrap().settings
}
