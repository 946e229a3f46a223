//! One server behind the bridge, under its own names: all passes that need not be changed.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use bascule_client::{notification, patch, with_more};
use bascule_mcp::Lane;
use bascule_model::{CallRequest, ToolId};
use serde_json::value::RawValue;
use tokio::time::Instant;

use super::Gateway;
use super::desk::Desk;
use super::session::Session;
use super::wire::{Level, Outcome, Refusal, failed_call, text_of};
use crate::call::Passage;
use crate::deadline::Deadline;
use crate::fleet::errand::{Beside, Errand, Hear};
use crate::fleet::server::was_given_up;

impl Gateway {
    /// The server's own answer to `initialize`, as soon as it has given one.
    pub(super) async fn begin_alone(&self, session: &Arc<Session>, name: &str) -> Outcome {
        let desk = self.desk(session, name)?;
        desk.server.first_start(Instant::now() + desk.server.settings.start_timeout).await;
        let line = desk.server.line().map_err(|error| desk.discreet(error))?;
        Ok(line.info().raw.get().to_owned())
    }

    pub(super) async fn answer_alone(
        &self,
        session: &Arc<Session>,
        name: &str,
        method: &str,
        params: Option<Box<RawValue>>,
        lane: &Lane,
        beside: &Arc<Beside>,
    ) -> Outcome {
        let desk = self.desk(session, name)?;
        match method {
            "tools/call" => self.call(session, &desk, params, None, lane, beside).await,
            "tools/list" if desk.hides_tools() => {
                desk.server.first_start(Instant::now() + desk.server.settings.start_timeout).await;
                desk.server.line().map_err(|error| desk.discreet(error))?;
                Ok(desk.permitted_tools())
            }
            "logging/setLevel" => self.set_level(session, &[desk], params.as_deref(), lane).await,
            "resources/subscribe" | "resources/unsubscribe" => {
                let uri = params.as_deref().and_then(|params| patch::text(params.get(), &["uri"]));
                let uri = uri.unwrap_or_default();
                self.subscribe(session, &desk, method, (&uri, &uri), params, lane).await
            }
            "initialize" => Err(Refusal::new(-32600, "this session has begun already")),
            // A server that is not particular about spelling would take it for a call that nobody has checked.
            _ if method.trim().eq_ignore_ascii_case("tools/call") => {
                Err(Refusal::new(Refusal::METHOD_NOT_FOUND, format!("nobody here knows `{method}`")))
            }
            _ => self.forward(session, &desk, method, params, lane, beside).await,
        }
    }

    /// A call, along the one road there is. `name` is the tool's own, where the client has another for it.
    pub(super) async fn call(
        &self,
        session: &Arc<Session>,
        desk: &Arc<Desk>,
        params: Option<Box<RawValue>>,
        name: Option<String>,
        lane: &Lane,
        beside: &Arc<Beside>,
    ) -> Outcome {
        let params =
            params.ok_or_else(|| Refusal::new(Refusal::INVALID_PARAMS, "`tools/call` needs parameters"))?;
        let [own, arguments, token] =
            patch::find_each(params.get(), [&["name"], &["arguments"], &["_meta", "progressToken"]]);
        let name = name.or_else(|| serde_json::from_str(own?).ok()).filter(|name| !name.is_empty());
        let name = name.ok_or_else(|| Refusal::new(Refusal::INVALID_PARAMS, "`name` is missing"))?;
        let arguments = RawValue::from_string(arguments.unwrap_or("{}").to_owned())
            .map_err(|error| Refusal::new(-32700, error.to_string()))?;
        let tool = ToolId::new(&desk.server.settings.name, &name);
        let request = CallRequest { tool, arguments, patience: None };
        let mut flight = desk.fly(session, lane, &name);
        let passage = Passage {
            hear: token.map(|token| hear(token, lane)),
            params: Some(params),
            server: Some(desk.server.clone()),
            sent: flight.sent.clone(),
            beside: beside.clone(),
        };
        let ended = self.bridge.carry(request, passage, None).await;
        flight.has_landed = !matches!(&ended, Err(error) if was_given_up(error));
        match ended {
            Ok(outcome) => Ok(text_of(outcome.result.raw)),
            Err(error) => failed_call(desk.discreet(error)),
        }
    }

