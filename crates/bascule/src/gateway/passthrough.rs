//! One server under its own names: messages pass unchanged wherever they need not change.

use std::sync::Arc;

use bascule_mcp::{CallParams, Endpoint, RpcError, patch};
use bascule_model::{BridgeError, BridgeResult, CallRequest, ErrorCode, ServerName, ToolId};
use serde_json::value::RawValue;

use super::Gateway;
use super::client_request::ClientRequest;
use super::reply::{ErrorReply, Reply, call_failure, into_text};
use super::upstream_session::UpstreamSession;
use crate::call::{CallContext, ClientParams};
use crate::call_record::Caller;
use crate::client::ClientContext;
use crate::fleet::request::{ExtraMembers, UpstreamRequest};
use crate::logging_level::LoggingLevel;

impl Gateway {
    /// Returns the server's own `initialize` result, once the server has started.
    pub(super) async fn initialize_passthrough(&self, client: &Arc<ClientContext>, name: &str) -> Reply {
        let backend = self.upstream(client, name)?.ready_backend().await?;
        Ok(backend.info().raw.get().to_owned())
    }

    pub(super) async fn handle_passthrough(&self, request: &ClientRequest<'_>, name: &str) -> Reply {
        let upstream = self.upstream(request.client, name);
        match request.method {
            "tools/call" => self.call_tool(request, name, upstream, None).await,
            // Boxed: a task has room for its largest branch, and most requests are calls.
            _ => Box::pin(self.handle_passthrough_other(request, &upstream?)).await,
        }
    }

    async fn handle_passthrough_other(
        &self,
        request: &ClientRequest<'_>,
        upstream: &Arc<UpstreamSession>,
    ) -> Reply {
        match request.method {
            "tools/list" if upstream.hides_tools() => {
                upstream.ready_backend().await?;
                Ok(upstream.allowed_tools())
            }
            "logging/setLevel" => self.set_level(request, std::slice::from_ref(upstream)).await,
            "resources/subscribe" | "resources/unsubscribe" => {
                let uri = request.text("uri");
                self.subscribe(request, upstream, (&uri, &uri), request.params).await
            }
            "initialize" => {
                Err(ErrorReply::new(RpcError::INVALID_REQUEST, "this session is initialized already"))
            }
            _ => self.forward(request, upstream, request.params, request.extra_members).await,
        }
    }

    /// Makes a tool call through the pipeline, which also records a call without an upstream session. `tool` is the server's
    /// name for the tool, where the client has another one.
    pub(super) async fn call_tool(
        &self,
        request: &ClientRequest<'_>,
        server: &str,
        upstream: BridgeResult<Arc<UpstreamSession>>,
        tool: Option<&str>,
    ) -> Reply {
        let (params, parsed) = parse_call(request, tool).inspect_err(|error| {
            let tool = tool.map_or_else(|| request.text("name"), str::to_owned);
            self.record_invalid(request, server, &tool, error.message());
        })?;
        let name = tool.or(parsed.name.as_deref()).unwrap_or_default();
        let empty = || serde_json::from_str("{}").expect("an empty object is JSON");
        let arguments = parsed.arguments.map_or_else(empty, RawValue::to_owned);
        let call = CallRequest { tool: tool_id(server, &upstream, name)?, arguments, timeout: None };
        let context = CallContext {
            caller: Caller::of_client(request.client, request.trace_in(parsed.meta)),
            params: Some(ClientParams {
                json: params.get(),
                has_meta: parsed.meta.is_some(),
                is_renamed: tool.is_some(),
            }),
            progress: parsed.progress_token.map(|token| request.progress_sink(token)),
            server: Some(upstream.as_ref().map(|upstream| upstream.server.clone()).map_err(Clone::clone)),
            origin: request.origin(),
            extra_members: Some(request.extra_members),
            observer: None,
            retries_later: None,
        };
        let correlation_id = request.correlation_id_in(parsed.meta).clone();
        match self.bridge.call_with(call, context, Some(correlation_id)).await {
            Ok(outcome) => Ok(into_text(outcome.result.raw)),
            Err(error) => self.call_failed(request, upstream.ok().as_deref(), error),
        }
    }

    fn call_failed(
        &self,
        request: &ClientRequest<'_>,
        upstream: Option<&UpstreamSession>,
        error: Box<BridgeError>,
    ) -> Reply {
        let Some(upstream) = upstream else { return call_failure(with_shown_name(request, error)) };
        match error.code {
            ErrorCode::ToolNotFound => Err(self.unknown_tool(request, error)),
            _ => call_failure(with_shown_name(request, upstream.redacted(error))),
        }
    }

    /// Names the nearest tools as the client sees them.
    fn unknown_tool(&self, request: &ClientRequest<'_>, error: Box<BridgeError>) -> ErrorReply {
        let nearest = match &request.client.endpoint {
            Endpoint::Server(name) => {
                let own = error.nearest.iter().filter(|near| near.server() == name);
                own.map(|near| near.tool().to_owned()).collect()
            }
            Endpoint::All => self.shown_names(request.client, &error.nearest),
        };
        ErrorReply::unknown_tool(&request.text("name"), &nearest, Some(error))
    }

