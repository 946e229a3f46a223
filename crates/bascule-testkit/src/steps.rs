//! Works out what a server does about one message, as a list of steps.
//!
//! Pure: carrying the steps out is `perform`'s business, and where the words go is the transport's.

use std::time::Duration;

use serde_json::{Value, json};

use crate::behaviour::Behaviour;
use crate::line::Line;
use crate::message::Message;
use crate::script::{Script, verbatim};

/// One thing a server does.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Step {
    Say(Line),
    Wait(Duration),
    /// Send the client a request and wait for its answer.
    Ask(Value),
    /// Answer this id with what the client said to all that was asked.
    Recount(String),
    /// Leave the stream, properly or not; the rest is for the one that continues it.
    Break {
        properly: bool,
    },
    End(Ending),
}

/// How a server leaves a request, where it does not simply go on.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Ending {
    /// All was said.
    Done,
    /// There is no answer, and never will be.
    Silence,
    Exit(i32),
    Abort,
}

/// What a server that behaves so does about a request. A notification has no id, and nothing is done.
pub(crate) fn steps(script: &Script, request: &Message, behaviour: &Behaviour) -> Vec<Step> {
    let Some(id) = request.id() else { return Vec::new() };
    let mut steps: Vec<Step> = behaviour.events().iter().flat_map(|event| before(event, request)).collect();
    let act = act(script, request, behaviour, id);
    if behaviour.get("twice") == true {
        steps.push(act.clone());
    }
    steps.push(act);
    steps
}

/// Under which name requests of one kind take turns.
pub(crate) fn kind(request: &Message) -> String {
    let method = request.method().unwrap_or_default();
    format!("{method} {}", request.tool().unwrap_or_default())
}

/// Which behaviour the script has for this request, the `turn`th of its kind.
pub(crate) fn behaviour(script: &Script, request: &Message, turn: usize) -> Behaviour {
    let method = request.method().unwrap_or_default();
    let tool = request.tool().filter(|_| method == "tools/call").unwrap_or_default();
    let default = || match script.lists_tool(&tool) {
        true => Behaviour::echo(),
        false => Behaviour::usual(),
    };
    let scripted = script.behaviour("calls", &tool, turn);
    scripted.or_else(|| script.behaviour("on", &method, turn)).unwrap_or_else(default)
}

fn before(event: &Value, request: &Message) -> Vec<Step> {
    if let Some(time) = event["wait"].as_u64() {
        return vec![Step::Wait(Duration::from_millis(time))];
    }
    if let Some(times) = event["progress"].as_u64() {
        return progress(request, times);
    }
    if let Some(how) = event["break"].as_str() {
        return vec![Step::Break { properly: how == "end" }];
    }
    match (event.get("say"), event.get("ask")) {
        (Some(line), _) => vec![say(verbatim(line))],
        (_, Some(request)) => vec![Step::Ask(request.clone())],
        _ => panic!("a script asks for the unknown event {event}"),
    }
}

fn progress(request: &Message, times: u64) -> Vec<Step> {
    let Some(token) = request.progress_token() else { return Vec::new() };
    let report = |n| {
        say(format!(
            r#"{{"jsonrpc":"2.0","method":"notifications/progress","params":{{"progressToken":{token},"progress":{n},"total":{times}}}}}"#
        ))
    };
    (1..=times).map(report).collect()
}

fn act(script: &Script, request: &Message, behaviour: &Behaviour, id: &str) -> Step {
    match behaviour.act() {
        "result" => result(id, &(verbatim(behaviour.get("result")) + &beside(behaviour))),
        "error" => error(id, &(verbatim(behaviour.get("error")) + &beside(behaviour))),
        "echo" => result(id, &echo(request.arguments())),
        "usual" => usual(script, request, id),
        "big" => Step::Say(big(behaviour, id)),
        "recount" => Step::Recount(id.to_owned()),
        "end" => Step::End(Ending::Done),
        "silence" => Step::End(Ending::Silence),
        "exit" => Step::End(Ending::Exit(behaviour.get("code").as_i64().unwrap_or(1) as i32)),
        "abort" => Step::End(Ending::Abort),
        unknown => panic!("a script asks for the unknown act `{unknown}`"),
    }
}

/// Members that follow the result, or the error.
fn beside(behaviour: &Behaviour) -> String {
    behaviour.get("beside").as_str().map(|members| format!(",{members}")).unwrap_or_default()
}

fn usual(script: &Script, request: &Message, id: &str) -> Step {
    match request.method().unwrap_or_default().as_str() {
        "initialize" => result(id, &introduction(script, request)),
        "ping" | "logging/setLevel" => result(id, "{}"),
        "tools/list" => result(id, &page(script, request.param("cursor"))),
        "tools/call" => refusal(id, -32602, "no such tool"),
        _ => refusal(id, -32601, "no such method"),
    }
}

fn introduction(script: &Script, request: &Message) -> String {
    let asked = request.param("protocolVersion");
    let version = script.text("version").map(str::to_owned).or(asked).unwrap_or_default();
    let info = script.json("serverInfo").unwrap_or(r#"{"name":"scripted","version":"1"}"#.to_owned());
    let capabilities = script.json("capabilities").unwrap_or(r#"{"tools":{"listChanged":true}}"#.to_owned());
    let instructions = script.text("instructions").map(|text| format!(r#","instructions":{}"#, json!(text)));
    format!(
        r#"{{"protocolVersion":{},"capabilities":{capabilities},"serverInfo":{info}{}}}"#,
        json!(version),
        instructions.unwrap_or_default()
    )
}

/// One page of the tool list. A cursor is the number of tools served so far.
fn page(script: &Script, cursor: Option<String>) -> String {
    let tools = script.list("tools");
    let start = cursor.and_then(|cursor| cursor.parse().ok()).unwrap_or(0);
    let size = script.number("pageSize").map_or(tools.len().max(1), |size| size.max(1) as usize);
    let end = start + size;
    let (shown, more) = match script.is("endless") {
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

fn big(behaviour: &Behaviour, id: &str) -> Line {
    let (early, late) = match behaviour.get("id").as_str() {
        Some("Before") => (format!(r#""id":{id},"#), String::new()),
        Some("After") => (String::new(), format!(r#","id":{id}"#)),
        _ => Default::default(),
    };
    let head = format!(r#"{{"jsonrpc":"2.0",{early}"result":{{"content":[{{"type":"text","text":""#);
    let tail = format!(r#""}}]}}{late}}}"#);
    Line::of_length(behaviour.get("bytes").as_u64().unwrap_or(0) as usize, head, tail)
}

fn result(id: &str, result: &str) -> Step {
    say(format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{result}}}"#))
}

fn refusal(id: &str, code: i32, message: &str) -> Step {
    error(id, &json!({"code": code, "message": message}).to_string())
}

fn error(id: &str, error: &str) -> Step {
    say(format!(r#"{{"jsonrpc":"2.0","id":{id},"error":{error}}}"#))
}

fn say(text: String) -> Step {
    Step::Say(Line::from(text))
}
