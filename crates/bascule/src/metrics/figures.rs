//! The figures of a bridge at one moment, other than those of its calls: the state of its servers, scripts and traces.
//!
//! `/metrics` and a collector get the same ones. The name in Prometheus has underscores for the dots.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bascule_model::{Health, ProviderAdapter, ServerHealth, ServerName};

use super::{CallMetrics, ServerLoad};
use crate::McpBridgeAdapter;

const STATES: [Health; 5] =
    [Health::Starting, Health::Healthy, Health::Degraded, Health::Unavailable, Health::Stopped];

/// One measure and its values.
pub(crate) struct Figure {
    /// In the spelling of OpenTelemetry: `bascule.server.tools`.
    pub(crate) name: &'static str,
    pub(crate) help: &'static str,
    /// The value only grows while the bridge runs.
    pub(crate) is_counter: bool,
    pub(crate) points: Vec<FigurePoint>,
}

pub(crate) struct FigurePoint {
    pub(crate) labels: Vec<(&'static str, String)>,
    pub(crate) value: u64,
}

impl Figure {
    fn gauge(name: &'static str, help: &'static str, points: Vec<FigurePoint>) -> Self {
        Self { name, help, is_counter: false, points }
    }

    fn counter(name: &'static str, help: &'static str, points: Vec<FigurePoint>) -> Self {
        Self { name, help, is_counter: true, points }
    }
}

/// Returns all figures of a bridge.
pub(crate) fn figures(bridge: &McpBridgeAdapter) -> Vec<Figure> {
    let version = FigurePoint { labels: vec![("version", env!("CARGO_PKG_VERSION").to_owned())], value: 1 };
    let mut all = vec![Figure::gauge("bascule.build_info", "The version of the bridge.", vec![version])];
    all.extend(loads(&bridge.fleet.metrics));
    all.extend(servers(&bridge.health(), &bridge.fleet.metrics));
    all.extend(scripts(bridge));
    all.extend(traces(bridge));
    all
}

fn loads(metrics: &CallMetrics) -> [Figure; 2] {
    let servers = metrics.servers.load();
    let mut servers: Vec<(&ServerName, &Arc<ServerLoad>)> = servers.iter().collect();
    servers.sort_by_key(|(name, _)| *name);
    let points = |value: fn(&ServerLoad) -> &AtomicU64| {
        let point = |(name, load): &(&ServerName, &Arc<ServerLoad>)| {
            of_server(name, value(load).load(Ordering::Relaxed))
        };
        servers.iter().map(point).collect()
    };
    [
        Figure::gauge(
            "bascule.calls.in_flight",
            "Calls that a server works on.",
            points(|load| &load.in_flight),
        ),
        Figure::gauge(
            "bascule.calls.waiting",
            "Calls in the queue of a server.",
            points(|load| &load.waiting),
        ),
    ]
}

fn servers(servers: &[ServerHealth], metrics: &CallMetrics) -> [Figure; 3] {
    let points = |value: &dyn Fn(&ServerHealth) -> u64| {
        servers.iter().map(|server| of_server(&server.name, value(server))).collect()
    };
    let in_state = |server: &ServerHealth, state: Health| {
        let mut point = of_server(&server.name, u64::from(server.health == state));
        point.labels.push(("state", state.to_string()));
        point
    };
    let states = |server| STATES.map(|state| in_state(server, state));
    [
        Figure::gauge(
            "bascule.server.health",
            "1 for the state that a server has, 0 for the others.",
            servers.iter().flat_map(states).collect(),
        ),
        Figure::counter(
            "bascule.server.restarts",
            "Restarts of a server after it was lost.",
            // Those of the server alone would begin anew at a reload.
            points(&|server| metrics.server(&server.name).restarts.load(Ordering::Relaxed)),
        ),
        Figure::gauge(
            "bascule.server.tools",
            "Tools that a server has in the catalog.",
            points(&|server| server.tools as u64),
        ),
    ]
}

fn scripts(bridge: &McpBridgeAdapter) -> [Figure; 3] {
    let load = bridge.scripts.load();
    [
        Figure::gauge("bascule.scripts.running", "Scripts that run.", single(load.running as u64)),
        Figure::gauge(
            "bascule.scripts.waiting",
            "Scripts that wait for a slot.",
            single(load.waiting as u64),
        ),
        Figure::gauge(
            "bascule.script_workers.ready",
            "Workers that wait for a script.",
            single(load.ready_workers as u64),
        ),
    ]
}

fn traces(bridge: &McpBridgeAdapter) -> Vec<Figure> {
    let Some(traces) = &bridge.fleet.traces else { return Vec::new() };
    let status = traces.status();
    let mut all = vec![
        Figure::counter(
            "bascule.trace_entries.written",
            "Spans and log lines in the store.",
            single(status.written),
        ),
        Figure::counter(
            "bascule.trace_entries.dropped",
            "Spans and log lines that are lost.",
            single(status.dropped),
        ),
    ];
    if let Some(exports) = traces.exports() {
        let count = |count: &AtomicU64| single(count.load(Ordering::Relaxed));
        all.push(Figure::counter(
            "bascule.otlp.spans_sent",
            "Spans that the collector accepted.",
            count(&exports.sent),
        ));
        all.push(Figure::counter(
            "bascule.otlp.spans_dropped",
            "Spans that the collector did not get.",
            count(&exports.dropped),
        ));
    }
    all
}

fn of_server(name: &ServerName, value: u64) -> FigurePoint {
    FigurePoint { labels: vec![("server", name.to_string())], value }
}

fn single(value: u64) -> Vec<FigurePoint> {
    vec![FigurePoint { labels: Vec::new(), value }]
}
