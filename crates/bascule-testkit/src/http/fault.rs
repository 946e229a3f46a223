//! HTTP faults below the MCP protocol, and the requests that they apply to.
//!
//! For a port that refuses connections see [`crate::ScriptedHttp::stop`].

use std::collections::VecDeque;
use std::time::Duration;

use super::request::RecordedRequest;
use crate::message::ParsedMessage;

/// A fault in the response to one request.
#[derive(Clone, Debug)]
pub enum HttpFault {
    /// Sends this response instead of the scripted one.
    Response {
        status: u16,
        /// Headers in addition to `Content-Length`.
        headers: Vec<(String, String)>,
        body: String,
    },
    /// Announces a longer body than it sends, then closes the connection.
    CutBody,
    /// Sends a JSON body in chunks and closes the connection before the last one.
    CutChunks,
    /// Starts an SSE stream and closes the connection before the response.
    CutStream,
    /// Starts an SSE stream with this text and closes the connection.
    Partial { text: String },
    /// Starts an SSE stream with this text and sends `x` until the client disconnects.
    Endless { text: String },
    /// Ends an SSE stream properly without a response.
    EmptyStream,
    /// Reads the request and never responds.
    Silence,
    /// Responds with a body of `bytes` bytes that is not JSON.
    Giant { bytes: usize },
    /// Sends the scripted response `bytes` bytes at a time with a pause after each write.
    Trickle { bytes: usize, every: Duration },
    /// Sends the scripted response and closes the connection without `Connection: close`.
    CloseAfter,
}

impl HttpFault {
    /// Responds with this status and a plain text body.
    pub fn status(status: u16, body: &str) -> HttpFault {
        HttpFault::response(status, ("Content-Type", "text/plain"), body)
    }

    /// Redirects to `location`.
    pub fn redirect(status: u16, location: &str) -> HttpFault {
        HttpFault::response(status, ("Location", location), "")
    }

    /// Responds with 200 and an HTML page.
    pub fn html() -> HttpFault {
        let page = "<!DOCTYPE html><html><body><h1>Welcome</h1></body></html>";
        HttpFault::response(200, ("Content-Type", "text/html; charset=utf-8"), page)
    }

    /// Responds with 401 and this challenge.
    pub fn unauthorised(challenge: &str) -> HttpFault {
        HttpFault::response(401, ("WWW-Authenticate", challenge), "")
    }

    fn response(status: u16, (name, value): (&str, &str), body: &str) -> HttpFault {
        HttpFault::Response {
            status,
            headers: vec![(name.to_owned(), value.to_owned())],
            body: body.to_owned(),
        }
    }
}

/// The faults to apply.
#[derive(Default)]
pub(super) struct FaultQueue {
    next: VecDeque<(String, HttpFault)>,
    always: Vec<(String, HttpFault)>,
}

impl FaultQueue {
    pub(super) fn fail_next(&mut self, matching: &str, fault: HttpFault) {
        self.next.push_back((matching.to_owned(), fault));
    }

    pub(super) fn fail_always(&mut self, matching: &str, fault: HttpFault) {
        self.always.push((matching.to_owned(), fault));
    }

    /// Returns the fault for this request and removes it if it applies to one request only.
    pub(super) fn take(&mut self, request: &RecordedRequest) -> Option<HttpFault> {
        let method = ParsedMessage::parse(&request.body).and_then(|message| message.method());
        let matches = |(matching, _): &&(String, HttpFault)| {
            matching == "*" || *matching == request.method || Some(matching) == method.as_ref()
        };
        match self.next.iter().position(|entry| matches(&entry)) {
            Some(at) => self.next.remove(at).map(|(_, fault)| fault),
            None => self.always.iter().find(matches).map(|(_, fault)| fault.clone()),
        }
    }
}