    /// Any other request, as it is.
    pub(super) async fn forward(
        &self,
        session: &Arc<Session>,
        desk: &Arc<Desk>,
        method: &str,
        params: Option<Box<RawValue>>,
        lane: &Lane,
        beside: &Arc<Beside>,
    ) -> Outcome {
        let server = &desk.server;
        let begin = Instant::now();
        let deadline =
            Deadline::new(begin, None, server.settings.call_timeout, server.settings.limits.max_execution);
        server.first_start(deadline.next()).await;
        let mut flight = desk.fly(session, lane, method);
        let sent = flight.sent.clone();
        let token =
            params.as_deref().and_then(|params| patch::find(params.get(), &["_meta", "progressToken"]));
        let hear = token.map(|token| hear(token, lane));
        let spelled = |token: u64| {
            sent.store(token, Ordering::Release);
            let params = params.as_deref()?.get();
            Some(match &hear {
                Some(_) => patch::insert(params, &["_meta", "progressToken"], &token.to_string()),
                None => params.to_owned(),
            })
        };
        let errand =
            Errand { method, tool: None, params: &spelled, hear: hear.clone(), beside: Some(beside) };
        // What is neither a call nor a change may be asked twice.
        let harmless = method.ends_with("/list") || method.ends_with("/read") || method.ends_with("/get");
        let ended = server.run(&errand, harmless, &deadline).await;
        flight.has_landed = !matches!(&ended, Err(error) if was_given_up(error));
        Ok(text_of(ended.map_err(|error| desk.discreet(error))?.raw))
    }

    /// A level holds for one client; the server is told the lowest that anybody wants.
    pub(super) async fn set_level(
        &self,
        session: &Arc<Session>,
        desks: &[Arc<Desk>],
        params: Option<&RawValue>,
        lane: &Lane,
    ) -> Outcome {
        let level = params.and_then(|params| patch::text(params.get(), &["level"]));
        let level = level.as_deref().and_then(Level::parse);
        let level = level.ok_or_else(|| Refusal::new(Refusal::INVALID_PARAMS, "`level` is not a level"))?;
        session.set_level(level);
        for desk in desks {
            let lowest = desk.level().unwrap_or(level);
            let mut flight = desk.fly(session, lane, "logging/setLevel");
            let sent = flight.sent.clone();
            let spelled = |token| {
                sent.store(token, Ordering::Release);
                Some(lowest.spelled())
            };
            let errand =
                Errand { method: "logging/setLevel", tool: None, params: &spelled, hear: None, beside: None };
            let settings = &desk.server.settings;
            let deadline =
                Deadline::new(Instant::now(), None, settings.call_timeout, settings.limits.max_execution);
            // Many clients set it as the first thing they do.
            desk.server.first_start(deadline.next()).await;
            let ended = desk.server.run(&errand, true, &deadline).await;
            flight.has_landed = !matches!(&ended, Err(error) if was_given_up(error));
            match ended {
                // A server without a log has nothing to be set.
                Err(error) if desks.len() == 1 => return Err(desk.discreet(error).into()),
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
        desk: &Arc<Desk>,
        method: &str,
        (uri, shown): (&str, &str),
        params: Option<Box<RawValue>>,
        lane: &Lane,
    ) -> Outcome {
        let name = desk.server.settings.name.as_str();
        let before = desk.has_subscriber(uri);
        let is_new = session.subscribed(name, uri).is_none();
        match method == "resources/subscribe" {
            true => session.subscribe(name, uri, shown),
            false => session.unsubscribe(name, uri),
        }
        if before == desk.has_subscriber(uri) && before {
            return Ok("{}".into());
        }
        let done = self.forward(session, desk, method, params, lane, &Arc::default()).await;
        if done.is_err() && is_new {
            session.unsubscribe(name, uri);
        }
        done
    }
}

/// Reports of progress go back under the client's own token.
fn hear(token: &str, lane: &Lane) -> Hear {
    let (token, lane) = (token.to_owned(), lane.clone());
    Arc::new(move |params: &RawValue, more: Option<&str>| {
        let params = patch::insert(params.get(), &["progressToken"], &token);
        lane.push(with_more(notification("notifications/progress", Some(&params)), more));
    })
}

impl Desk {
    /// Whether the configuration keeps tools from being seen.
    fn hides_tools(&self) -> bool {
        let settings = &self.server.settings;
        settings.allowed.is_some() || !settings.denied.is_empty()
    }

    /// The tools that may be seen, each as the server defined it.
    fn permitted_tools(&self) -> String {
        let tools = self.server.tools();
        let tools = tools.iter().flat_map(|tools| tools.tools());
        let definitions: Vec<&str> = tools.map(|tool| tool.definition().raw.get()).collect();
        format!(r#"{{"tools":[{}]}}"#, definitions.join(","))
    }
}
