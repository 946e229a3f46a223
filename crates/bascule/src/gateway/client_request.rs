//! A request of a client on its way through the gateway.

use std::sync::Arc;

use bascule_mcp::{ResponseStream, notification, patch, with_extra_members};
use serde_json::value::RawValue;

use crate::client::ClientContext;
use crate::fleet::request::{ExtraMembers, ProgressSink};
use crate::in_flight::Origin;

pub(super) struct ClientRequest<'a> {
    pub(super) client: &'a Arc<ClientContext>,
    pub(super) method: &'a str,
    pub(super) params: Option<&'a RawValue>,
    /// The response, and the messages that belong to it, go here.
    pub(super) stream: &'a ResponseStream,
    pub(super) extra_members: &'a ExtraMembers,
}

impl<'a> ClientRequest<'a> {
    pub(super) fn origin(&self) -> Origin {
        Origin::Client { client: self.client.clone(), stream: self.stream.clone() }
    }

    /// Returns the parameters as JSON text.
    pub(super) fn params(&self) -> &'a str {
        self.params.map_or("{}", RawValue::get)
    }

    /// Returns a text parameter, or the empty text.
    pub(super) fn text(&self, field: &str) -> String {
        patch::find_string(self.params(), &[field]).unwrap_or_default()
    }

    /// Returns a sink that reports progress to the client under the client's own token.
    pub(super) fn progress_sink(&self, token: &str) -> ProgressSink {
        let (token, stream) = (token.to_owned(), self.stream.clone());
        Arc::new(move |params: &RawValue, extra_members: Option<&str>| {
            let params = patch::insert(params.get(), &["progressToken"], &token);
            stream.push(with_extra_members(
                notification("notifications/progress", Some(&params)),
                extra_members,
            ));
        })
    }
}
