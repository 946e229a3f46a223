//! The HTTP pages for operators: `/healthz`, `/readyz` and `/metrics`.

use std::sync::Arc;

use bascule_mcp::{Router, TextPage};
use bascule_model::ServerName;

use crate::{McpBridgeAdapter, metrics};

/// Adds `/healthz` and `/readyz`.
pub(super) fn health_pages(router: Router, bridge: &Arc<McpBridgeAdapter>) -> Router {
    let bridge = bridge.clone();
    router.health_check().text_page("/readyz", move || readiness(&bridge))
}

/// Adds `/metrics`.
pub(super) fn metrics_page(router: Router, bridge: &Arc<McpBridgeAdapter>) -> Router {
    let bridge = bridge.clone();
    router.text_page("/metrics", move || {
        let text = metrics::metrics_page(&bridge);
        TextPage { media_type: metrics::METRICS_TYPE, is_available: true, text }
    })
}

/// A bridge is ready when every eager server has started or failed its first start.
fn readiness(bridge: &McpBridgeAdapter) -> TextPage {
    let starting = metrics::starting_servers(bridge);
    let names: Vec<&str> = starting.iter().map(ServerName::as_str).collect();
    let text = if names.is_empty() { "ready".into() } else { format!("starting: {}", names.join(", ")) };
    TextPage { media_type: "text/plain", is_available: names.is_empty(), text }
}
