//! Requests a listing of several servers at the same time, and waits only so long for slow ones.
//!
//! A server that is late keeps its request: when it responds after all, clients are told that the listing has changed. Until
//! then, and while the server is not running, its last items are used.

use std::sync::Arc;
use std::time::Duration;

use bascule_mcp::patch;
use bascule_model::BridgeResult;
use futures_util::stream::FuturesUnordered;
use futures_util::{Stream, StreamExt};
use tokio::time::{Instant, timeout_at};

use super::Gateway;
use super::client_request::ClientRequest;
use super::listings::Listing;
use super::routing::ListChange;
use super::upstream_session::UpstreamSession;
use crate::in_flight::Origin;
use crate::normalise::unavailable_error;

/// A listing waits this long for servers that are starting or slow to respond.
const LISTING_TIMEOUT: Duration = Duration::from_secs(5);
/// The most pages that are requested of one listing; more are taken for endless.
const MAX_PAGES: usize = 100;

/// The items of one server, as it sent them.
pub(super) type ServerItems = Arc<Vec<String>>;

impl Gateway {
    /// Returns the items of each server, or its error, in the order of the servers. A server that is not running is started
    /// only if `starts_servers`.
    pub(super) async fn request_listings(
        &self,
        request: &ClientRequest<'_>,
        listing: Listing,
        upstreams: &[Arc<UpstreamSession>],
        starts_servers: bool,
    ) -> Vec<BridgeResult<ServerItems>> {
        let is_asked = |upstream: &UpstreamSession| {
            !upstream.is_late(listing) && (starts_servers || !upstream.server.is_on_demand())
        };
        let asked = upstreams.iter().enumerate().filter(|(_, upstream)| is_asked(upstream));
        let mut pending: FuturesUnordered<_> = asked
            .map(|(number, upstream)| {
                let (upstream, origin) = (upstream.clone(), request.origin());
                Box::pin(async move { (number, upstream.request_items(listing, &origin).await) })
            })
            .collect();
        let mut results: Vec<Option<BridgeResult<ServerItems>>> = upstreams.iter().map(|_| None).collect();
        let by = Instant::now() + LISTING_TIMEOUT;
        while let Ok(Some((number, items))) = timeout_at(by, pending.next()).await {
            if let Ok(items) = &items {
                upstreams[number].keep_items(listing, items);
            }
            results[number] = Some(items);
        }
        if !pending.is_empty() {
            let upstreams = upstreams.to_vec();
            let missing = |number: &usize| results[*number].is_none();
            (0..upstreams.len()).filter(missing).for_each(|number| upstreams[number].set_late(listing, true));
            self.tasks.spawn(keep_late_items(pending, upstreams, listing));
        }
        let results = results.into_iter().zip(upstreams);
        results.map(|(items, upstream)| items.unwrap_or_else(|| upstream.last_items(listing))).collect()
    }
}

/// Keeps the items of servers that answer late, each with the number of its server.
async fn keep_late_items(
    mut pending: impl Stream<Item = (usize, BridgeResult<ServerItems>)> + Unpin,
    upstreams: Vec<Arc<UpstreamSession>>,
    listing: Listing,
) {
    while let Some((number, items)) = pending.next().await {
        upstreams[number].on_late_items(listing, &items);
    }
}

impl UpstreamSession {
    /// Requests all pages of a listing. A server that is starting is waited for.
    async fn request_items(&self, listing: Listing, origin: &Origin) -> BridgeResult<ServerItems> {
        let (mut items, mut cursor) = (Vec::new(), None::<String>);
        let deadline = self.deadline();
        self.server.wait_for_first_start(deadline.next()).await;
        if self.server.backend().is_ok() && !self.declares(listing.capability) {
            return Ok(Arc::default());
        }
        for _ in 0..MAX_PAGES {
            let params = cursor.as_ref().map(|cursor| format!(r#"{{"cursor":{cursor}}}"#));
            let page = self.send_request(listing.method, params.as_deref(), origin, &deadline).await?;
            let listed = patch::find_elements(&page, &[listing.member]).unwrap_or_default();
            items.extend(listed.into_iter().map(str::to_owned));
            match patch::find(&page, &["nextCursor"]).filter(|next| *next != "null") {
                Some(next) => cursor = Some(next.to_owned()),
                None => break,
            }
        }
        Ok(Arc::new(items))
    }

    /// Takes the items of a server that has responded too late.
    fn on_late_items(&self, listing: Listing, items: &BridgeResult<ServerItems>) {
        self.set_late(listing, false);
        if items.as_ref().is_ok_and(|items| self.keep_items(listing, items)) {
            self.announce([ListChange::noticed(listing.capability)]);
        }
    }

    /// Returns the items that the server has sent last.
    fn last_items(&self, listing: Listing) -> BridgeResult<ServerItems> {
        self.kept_items(listing).ok_or_else(|| {
            let (method, within) = (listing.method, LISTING_TIMEOUT.as_millis());
            let reason = format!(
                "it did not respond to `{method}` within {within} ms; clients are notified when it does"
            );
            unavailable_error(&self.server.settings.name, reason)
        })
    }
}
