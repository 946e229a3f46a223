//! The page `/metrics`: the counters of calls, and the figures of a bridge at the moment.

use bascule_model::{ServerName, ToolId};

use super::exposition::{Exposition, Kind};
use super::figures::{Figure, figures};
use super::tool_series::{BOUNDS, ToolCounts};
use crate::McpBridgeAdapter;
use crate::config::StartMode;

/// The media type of the page.
pub(crate) const METRICS_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Returns all metrics of a bridge.
pub(crate) fn metrics_page(bridge: &McpBridgeAdapter) -> String {
    let mut page = Exposition::default();
    write_calls(&mut page, &bridge.fleet.metrics.tool_counts());
    figures(bridge).iter().for_each(|figure| write_figure(&mut page, figure));
    page.into_text()
}

/// Returns the eager servers whose first start has neither succeeded nor failed.
pub(crate) fn starting_servers(bridge: &McpBridgeAdapter) -> Vec<ServerName> {
    let snapshot = bridge.fleet.snapshot.load();
    let servers = snapshot.in_order().filter(|server| server.settings.start == StartMode::Eager);
    servers.filter(|server| server.is_starting()).map(|server| server.settings.name.clone()).collect()
}

fn write_figure(page: &mut Exposition, figure: &Figure) {
    let name = figure.name.replace('.', "_");
    let (name, kind) = match figure.is_counter {
        true => (format!("{name}_total"), Kind::Counter),
        false => (name, Kind::Gauge),
    };
    page.metric(&name, kind, figure.help);
    for point in &figure.points {
        let labels: Vec<(&str, &str)> =
            point.labels.iter().map(|(name, value)| (*name, value.as_str())).collect();
        page.sample(&name, &labels, point.value);
    }
}

fn write_calls(page: &mut Exposition, tools: &[(ToolId, ToolCounts)]) {
    page.metric("bascule_calls_total", Kind::Counter, "Ended calls, refused ones included.");
    for (id, counts) in tools {
        page.sample("bascule_calls_total", &labels(id), counts.total().calls());
    }
    page.metric("bascule_call_errors_total", Kind::Counter, "Failed calls by error code.");
    for (id, counts) in tools {
        for outcome in &counts.ended {
            let Some(code) = &outcome.code else { continue };
            let [server, tool] = labels(id);
            let calls = outcome.durations.calls();
            page.sample("bascule_call_errors_total", &[server, tool, ("code", code)], calls);
        }
    }
    page.metric("bascule_call_duration_seconds", Kind::Histogram, "The durations of calls.");
    for (id, counts) in tools {
        write_histogram(page, &labels(id), counts);
    }
}

fn labels(id: &ToolId) -> [(&'static str, &str); 2] {
    [("server", id.server()), ("tool", id.tool())]
}

fn write_histogram(page: &mut Exposition, labels: &[(&str, &str); 2], counts: &ToolCounts) {
    let total = counts.total();
    let bounds = BOUNDS.iter().map(|(_, label)| *label).chain(["+Inf"]);
    for (bound, count) in bounds.zip(total.cumulative()) {
        page.sample("bascule_call_duration_seconds_bucket", &[labels[0], labels[1], ("le", bound)], count);
    }
    page.sample("bascule_call_duration_seconds_sum", labels, total.seconds());
    page.sample("bascule_call_duration_seconds_count", labels, total.calls());
}
