//! The older transport: one stream carries every answer, and what is posted is only accepted.

use std::io;

use super::answer::Answer;
use super::connection::{After, STREAM};
use super::request::Request;
use super::server::Server;
use super::sse::Style;
use crate::line::Line;
use crate::message::Message;
use crate::perform::perform;
use crate::script::Script;
use crate::steps::{Ending, behaviour, kind, steps};

/// Does what a server of 2024 must.
pub(super) fn obey(
    server: &Server,
    script: &Script,
    endpoint: &str,
    request: &Request,
    out: &mut Answer,
) -> io::Result<After> {
    let wants_stream = request.header("accept").is_some_and(|accept| accept.contains("text/event-stream"));
    let is_message = request.path.starts_with("/messages");
    match request.method.as_str() {
        "GET" if request.path == "/mcp" && wants_stream => open(server, endpoint, request, out),
        "POST" if is_message && server.stream().is_some() => take(server, script, &request.body, out),
        _ if is_message => out.empty(404, &[]).map(|()| After::Next),
        _ => out.empty(405, &[("Allow", "GET")]).map(|()| After::Next),
    }
}

fn open(server: &Server, endpoint: &str, request: &Request, out: &mut Answer) -> io::Result<After> {
    let origin = format!("http://{}", request.header("host").unwrap_or_default());
    let endpoint = endpoint.replace("{origin}", &origin);
    out.start_chunks(&[STREAM])?;
    // Nobody else may use the stream before this is all written: the client's first message may come, and be answered,
    // as soon as it has read where to post.
    let mut stream = server.stream();
    stream.insert(out.again()?).chunk(&Line::from(format!("event: endpoint\ndata: {endpoint}\n\n")))?;
    Ok(After::Hold)
}

/// Accepts, and answers on the stream. The connection is given up, because the client is not to wait behind it.
fn take(server: &Server, script: &Script, body: &str, out: &mut Answer) -> io::Result<After> {
    let Some(message) = Message::parse(body) else {
        return out.empty(400, &[]).map(|()| After::Next);
    };
    out.body(202, &[("Connection", "close")], &Line::from("Accepted".to_owned()))?;
    if message.method().is_none() {
        server.asked.hear(&message, body);
    }
    let (Some(_), Some(_)) = (message.method(), message.id()) else { return Ok(After::Close) };
    let behaviour = behaviour(script, &message, server.turn(kind(&message)));
    let ending = perform(&steps(script, &message, &behaviour), &server.asked, &mut |line| {
        let mut event = Style::of(script).event(line, 1);
        event.head.insert_str(0, "event: message\n");
        server.stream().as_mut().map_or(Ok(()), |stream| stream.chunk(&event))
    })?;
    if let Ending::Exit(_) | Ending::Abort = ending {
        server.stream().take().iter().for_each(Answer::cut);
    }
    Ok(After::Close)
}
