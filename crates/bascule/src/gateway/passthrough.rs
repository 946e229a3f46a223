//! One server behind the bridge, under its own names: all passes that need not be changed.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use bascule_mcp::ResponseStream;
use bascule_mcp::{notification, patch, with_extras};
use bascule_model::{CallRequest, ToolId};
use serde_json::value::RawValue;
use tokio::time::Instant;

use super::Gateway;
use super::reply::{ErrorReply, Level, Reply, failed_call, text_of};
use super::session::Session;
use super::upstream_session::UpstreamSession;
use crate::call::CallContext;
use crate::deadline::Deadline;
use crate::fleet::request::{ExtraMembers, ProgressSink, UpstreamRequest};
use crate::fleet::server::was_given_up;

impl Gateway {
    /// The server's own answer to `initialize`, as soon as it has given one.
    pub(super) async fn initialize_passthrough(&self, session: &Arc<Session>, name: &str) -> Reply {
        let upstream = self.upstream(session, name)?;
        upstream.server.first_start(Instant::now() + upstream.server.settings.start_timeout).await;
        let backend = upstream.server.backend().map_err(|error| upstream.discreet(error))?;
        Ok(backend.info().raw.get().to_owned())
    }

    pub(super) async fn answer_passthrough(
        &self,
        session: &Arc<Session>,
        name: &str,
        method: &str,
        params: Option<Box<RawValue>>,
        stream: &ResponseStream,
        extra: &Arc<ExtraMembers>,
    ) -> Reply {
        let upstream = self.upstream(session, name)?;
        match method {
            "tools/call" => self.call(session, &upstream, params, None, stream, extra).await,
            "tools/list" if upstream.hides_tools() => {
                upstream.server.first_start(Instant::now() + upstream.server.settings.start_timeout).await;
                upstream.server.backend().map_err(|error| upstream.discreet(error))?;
                Ok(upstream.permitted_tools())
            }
            "logging/setLevel" => self.set_level(session, &[upstream], params.as_deref(), stream).await,
            "resources/subscribe" | "resources/unsubscribe" => {
                let uri = params.as_deref().and_then(|params| patch::find_string(params.get(), &["uri"]));
                let uri = uri.unwrap_or_default();
                self.subscribe(session, &upstream, method, (&uri, &uri), params, stream).await
            }
            "initialize" => Err(ErrorReply::new(-32600, "this session has begun already")),
            // A server that is not particular about spelling would take it for a call that nobody has checked.
            _ if method.trim().eq_ignore_ascii_case("tools/call") => {
                Err(ErrorReply::new(ErrorReply::METHOD_NOT_FOUND, format!("nobody here knows `{method}`")))
            }
            _ => self.forward(session, &upstream, method, params, stream, extra).await,
        }
    }

    /// A call, along the one road there is. `name` is the tool's own, where the client has another for it.
    pub(super) async fn call(
        &self,
        session: &Arc<Session>,
        upstream: &Arc<UpstreamSession>,
        params: Option<Box<RawValue>>,
        name: Option<String>,
        stream: &ResponseStream,
        extra: &Arc<ExtraMembers>,
    ) -> Reply {
        let params = params
            .ok_or_else(|| ErrorReply::new(ErrorReply::INVALID_PARAMS, "`tools/call` needs parameters"))?;
        let [own, arguments, token] =
            patch::find_many(params.get(), [&["name"], &["arguments"], &["_meta", "progressToken"]]);
        let name = name.or_else(|| serde_json::from_str(own?).ok()).filter(|name| !name.is_empty());
        let name = name.ok_or_else(|| ErrorReply::new(ErrorReply::INVALID_PARAMS, "`name` is missing"))?;
        let arguments = RawValue::from_string(arguments.unwrap_or("{}").to_owned())
            .map_err(|error| ErrorReply::new(-32700, error.to_string()))?;
        let tool = ToolId::new(&upstream.server.settings.name, &name);
        let request = CallRequest { tool, arguments, timeout: None };
        let mut flight = upstream.fly(session, stream, &name);
        let context = CallContext {
            progress: token.map(|token| hear(token, stream)),
            params: Some(params),
            server: Some(upstream.server.clone()),
            sent: flight.sent.clone(),
            extra: extra.clone(),
        };
        let ended = self.bridge.call_with(request, context, None).await;
        flight.has_landed = !matches!(&ended, Err(error) if was_given_up(error));
        match ended {
            Ok(outcome) => Ok(text_of(outcome.result.raw)),
            Err(error) => failed_call(upstream.discreet(error)),
        }
    }

