//! The page `/metrics`: all counters of a bridge, and the state of its servers and scripts at the moment.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use bascule_model::{Health, ProviderAdapter, ServerHealth, ServerName, ToolId};

use super::exposition::{Exposition, Kind};
use super::tool_series::{BOUNDS, ToolCounts};
use super::{CallMetrics, ServerLoad};
use crate::McpBridgeAdapter;
use crate::config::StartMode;

/// The media type of the page.
pub(crate) const METRICS_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

const STATES: [Health; 5] =
    [Health::Starting, Health::Healthy, Health::Degraded, Health::Unavailable, Health::Stopped];

/// Returns all metrics of a bridge.
pub(crate) fn metrics_page(bridge: &McpBridgeAdapter) -> String {
    let mut page = Exposition::default();
    page.metric("bascule_build_info", Kind::Gauge, "The version of the bridge.");
    page.sample("bascule_build_info", &[("version", env!("CARGO_PKG_VERSION"))], 1);
    write_calls(&mut page, &bridge.fleet.metrics);
    write_loads(&mut page, &bridge.fleet.metrics);
    write_servers(&mut page, &bridge.health());
    write_scripts(&mut page, bridge);
    write_traces(&mut page, bridge);
    page.into_text()
}

/// Returns the eager servers whose first start has neither succeeded nor failed.
pub(crate) fn starting_servers(bridge: &McpBridgeAdapter) -> Vec<ServerName> {
    let snapshot = bridge.fleet.snapshot.load();
    let servers = snapshot.in_order().filter(|server| server.settings.start == StartMode::Eager);
    servers.filter(|server| server.is_starting()).map(|server| server.settings.name.clone()).collect()
}

fn write_calls(page: &mut Exposition, metrics: &CallMetrics) {
    let tools = metrics.tools.load();
    let mut tools: Vec<(&ToolId, ToolCounts)> =
        tools.iter().map(|(id, series)| (id, series.counts())).collect();
    tools.sort_by_key(|(id, _)| *id);
    let labels = |id: &ToolId| [("server", id.server().to_owned()), ("tool", id.tool().to_owned())];
    page.metric("bascule_calls_total", Kind::Counter, "Ended calls, refused ones included.");
    for (id, counts) in &tools {
        page.sample("bascule_calls_total", &borrowed(&labels(id)), counts.calls());
    }
    page.metric("bascule_call_errors_total", Kind::Counter, "Failed calls by error code.");
    for (id, counts) in &tools {
        for (code, count) in &counts.errors {
            let [server, tool] = &labels(id);
            let labels = [(server.0, &*server.1), (tool.0, &*tool.1), ("code", code)];
            page.sample("bascule_call_errors_total", &labels, count);
        }
    }
    page.metric("bascule_call_duration_seconds", Kind::Histogram, "The durations of calls.");
    for (id, counts) in &tools {
        write_histogram(page, &borrowed(&labels(id)), counts);
    }
}

fn borrowed<'a>(labels: &'a [(&'a str, String); 2]) -> [(&'a str, &'a str); 2] {
    labels.each_ref().map(|(name, value)| (*name, value.as_str()))
}

fn write_histogram(page: &mut Exposition, labels: &[(&str, &str); 2], counts: &ToolCounts) {
    let bounds = BOUNDS.iter().map(|(_, label)| *label).chain(["+Inf"]);
    for (bound, count) in bounds.zip(counts.cumulative) {
        page.sample("bascule_call_duration_seconds_bucket", &[labels[0], labels[1], ("le", bound)], count);
    }
    let seconds = counts.micros as f64 / 1e6;
    page.sample("bascule_call_duration_seconds_sum", labels, seconds);
    page.sample("bascule_call_duration_seconds_count", labels, counts.calls());
}

fn write_loads(page: &mut Exposition, metrics: &CallMetrics) {
    let servers = metrics.servers.load();
    let mut servers: Vec<(&ServerName, &Arc<ServerLoad>)> = servers.iter().collect();
    servers.sort_by_key(|(name, _)| *name);
    page.metric("bascule_calls_in_flight", Kind::Gauge, "Calls that a server works on.");
    for (name, load) in &servers {
        let value = load.in_flight.load(Ordering::Relaxed);
        page.sample("bascule_calls_in_flight", &[("server", name.as_str())], value);
    }
    page.metric("bascule_calls_waiting", Kind::Gauge, "Calls in the queue of a server.");
    for (name, load) in &servers {
        let value = load.waiting.load(Ordering::Relaxed);
        page.sample("bascule_calls_waiting", &[("server", name.as_str())], value);
    }
}

fn write_servers(page: &mut Exposition, servers: &[ServerHealth]) {
    page.metric("bascule_server_health", Kind::Gauge, "1 for the state that a server has, 0 for the others.");
    for server in servers {
        for state in STATES {
            let labels = [("server", server.name.as_str()), ("state", &*state.to_string())];
            page.sample("bascule_server_health", &labels, u8::from(server.health == state));
        }
    }
    page.metric("bascule_server_restarts_total", Kind::Counter, "Restarts of a server after it was lost.");
    for server in servers {
        page.sample("bascule_server_restarts_total", &[("server", server.name.as_str())], server.restarts);
    }
    page.metric("bascule_server_tools", Kind::Gauge, "Tools that a server has in the catalog.");
    for server in servers {
        page.sample("bascule_server_tools", &[("server", server.name.as_str())], server.tools);
    }
}

fn write_scripts(page: &mut Exposition, bridge: &McpBridgeAdapter) {
    let load = bridge.scripts.load();
    page.metric("bascule_scripts_running", Kind::Gauge, "Scripts that run.");
    page.sample("bascule_scripts_running", &[], load.running);
    page.metric("bascule_scripts_waiting", Kind::Gauge, "Scripts that wait for a slot.");
    page.sample("bascule_scripts_waiting", &[], load.waiting);
    page.metric("bascule_script_workers_ready", Kind::Gauge, "Workers that wait for a script.");
    page.sample("bascule_script_workers_ready", &[], load.ready_workers);
}

fn write_traces(page: &mut Exposition, bridge: &McpBridgeAdapter) {
    let Some(traces) = &bridge.fleet.traces else { return };
    let status = traces.status();
    page.metric("bascule_trace_entries_written_total", Kind::Counter, "Spans and log lines in the store.");
    page.sample("bascule_trace_entries_written_total", &[], status.written);
    page.metric("bascule_trace_entries_dropped_total", Kind::Counter, "Spans and log lines that are lost.");
    page.sample("bascule_trace_entries_dropped_total", &[], status.dropped);
    let Some(exports) = traces.exports() else { return };
    page.metric("bascule_otlp_spans_sent_total", Kind::Counter, "Spans that the collector accepted.");
    page.sample("bascule_otlp_spans_sent_total", &[], exports.sent.load(Ordering::Relaxed));
    page.metric("bascule_otlp_spans_dropped_total", Kind::Counter, "Spans that the collector did not get.");
    page.sample("bascule_otlp_spans_dropped_total", &[], exports.dropped.load(Ordering::Relaxed));
}
