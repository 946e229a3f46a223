//! The deprecated HTTP+SSE transport: one stream carries every response.

use std::io;

use super::connection::{AfterResponse, STREAM};
use super::request::RecordedRequest;
use super::response_writer::ResponseWriter;
use super::sse::SseStyle;
use super::state::HttpServerState;
use crate::message::ParsedMessage;
use crate::padded_text::PaddedText;
use crate::perform::perform;
use crate::script::Script;
use crate::steps::{Completion, behaviour, kind, steps};

pub(super) fn serve_request(
    server: &HttpServerState,
    script: &Script,
    endpoint: &str,
    request: &RecordedRequest,
    out: &mut ResponseWriter,
) -> io::Result<AfterResponse> {
    let wants_stream = request.header("accept").is_some_and(|accept| accept.contains("text/event-stream"));
    let is_message = request.path.starts_with("/messages");
    match request.method.as_str() {
        "GET" if request.path == "/mcp" && wants_stream => open_stream(server, endpoint, request, out),
        "POST" if is_message && server.stream().is_some() => accept(server, script, &request.body, out),
        _ if is_message => out.empty(404, &[]).map(|()| AfterResponse::Next),
        _ => out.empty(405, &[("Allow", "GET")]).map(|()| AfterResponse::Next),
    }
}

fn open_stream(
    server: &HttpServerState,
    endpoint: &str,
    request: &RecordedRequest,
    out: &mut ResponseWriter,
) -> io::Result<AfterResponse> {
    let origin = format!("http://{}", request.header("host").unwrap_or_default());
    let endpoint = endpoint.replace("{origin}", &origin);
    out.start_chunks(&[STREAM])?;
    // Locked until the event is written: the client's first message may follow at once and needs the stream, but its
    // response must not interleave with this event.
    let mut stream = server.stream();
    out.chunk(&PaddedText::from(format!("event: endpoint\ndata: {endpoint}\n\n")))?;
    *stream = Some(out.try_clone()?);
    Ok(AfterResponse::Hold)
}

/// Accepts the message and responds on the stream. Closes the connection, so that the client does not reuse it.
fn accept(
    server: &HttpServerState,
    script: &Script,
    body: &str,
    out: &mut ResponseWriter,
) -> io::Result<AfterResponse> {
    let Some(message) = ParsedMessage::parse(body) else {
        return out.empty(400, &[]).map(|()| AfterResponse::Next);
    };
    out.body(202, &[("Connection", "close")], &PaddedText::from("Accepted".to_owned()))?;
    if message.method().is_none() {
        server.client_requests.complete(&message, body);
    }
    let (Some(_), Some(_)) = (message.method(), message.id()) else { return Ok(AfterResponse::Close) };
    let behaviour = behaviour(script, &message, server.next_turn(kind(&message)));
    let completion = perform(&steps(script, &message, &behaviour), &server.client_requests, &mut |line| {
        let mut event = SseStyle::of(script).event(line, 1);
        event.head.insert_str(0, "event: message\n");
        server.stream().as_mut().map_or(Ok(()), |stream| stream.chunk(&event))
    })?;
    if let Completion::Exit(_) | Completion::Abort = completion {
        server.stream().take().iter().for_each(ResponseWriter::close);
    }
    Ok(AfterResponse::Close)
}
