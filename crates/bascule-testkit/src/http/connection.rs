//! Serves the requests of one connection, as the script says or with a fault.

use std::io::{self, BufReader, Read};
use std::net::{Shutdown, TcpStream};

use super::fault::HttpFault;
use super::request::RecordedRequest;
use super::response_writer::ResponseWriter;
use super::sse::SseStyle;
use super::state::HttpServerState;
use crate::behaviour::Behaviour;
use crate::message::ParsedMessage;
use crate::padded_text::PaddedText;
use crate::perform::perform;
use crate::script::Script;
use crate::steps::{Completion, Step, behaviour, kind, steps};

const JSON: (&str, &str) = ("Content-Type", "application/json");
pub(super) const STREAM: (&str, &str) = ("Content-Type", "text/event-stream");

/// The state of a connection after a response.
pub(super) enum AfterResponse {
    Next,
    Hold,
    Close,
}

/// Serves until one side closes the connection.
pub(super) fn serve(server: &HttpServerState, connection: &TcpStream, number: u64) {
    // The client may disconnect at any time.
    let _ = connection.set_nodelay(true).and_then(|()| serve_requests(server, connection));
    let _ = connection.shutdown(Shutdown::Both);
    server.unregister(number);
}

fn serve_requests(server: &HttpServerState, connection: &TcpStream) -> io::Result<()> {
    let mut reader = BufReader::new(connection.try_clone()?);
    while let Some(request) = RecordedRequest::read(&mut reader)? {
        let mut out = ResponseWriter::new(connection.try_clone()?);
        server.record(&request);
        let fault = server.faults().take(&request);
        match respond(server, &request, fault, &mut out)? {
            AfterResponse::Next => {}
            AfterResponse::Close => return Ok(()),
            AfterResponse::Hold => return reader.read_to_end(&mut Vec::new()).map(drop),
        }
    }
    Ok(())
}

fn respond(
    server: &HttpServerState,
    request: &RecordedRequest,
    fault: Option<HttpFault>,
    out: &mut ResponseWriter,
) -> io::Result<AfterResponse> {
    match fault {
        None => serve_request(server, request, out),
        Some(HttpFault::CloseAfter) => serve_request(server, request, out).map(|_| AfterResponse::Close),
        Some(HttpFault::Trickle { bytes, every }) => {
            out.pace = Some((bytes.max(1), every));
            serve_request(server, request, out)
        }
        Some(fault) => apply_fault(&fault, out),
    }
}

fn apply_fault(fault: &HttpFault, out: &mut ResponseWriter) -> io::Result<AfterResponse> {
    match fault {
        HttpFault::Response { status, headers, body } => {
            let headers: Vec<_> =
                headers.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
            out.body(*status, &headers, &PaddedText::from(body.clone())).map(|()| AfterResponse::Next)
        }
        HttpFault::CutBody => out.cut_body().map(|()| AfterResponse::Close),
        HttpFault::CutChunks => {
            begin_chunks(out, JSON, "{\"jsonrpc\":\"2.0\",").map(|()| AfterResponse::Close)
        }
        HttpFault::CutStream => begin_chunks(out, STREAM, ": soon\n\n").map(|()| AfterResponse::Close),
        HttpFault::Partial { text } => begin_chunks(out, STREAM, text).map(|()| AfterResponse::Close),
        HttpFault::Endless { text } => {
            begin_chunks(out, STREAM, text)?;
            // Ends with an error when the client disconnects.
            loop {
                out.chunk(&PaddedText::with_length(64 << 10, String::new(), String::new()))?;
            }
        }
        HttpFault::EmptyStream => {
            begin_chunks(out, STREAM, ": nothing\n\n")?;
            out.end_chunks().map(|()| AfterResponse::Next)
        }
        HttpFault::Giant { bytes } => {
            let body = PaddedText::with_length(*bytes, String::new(), String::new());
            out.body(200, &[JSON], &body).map(|()| AfterResponse::Next)
        }
        HttpFault::Silence => Ok(AfterResponse::Hold),
        HttpFault::Trickle { .. } | HttpFault::CloseAfter => unreachable!("`respond` handles these faults"),
    }
}

fn begin_chunks(out: &mut ResponseWriter, kind: (&str, &str), text: &str) -> io::Result<()> {
    out.start_chunks(&[kind])?;
    out.chunk(&PaddedText::from(text.to_owned()))
}

/// Serves Streamable HTTP and rejects requests that the specification forbids.
fn serve_request(
    server: &HttpServerState,
    request: &RecordedRequest,
    out: &mut ResponseWriter,
) -> io::Result<AfterResponse> {
    let script = server.script();
    if let Some(endpoint) = script.text("legacy") {
        return super::legacy::serve_request(server, &script, endpoint, request, out);
    }
    if let Some(status) = rejection_status(&script, request) {
        return out.empty(status, &[("Allow", "POST, DELETE")]).map(|()| AfterResponse::Next);
    }
    if request.method == "DELETE" {
        return out.empty(200, &[]).map(|()| AfterResponse::Next);
    }
    if request.method == "GET" {
        return open_stream(server, &script, request, out);
    }
    let Some(message) = ParsedMessage::parse(&request.body) else {
        return out.empty(400, &[]).map(|()| AfterResponse::Next);
    };
    if message.method().is_none() {
        server.client_requests.complete(&message, &request.body);
    }
    match message.method().and(message.id()) {
        Some(_) => respond_to_message(server, &script, &message, out),
        None => out.empty(202, &[]).map(|()| AfterResponse::Next),
    }
}

