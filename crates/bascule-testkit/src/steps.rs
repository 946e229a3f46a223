//! Derives the steps of a scripted server for one message.
//!
//! Pure: `perform` executes the steps.

use std::time::Duration;

use serde_json::{Value, json};

use crate::behaviour::Behaviour;
use crate::message::ParsedMessage;
use crate::padded_text::PaddedText;
use crate::script::{Script, verbatim};

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Step {
    Send(PaddedText),
    Wait(Duration),
    /// Sends the client a request and waits for its response.
    Request(Value),
    /// Responds to this id with the client's responses to all requests.
    RespondWithAnswers(String),
    /// Suspends the stream; the remaining steps follow when the client resumes it.
    Break {
        properly: bool,
    },
    End(Completion),
}

/// The state of a request after its steps.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Completion {
    Done,
    /// The request never gets a response.
    Silence,
    Exit(i32),
    Abort,
}

/// Returns the steps for a request. A notification has none.
pub(crate) fn steps(script: &Script, request: &ParsedMessage, behaviour: &Behaviour) -> Vec<Step> {
    let Some(id) = request.id() else { return Vec::new() };
    let mut steps: Vec<Step> =
        behaviour.events().iter().flat_map(|event| preliminary_steps(event, request)).collect();
    let action = action(script, request, behaviour, id);
    if behaviour.get("twice") == true {
        steps.push(action.clone());
    }
    steps.push(action);
    steps
}

/// Returns the key under which requests of one kind are counted.
pub(crate) fn kind(request: &ParsedMessage) -> String {
    let method = request.method().unwrap_or_default();
    format!("{method} {}", request.tool_name().unwrap_or_default())
}

/// Returns the behaviour for this request, the `turn`th of its kind.
pub(crate) fn behaviour(script: &Script, request: &ParsedMessage, turn: usize) -> Behaviour {
    let method = request.method().unwrap_or_default();
    let tool = request.tool_name().filter(|_| method == "tools/call").unwrap_or_default();
    let default = || match script.lists_tool(&tool) {
        true => Behaviour::echo(),
        false => Behaviour::usual(),
    };
    let scripted = script.behaviour("calls", &tool, turn);
    scripted.or_else(|| script.behaviour("on", &method, turn)).unwrap_or_else(default)
}

fn preliminary_steps(event: &Value, request: &ParsedMessage) -> Vec<Step> {
    if let Some(time) = event["wait"].as_u64() {
        return vec![Step::Wait(Duration::from_millis(time))];
    }
    if let Some(times) = event["progress"].as_u64() {
        return progress(request, times);
    }
    if let Some(how) = event["break"].as_str() {
        return vec![Step::Break { properly: how == "end" }];
    }
    match (event.get("send"), event.get("request")) {
        (Some(line), _) => vec![send(verbatim(line))],
        (_, Some(request)) => vec![Step::Request(request.clone())],
        _ => panic!("unknown event in a script: {event}"),
    }
}

fn progress(request: &ParsedMessage, times: u64) -> Vec<Step> {
    let Some(token) = request.progress_token() else { return Vec::new() };
    let report = |n| {
        send(format!(
            r#"{{"jsonrpc":"2.0","method":"notifications/progress","params":{{"progressToken":{token},"progress":{n},"total":{times}}}}}"#
        ))
    };
    (1..=times).map(report).collect()
}

fn action(script: &Script, request: &ParsedMessage, behaviour: &Behaviour, id: &str) -> Step {
    match behaviour.action() {
        "result" => result(id, &(verbatim(behaviour.get("result")) + &extra_members(behaviour))),
        "error" => error(id, &(verbatim(behaviour.get("error")) + &extra_members(behaviour))),
        "echo" => result(id, &echo(request.arguments())),
        "usual" => usual(script, request, id),
        "big" => Step::Send(big(behaviour, id)),
        "respond_with_answers" => Step::RespondWithAnswers(id.to_owned()),
        "end" => Step::End(Completion::Done),
        "silence" => Step::End(Completion::Silence),
        "exit" => Step::End(Completion::Exit(behaviour.get("code").as_i64().unwrap_or(1) as i32)),
        "abort" => Step::End(Completion::Abort),
        unknown => panic!("unknown action in a script: `{unknown}`"),
    }
}