    /// Forwards any other request. Of its parameters only the progress token changes.
    pub(super) async fn forward(
        &self,
        request: &ClientRequest<'_>,
        upstream: &UpstreamSession,
        params: Option<&RawValue>,
        extra_members: &ExtraMembers,
    ) -> Reply {
        let (method, deadline) = (request.method, upstream.deadline());
        let in_flight = upstream.server.begin_request(method, request.origin());
        upstream.server.start_and_wait(deadline.next()).await;
        let token = params.and_then(|params| patch::find(params.get(), &["_meta", "progressToken"]));
        let progress = token.map(|token| request.progress_sink(token));
        let build_params = |id: u64| {
            let params = params?.get();
            Some(match token {
                Some(_) => patch::insert(params, &["_meta", "progressToken"], &id.to_string()),
                None => params.to_owned(),
            })
        };
        let (params, extra_members) = (&build_params, Some(extra_members));
        let upstream_request =
            UpstreamRequest { method, tool: None, params, progress, extra_members, meter: None };
        let is_idempotent = ["/list", "/read", "/get"].iter().any(|verb| method.ends_with(verb));
        let response = upstream.server.run(in_flight, &upstream_request, is_idempotent, &deadline).await;
        Ok(into_text(response.map_err(|error| upstream.redacted(error))?.raw))
    }

    /// Sets the client's log level. Each server is told the lowest level that one of its clients wants.
    pub(super) async fn set_level(
        &self,
        request: &ClientRequest<'_>,
        upstreams: &[Arc<UpstreamSession>],
    ) -> Reply {
        let level = LoggingLevel::parse(&request.text("level"))
            .ok_or_else(|| ErrorReply::invalid_params("`level` is no log level"))?;
        request.client.set_logging_level(level);
        for upstream in upstreams {
            // Many clients set the level first of all. A server that is not up yet is told when it is.
            if upstream.server.is_starting() || upstream.server.is_on_demand() {
                continue;
            }
            let lowest = upstream.logging_level().unwrap_or(level);
            let deadline = upstream.deadline();
            let (params, origin) = (lowest.to_params(), request.origin());
            let set = upstream.send_request("logging/setLevel", Some(&params), &origin, &deadline).await;
            // Of several servers, one without a log does not fail the request.
            if let (Err(error), 1) = (set, upstreams.len()) {
                return Err(upstream.redacted(error).into());
            }
        }
        Ok("{}".into())
    }

    /// Subscribes to a resource, or unsubscribes. The server is asked until it has confirmed a subscription, and after the
    /// last subscriber. `uri` is the server's, `shown` the client's.
    pub(super) async fn subscribe(
        &self,
        request: &ClientRequest<'_>,
        upstream: &UpstreamSession,
        (uri, shown): (&str, &str),
        params: Option<&RawValue>,
    ) -> Reply {
        let (client, name) = (request.client, upstream.server.settings.name.as_str());
        if request.method != "resources/subscribe" {
            client.unsubscribe(name, uri);
            return match upstream.has_subscriber(uri) {
                true => Ok("{}".into()),
                false => self.forward(request, upstream, params, &ExtraMembers::default()).await,
            };
        }
        let is_new = client.subscribe(name, uri, shown);
        // The subscription of another client that waits for the server proves nothing: the server may refuse it.
        let reply = match upstream.has_confirmed_subscriber(uri) {
            true => Ok("{}".into()),
            false => self.forward(request, upstream, params, &ExtraMembers::default()).await,
        };
        match &reply {
            Ok(_) => client.confirm_subscription(name, uri),
            Err(_) if is_new => client.unsubscribe(name, uri),
            Err(_) => {}
        }
        reply
    }
}

/// Returns the parameters of a call, as they are and parsed. They name a tool, unless `tool` does.
fn parse_call<'a>(
    request: &ClientRequest<'a>,
    tool: Option<&str>,
) -> Result<(&'a RawValue, CallParams<'a>), ErrorReply> {
    let Some(params) = request.params else {
        return Err(ErrorReply::invalid_params("`tools/call` needs parameters: `name` is missing"));
    };
    let parsed = CallParams::parse(params)
        .map_err(|error| ErrorReply::invalid_params(format!("the parameters are invalid: {error}")))?;
    if tool.or(parsed.name.as_deref()).is_none_or(str::is_empty) {
        request.tool_name()?;
        return Err(ErrorReply::invalid_params("`name` is missing"));
    }
    Ok((params, parsed))
}

/// Returns the id of a server's tool, also without an upstream session.
fn tool_id(
    server: &str,
    upstream: &BridgeResult<Arc<UpstreamSession>>,
    tool: &str,
) -> Result<ToolId, ErrorReply> {
    match upstream {
        Ok(upstream) => Ok(upstream.server.tool_id(tool)),
        Err(_) => ServerName::parse(server)
            .map(|server| ToolId::new(&server, tool))
            .map_err(|error| ErrorReply::invalid_params(error.to_string())),
    }
}

/// Names the tool in the message as the client called it. The normalised error keeps its id.
fn with_shown_name(request: &ClientRequest<'_>, mut error: Box<BridgeError>) -> Box<BridgeError> {
    if let Some(tool) = &error.tool {
        let (own, shown) = (format!("`{tool}`"), format!("`{}`", request.text("name")));
        error.message = error.message.replace(&own, &shown);
    }
    error
}

impl UpstreamSession {
    /// Returns true if the configuration filters the server's tools.
    fn hides_tools(&self) -> bool {
        let settings = &self.server.settings;
        settings.allowed_tools.is_some() || !settings.denied_tools.is_empty()
    }

    /// Returns a `tools/list` result of the tools that the filter allows, each as the server defined it.
    fn allowed_tools(&self) -> String {
        let tools = self.server.tools();
        let tools = tools.iter().flat_map(|tools| tools.tools());
        let definitions: Vec<&str> = tools.map(|tool| tool.definition().raw.get()).collect();
        format!(r#"{{"tools":[{}]}}"#, definitions.join(","))
    }
}
