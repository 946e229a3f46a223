//! Serves one connection: request after request, each with trouble or as the script says.

use std::io::{self, BufReader, Read};
use std::net::{Shutdown, TcpStream};

use super::answer::Answer;
use super::request::Request;
use super::server::Server;
use super::sse::Style;
use super::trouble::Trouble;
use crate::behaviour::Behaviour;
use crate::line::Line;
use crate::message::Message;
use crate::perform::perform;
use crate::script::Script;
use crate::steps::{Ending, Step, behaviour, kind, steps};

const JSON: (&str, &str) = ("Content-Type", "application/json");
pub(super) const STREAM: (&str, &str) = ("Content-Type", "text/event-stream");

/// What becomes of a connection after a response.
pub(super) enum After {
    Next,
    Hold,
    Close,
}

/// Serves until either side has had enough.
pub(super) fn serve(server: &Server, connection: &TcpStream, number: u64) {
    // The client may be gone at any moment; there is nobody to tell.
    let _ = connection.set_nodelay(true).and_then(|()| converse(server, connection));
    let _ = connection.shutdown(Shutdown::Both);
    server.leave(number);
}

fn converse(server: &Server, connection: &TcpStream) -> io::Result<()> {
    let mut reader = BufReader::new(connection.try_clone()?);
    while let Some(request) = Request::read(&mut reader)? {
        let mut answer = Answer::to(connection.try_clone()?);
        server.record(&request);
        let trouble = server.troubles().take(&request);
        match respond(server, &request, trouble, &mut answer)? {
            After::Next => {}
            After::Close => return Ok(()),
            After::Hold => return reader.read_to_end(&mut Vec::new()).map(drop),
        }
    }
    Ok(())
}

fn respond(
    server: &Server,
    request: &Request,
    trouble: Option<Trouble>,
    out: &mut Answer,
) -> io::Result<After> {
    match trouble {
        None => obey(server, request, out),
        Some(Trouble::CloseAfter) => obey(server, request, out).map(|_| After::Close),
        Some(Trouble::Trickle { bytes, every }) => {
            out.pace = Some((bytes.max(1), every));
            obey(server, request, out)
        }
        Some(trouble) => misbehave(&trouble, out),
    }
}

fn misbehave(trouble: &Trouble, out: &mut Answer) -> io::Result<After> {
    match trouble {
        Trouble::Answer { status, headers, body } => {
            let headers: Vec<_> =
                headers.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
            out.body(*status, &headers, &Line::from(body.clone())).map(|()| After::Next)
        }
        Trouble::CutBody => out.cut_body().map(|()| After::Close),
        Trouble::CutChunks => begin(out, JSON, "{\"jsonrpc\":\"2.0\",").map(|()| After::Close),
        Trouble::CutStream => begin(out, STREAM, ": soon\n\n").map(|()| After::Close),
        Trouble::Partial { text } => begin(out, STREAM, text).map(|()| After::Close),
        Trouble::Endless { text } => {
            begin(out, STREAM, text)?;
            // Until the client has had enough.
            loop {
                out.chunk(&Line::of_length(64 << 10, String::new(), String::new()))?;
            }
        }
        Trouble::EmptyStream => {
            begin(out, STREAM, ": nothing\n\n")?;
            out.end_chunks().map(|()| After::Next)
        }
        Trouble::Giant { bytes } => {
            let body = Line::of_length(*bytes, String::new(), String::new());
            out.body(200, &[JSON], &body).map(|()| After::Next)
        }
        Trouble::Silence => Ok(After::Hold),
        Trouble::Trickle { .. } | Trouble::CloseAfter => unreachable!("these answer properly"),
    }
}

fn begin(out: &mut Answer, kind: (&str, &str), text: &str) -> io::Result<()> {
    out.start_chunks(&[kind])?;
    out.chunk(&Line::from(text.to_owned()))
}

/// Does what a server of Streamable HTTP must, and is strict about what a client must.
fn obey(server: &Server, request: &Request, out: &mut Answer) -> io::Result<After> {
    let script = server.script();
    if let Some(endpoint) = script.text("legacy") {
        return super::legacy::obey(server, &script, endpoint, request, out);
    }
    if let Some(status) = objection(&script, request) {
        return out.empty(status, &[("Allow", "POST, DELETE")]).map(|()| After::Next);
    }
    if request.method == "DELETE" {
        return out.empty(200, &[]).map(|()| After::Next);
    }
    if request.method == "GET" {
        return open_stream(server, &script, request, out);
    }
    let Some(message) = Message::parse(&request.body) else {
        return out.empty(400, &[]).map(|()| After::Next);
    };
    if message.method().is_none() {
        server.asked.hear(&message, &request.body);
    }
    match message.method().and(message.id()) {
        Some(_) => answer(server, &script, &message, out),
        None => out.empty(202, &[]).map(|()| After::Next),
    }
}

