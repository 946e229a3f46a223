//! A request of a client on its way through the gateway.

use std::sync::{Arc, OnceLock};

use bascule_mcp::{ResponseStream, TraceHeaders, notification, patch, with_extra_members};
use bascule_model::CorrelationId;
use serde_json::value::RawValue;

use super::correlation::ClientIds;
use super::reply::ErrorReply;
use crate::client::ClientContext;
use crate::client_trace::ClientTrace;
use crate::fleet::request::{ExtraMembers, ProgressSink};
use crate::in_flight::Origin;
use crate::unique_number::next_correlation_id;

pub(super) struct ClientRequest<'a> {
    pub(super) client: &'a Arc<ClientContext>,
    pub(super) method: &'a str,
    pub(super) params: Option<&'a RawValue>,
    /// The response, and the messages that belong to it, go here.
    pub(super) stream: &'a ResponseStream,
    pub(super) extra_members: &'a ExtraMembers,
    pub(super) trace_headers: Option<&'a TraceHeaders>,
    /// Found at the first use: most requests are calls, whose parameters are parsed anyway.
    pub(super) ids: OnceLock<RequestIds>,
}

/// The ids of a request.
pub(super) struct RequestIds {
    correlation_id: CorrelationId,
    /// The client's own trace.
    trace: Option<Arc<ClientTrace>>,
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

    /// Returns the id that errors, events and log lines of this request carry: the client's own, or a new one.
    pub(super) fn correlation_id(&self) -> &CorrelationId {
        self.correlation_id_in(patch::find(self.params(), &["_meta"]))
    }

    /// Like `correlation_id`, with the request's `_meta`.
    pub(super) fn correlation_id_in(&self, meta: Option<&str>) -> &CorrelationId {
        &self.ids_in(meta).correlation_id
    }

    /// Returns the client's own trace, if it has named one.
    pub(super) fn trace(&self) -> Option<Arc<ClientTrace>> {
        self.trace_in(patch::find(self.params(), &["_meta"]))
    }

    /// Like `trace`, with the request's `_meta`.
    pub(super) fn trace_in(&self, meta: Option<&str>) -> Option<Arc<ClientTrace>> {
        self.ids_in(meta).trace.clone()
    }

    fn ids_in(&self, meta: Option<&str>) -> &RequestIds {
        self.ids.get_or_init(|| {
            let ClientIds { correlation_id, trace } = ClientIds::find(meta, self.trace_headers);
            let correlation_id = correlation_id.unwrap_or_else(next_correlation_id);
            RequestIds { correlation_id, trace: trace.map(Arc::new) }
        })
    }

    /// Returns the tool that a call names.
    pub(super) fn tool_name(&self) -> Result<String, ErrorReply> {
        let Some(params) = self.params else {
            return Err(ErrorReply::invalid_params("`tools/call` needs parameters: `name` is missing"));
        };
        let problem = match patch::find(params.get(), &["name"]) {
            None => "`name` is missing",
            Some(json) => match serde_json::from_str::<String>(json) {
                Ok(name) if !name.is_empty() => return Ok(name),
                Ok(_) => "`name` is empty",
                Err(_) => "`name` is not a string",
            },
        };
        Err(ErrorReply::invalid_params(format!("{problem}: `tools/call` needs the name of a tool")))
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