    /// Any other request, as it is.
    pub(super) async fn forward(
        &self,
        session: &Arc<Session>,
        upstream: &Arc<UpstreamSession>,
        method: &str,
        params: Option<Box<RawValue>>,
        stream: &ResponseStream,
        extra: &Arc<ExtraMembers>,
    ) -> Reply {
        let server = &upstream.server;
        let begin = Instant::now();
        let deadline =
            Deadline::new(begin, None, server.settings.call_timeout, server.settings.limits.max_execution);
        server.first_start(deadline.next()).await;
        let mut flight = upstream.fly(session, stream, method);
        let sent = flight.sent.clone();
        let token =
            params.as_deref().and_then(|params| patch::find(params.get(), &["_meta", "progressToken"]));
        let hear = token.map(|token| hear(token, stream));
        let spelled = |token: u64| {
            sent.store(token, Ordering::Release);
            let params = params.as_deref()?.get();
            Some(match &hear {
                Some(_) => patch::insert(params, &["_meta", "progressToken"], &token.to_string()),
                None => params.to_owned(),
            })
        };
        let errand = UpstreamRequest {
            method,
            tool: None,
            params: &spelled,
            progress: hear.clone(),
            extra: Some(extra),
        };
        // What is neither a call nor a change may be asked twice.
        let harmless = method.ends_with("/list") || method.ends_with("/read") || method.ends_with("/get");
        let ended = server.run(&errand, harmless, &deadline).await;
        flight.has_landed = !matches!(&ended, Err(error) if was_given_up(error));
        Ok(text_of(ended.map_err(|error| upstream.discreet(error))?.raw))
    }

    /// A level holds for one client; the server is told the lowest that anybody wants.
    pub(super) async fn set_level(
        &self,
        session: &Arc<Session>,
        upstreams: &[Arc<UpstreamSession>],
        params: Option<&RawValue>,
        stream: &ResponseStream,
    ) -> Reply {
        let level = params.and_then(|params| patch::find_string(params.get(), &["level"]));
        let level = level.as_deref().and_then(Level::parse);
        let level =
            level.ok_or_else(|| ErrorReply::new(ErrorReply::INVALID_PARAMS, "`level` is not a level"))?;
        session.set_level(level);
        for upstream in upstreams {
            let lowest = upstream.level().unwrap_or(level);
            let mut flight = upstream.fly(session, stream, "logging/setLevel");
            let sent = flight.sent.clone();
            let spelled = |token| {
                sent.store(token, Ordering::Release);
                Some(lowest.spelled())
            };
            let errand = UpstreamRequest {
                method: "logging/setLevel",
                tool: None,
                params: &spelled,
                progress: None,
                extra: None,
            };
            let settings = &upstream.server.settings;
            let deadline =
                Deadline::new(Instant::now(), None, settings.call_timeout, settings.limits.max_execution);
            // Many clients set it as the first thing they do.
            upstream.server.first_start(deadline.next()).await;
            let ended = upstream.server.run(&errand, true, &deadline).await;
            flight.has_landed = !matches!(&ended, Err(error) if was_given_up(error));
            match ended {
                // A server without a log has nothing to be set.
                Err(error) if upstreams.len() == 1 => return Err(upstream.discreet(error).into()),
                _ => {}
            }
        }
        Ok("{}".into())
    }

    /// The server is asked when the first client subscribes, and when the last one no longer does. A resource has the
    /// server's URI, and one by which the client calls it.
    pub(super) async fn subscribe(
        &self,
        session: &Arc<Session>,
        upstream: &Arc<UpstreamSession>,
        method: &str,
        (uri, shown): (&str, &str),
        params: Option<Box<RawValue>>,
        stream: &ResponseStream,
    ) -> Reply {
        let name = upstream.server.settings.name.as_str();
        let before = upstream.has_subscriber(uri);
        let is_new = session.subscribed(name, uri).is_none();
        match method == "resources/subscribe" {
            true => session.subscribe(name, uri, shown),
            false => session.unsubscribe(name, uri),
        }
        if before == upstream.has_subscriber(uri) && before {
            return Ok("{}".into());
        }
        let done = self.forward(session, upstream, method, params, stream, &Arc::default()).await;
        if done.is_err() && is_new {
            session.unsubscribe(name, uri);
        }
        done
    }
}

/// Reports of progress go back under the client's own token.
fn hear(token: &str, stream: &ResponseStream) -> ProgressSink {
    let (token, stream) = (token.to_owned(), stream.clone());
    Arc::new(move |params: &RawValue, more: Option<&str>| {
        let params = patch::insert(params.get(), &["progressToken"], &token);
        stream.push(with_extras(notification("notifications/progress", Some(&params)), more));
    })
}

impl UpstreamSession {
    /// Whether the configuration keeps tools from being seen.
    fn hides_tools(&self) -> bool {
        let settings = &self.server.settings;
        settings.allowed_tools.is_some() || !settings.denied_tools.is_empty()
    }

    /// The tools that may be seen, each as the server defined it.
    fn permitted_tools(&self) -> String {
        let tools = self.server.tools();
        let tools = tools.iter().flat_map(|tools| tools.tools());
        let definitions: Vec<&str> = tools.map(|tool| tool.definition().raw.get()).collect();
        format!(r#"{{"tools":[{}]}}"#, definitions.join(","))
    }
}