/// The status for a request that no careful server would accept.
fn objection(script: &Script, request: &Request) -> Option<u16> {
    let has = |header, part| request.header(header).is_some_and(|value| value.contains(part));
    match request.method.as_str() {
        _ if request.path != "/mcp" => Some(404),
        "GET" if !has("accept", "text/event-stream") => Some(406),
        "GET" => stranger(script, request),
        "DELETE" if script.has("session") => stranger(script, request),
        "POST" if request.header("content-length").is_none() => Some(411),
        "POST" if !has("content-type", "application/json") => Some(415),
        "POST" if !has("accept", "application/json") || !has("accept", "text/event-stream") => Some(406),
        "POST" if Message::parse(&request.body).is_some_and(|message| message.is("initialize")) => None,
        "POST" => stranger(script, request),
        _ => Some(405),
    }
}

/// The status for a request that is not of our session.
fn stranger(script: &Script, request: &Request) -> Option<u16> {
    match (script.text("session"), request.header("mcp-session-id")) {
        (Some(_), None) => Some(400),
        (ours, theirs) if ours != theirs => Some(404),
        _ => None,
    }
}

/// Continues a stream that was left, or else says what the script has for those who ask for nothing.
fn open_stream(server: &Server, script: &Script, request: &Request, out: &mut Answer) -> io::Result<After> {
    let id = request.header("last-event-id").unwrap_or_default();
    let number = id.parse().unwrap_or(0);
    if let Some(rest) = server.take_up(id) {
        return stream(server, script, &rest, &[STREAM], number, out).map(after);
    }
    let question = Message::parse(r#"{"id":"GET","method":"GET"}"#).expect("it is a message");
    let Some(behaviour) = script.behaviour("on", "GET", server.turn(kind(&question))) else {
        return out.empty(405, &[("Allow", "POST, DELETE")]).map(|()| After::Next);
    };
    let steps = steps(script, &question, &behaviour);
    stream(server, script, &steps, &[STREAM], number, out).map(after)
}

fn answer(server: &Server, script: &Script, request: &Message, out: &mut Answer) -> io::Result<After> {
    let behaviour = behaviour(script, request, server.turn(kind(request)));
    let steps = steps(script, request, &behaviour);
    let session =
        script.text("session").filter(|_| request.is("initialize")).map(|id| ("Mcp-Session-Id", id));
    let headers = |kind| session.into_iter().chain([kind]).collect::<Vec<_>>();
    let ending = match is_stream(script, &behaviour, &steps) {
        true => stream(server, script, &steps, &headers(STREAM), 0, out)?,
        false => body(server, &steps, &headers(JSON), out)?,
    };
    Ok(after(ending))
}

fn after(ending: Ending) -> After {
    match ending {
        Ending::Done => After::Next,
        Ending::Silence => After::Hold,
        Ending::Exit(_) | Ending::Abort => After::Close,
    }
}

/// A body has room for one message, so more than one makes a stream whatever was chosen.
fn is_stream(script: &Script, behaviour: &Behaviour, steps: &[Step]) -> bool {
    let says = |step: &&Step| matches!(step, Step::Say(_) | Step::Ask(_) | Step::Recount(_));
    let chosen = match behaviour.get("as").as_str() {
        Some(kind) => kind == "sse",
        None => script.has("sse"),
    };
    chosen || steps.iter().filter(says).count() > 1
}

fn body(server: &Server, steps: &[Step], headers: &[(&str, &str)], out: &mut Answer) -> io::Result<Ending> {
    perform(steps, &server.asked, &mut |line| out.body(200, headers, line))
}

/// Says it as a stream whose events are numbered on from `number`.
fn stream(
    server: &Server,
    script: &Script,
    steps: &[Step],
    headers: &[(&str, &str)],
    mut number: usize,
    out: &mut Answer,
) -> io::Result<Ending> {
    let style = Style::of(script);
    out.start_chunks(headers)?;
    out.chunk(&Line::from(style.opening().to_owned()))?;
    if let (0, Some(event)) = (number, style.priming(1)) {
        number = 1;
        out.chunk(&event)?;
    }
    let leave = steps.iter().position(|step| matches!(step, Step::Break { .. }));
    let now = &steps[..leave.unwrap_or(steps.len())];
    let mut ending = perform(now, &server.asked, &mut |line| {
        number += 1;
        out.chunk(&style.event(line, number))
    })?;
    if let Some(at) = leave {
        server.leave_stream(number.to_string(), steps[at + 1..].to_vec());
        ending = if steps[at] == (Step::Break { properly: true }) { Ending::Done } else { Ending::Abort };
    }
    if ending == Ending::Done {
        out.end_chunks()?;
    }
    Ok(ending)
}