/// Returns the members after the result or error.
fn extra_members(behaviour: &Behaviour) -> String {
    behaviour.get("members").as_str().map(|members| format!(",{members}")).unwrap_or_default()
}

fn usual(script: &Script, request: &ParsedMessage, id: &str) -> Step {
    match request.method().unwrap_or_default().as_str() {
        "initialize" => result(id, &initialize_result(script, request)),
        "ping" | "logging/setLevel" => result(id, "{}"),
        "tools/list" => result(id, &page(script, request.string_param("cursor"))),
        "tools/call" => rpc_error(id, -32602, "no such tool"),
        _ => rpc_error(id, -32601, "no such method"),
    }
}

fn initialize_result(script: &Script, request: &ParsedMessage) -> String {
    let requested = request.string_param("protocolVersion");
    let version = script.text("version").map(str::to_owned).or(requested).unwrap_or_default();
    let info = script.json("serverInfo").unwrap_or(r#"{"name":"scripted","version":"1"}"#.to_owned());
    let capabilities = script.json("capabilities").unwrap_or(r#"{"tools":{"listChanged":true}}"#.to_owned());
    let instructions = script.text("instructions").map(|text| format!(r#","instructions":{}"#, json!(text)));
    format!(
        r#"{{"protocolVersion":{},"capabilities":{capabilities},"serverInfo":{info}{}}}"#,
        json!(version),
        instructions.unwrap_or_default()
    )
}

/// Returns one page of the tool list. A cursor is the number of earlier tools.
fn page(script: &Script, cursor: Option<String>) -> String {
    let tools = script.list("tools");
    let start = cursor.and_then(|cursor| cursor.parse().ok()).unwrap_or(0);
    let size = script.number("pageSize").map_or(tools.len().max(1), |size| size.max(1) as usize);
    let end = start + size;
    let (shown, more) = match script.is_set("endless") {
        true => (tools.iter().cycle().skip(start % tools.len().max(1)).take(size).collect::<Vec<_>>(), true),
        false => (tools.iter().skip(start).take(size).collect(), end < tools.len()),
    };
    let shown: Vec<&str> = shown.into_iter().map(String::as_str).collect();
    let next = if more { format!(r#","nextCursor":"{end}""#) } else { String::new() };
    format!(r#"{{"tools":[{}]{next}}}"#, shown.join(","))
}

fn echo(arguments: &str) -> String {
    let text = Value::from(arguments);
    format!(
        r#"{{"content":[{{"type":"text","text":{text}}}],"structuredContent":{arguments},"isError":false}}"#
    )
}

fn big(behaviour: &Behaviour, id: &str) -> PaddedText {
    let (early, late) = match behaviour.get("id").as_str() {
        Some("Before") => (format!(r#""id":{id},"#), String::new()),
        Some("After") => (String::new(), format!(r#","id":{id}"#)),
        _ => Default::default(),
    };
    let head = format!(r#"{{"jsonrpc":"2.0",{early}"result":{{"content":[{{"type":"text","text":""#);
    let tail = format!(r#""}}]}}{late}}}"#);
    PaddedText::with_length(behaviour.get("bytes").as_u64().unwrap_or(0) as usize, head, tail)
}

fn result(id: &str, result: &str) -> Step {
    send(format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{result}}}"#))
}

fn rpc_error(id: &str, code: i32, message: &str) -> Step {
    error(id, &json!({"code": code, "message": message}).to_string())
}

fn error(id: &str, error: &str) -> Step {
    send(format!(r#"{{"jsonrpc":"2.0","id":{id},"error":{error}}}"#))
}

fn send(text: String) -> Step {
    Step::Send(PaddedText::from(text))
}