/// Returns the status for a request that violates the specification.
fn rejection_status(script: &Script, request: &RecordedRequest) -> Option<u16> {
    let has = |header, part| request.header(header).is_some_and(|value| value.contains(part));
    match request.method.as_str() {
        _ if request.path != "/mcp" => Some(404),
        "GET" if !has("accept", "text/event-stream") => Some(406),
        "GET" => session_mismatch(script, request),
        "DELETE" if script.has("session") => session_mismatch(script, request),
        "POST" if request.header("content-length").is_none() => Some(411),
        "POST" if !has("content-type", "application/json") => Some(415),
        "POST" if !has("accept", "application/json") || !has("accept", "text/event-stream") => Some(406),
        "POST"
            if ParsedMessage::parse(&request.body)
                .is_some_and(|message| message.has_method("initialize")) =>
        {
            None
        }
        "POST" => session_mismatch(script, request),
        _ => Some(405),
    }
}

/// Returns the status for a request with a missing or wrong session id.
fn session_mismatch(script: &Script, request: &RecordedRequest) -> Option<u16> {
    match (script.text("session"), request.header("mcp-session-id")) {
        (Some(_), None) => Some(400),
        (expected, actual) if expected != actual => Some(404),
        _ => None,
    }
}

/// Resumes a suspended stream, or opens the stream for server messages.
fn open_stream(
    server: &HttpServerState,
    script: &Script,
    request: &RecordedRequest,
    out: &mut ResponseWriter,
) -> io::Result<AfterResponse> {
    let id = request.header("last-event-id").unwrap_or_default();
    let number = id.parse().unwrap_or(0);
    if let Some(rest) = server.resume_stream(id) {
        return stream(server, script, &rest, &[STREAM], number, out).map(after_response);
    }
    let get = ParsedMessage::parse(r#"{"id":"GET","method":"GET"}"#).expect("the text is a message");
    let Some(behaviour) = script.behaviour("on", "GET", server.next_turn(kind(&get))) else {
        return out.empty(405, &[("Allow", "POST, DELETE")]).map(|()| AfterResponse::Next);
    };
    let steps = steps(script, &get, &behaviour);
    stream(server, script, &steps, &[STREAM], number, out).map(after_response)
}

fn respond_to_message(
    server: &HttpServerState,
    script: &Script,
    request: &ParsedMessage,
    out: &mut ResponseWriter,
) -> io::Result<AfterResponse> {
    let behaviour = behaviour(script, request, server.next_turn(kind(request)));
    let steps = steps(script, request, &behaviour);
    let session =
        script.text("session").filter(|_| request.has_method("initialize")).map(|id| ("Mcp-Session-Id", id));
    let headers = |kind| session.into_iter().chain([kind]).collect::<Vec<_>>();
    let completion = match is_stream(script, &behaviour, &steps) {
        true => stream(server, script, &steps, &headers(STREAM), 0, out)?,
        false => body(server, &steps, &headers(JSON), out)?,
    };
    Ok(after_response(completion))
}

fn after_response(completion: Completion) -> AfterResponse {
    match completion {
        Completion::Done => AfterResponse::Next,
        Completion::Silence => AfterResponse::Hold,
        Completion::Exit(_) | Completion::Abort => AfterResponse::Close,
    }
}

/// More than one message needs a stream.
fn is_stream(script: &Script, behaviour: &Behaviour, steps: &[Step]) -> bool {
    let sends = |step: &&Step| matches!(step, Step::Send(_) | Step::Request(_) | Step::RespondWithAnswers(_));
    let chosen = match behaviour.get("as").as_str() {
        Some(kind) => kind == "sse",
        None => script.has("sse"),
    };
    chosen || steps.iter().filter(sends).count() > 1
}

fn body(
    server: &HttpServerState,
    steps: &[Step],
    headers: &[(&str, &str)],
    out: &mut ResponseWriter,
) -> io::Result<Completion> {
    perform(steps, &server.client_requests, &mut |line| out.body(200, headers, line))
}

/// Responds with a stream whose event ids follow `number`.
fn stream(
    server: &HttpServerState,
    script: &Script,
    steps: &[Step],
    headers: &[(&str, &str)],
    mut number: usize,
    out: &mut ResponseWriter,
) -> io::Result<Completion> {
    let style = SseStyle::of(script);
    out.start_chunks(headers)?;
    out.chunk(&PaddedText::from(style.opening().to_owned()))?;
    if let (0, Some(event)) = (number, style.priming(1)) {
        number = 1;
        out.chunk(&event)?;
    }
    let suspension = steps.iter().position(|step| matches!(step, Step::Break { .. }));
    let sent = &steps[..suspension.unwrap_or(steps.len())];
    let mut completion = perform(sent, &server.client_requests, &mut |line| {
        number += 1;
        out.chunk(&style.event(line, number))
    })?;
    if let Some(at) = suspension {
        server.suspend_stream(number.to_string(), steps[at + 1..].to_vec());
        completion =
            if steps[at] == (Step::Break { properly: true }) { Completion::Done } else { Completion::Abort };
    }
    if completion == Completion::Done {
        out.end_chunks()?;
    }
    Ok(completion)
}
