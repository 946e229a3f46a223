//! The HTTP pages for operators: `/metrics` and `/readyz`.

use std::sync::Arc;

use bascule_mcp::{Router, TextPage};
use bascule_model::ServerName;

use crate::{McpBridgeAdapter, metrics};

/// Adds `/metrics` and `/readyz`.
pub(super) fn operator_pages(router: Router, bridge: &Arc<McpBridgeAdapter>) -> Router {
    let (measured, ready) = (bridge.clone(), bridge.clone());
    let metrics = move || {
        let text = metrics::metrics_page(&measured);
        TextPage { media_type: metrics::METRICS_TYPE, is_available: true, text }
    };
    router.text_page("/metrics", metrics).text_page("/readyz", move || readiness(&ready))
}

/// A bridge is ready when every eager server has started or failed its first start.
fn readiness(bridge: &McpBridgeAdapter) -> TextPage {
    let starting = metrics::starting_servers(bridge);
    let names: Vec<&str> = starting.iter().map(ServerName::as_str).collect();
    let text = if names.is_empty() { "ready".into() } else { format!("starting: {}", names.join(", ")) };
    TextPage { media_type: "text/plain", is_available: names.is_empty(), text }
}
