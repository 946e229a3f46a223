//! What goes wrong below the protocol, and for which request.
//!
//! A port that refuses is no trouble of this kind: that is [`crate::ScriptedHttp::stop`].

use std::collections::VecDeque;
use std::time::Duration;

use super::request::Request;
use crate::message::Message;

/// How an HTTP server misbehaves over one request.
#[derive(Clone, Debug)]
pub enum Trouble {
    /// Answers with this, and never looks at the script.
    Answer {
        /// The status code.
        status: u16,
        /// Headers beside `Content-Length`.
        headers: Vec<(String, String)>,
        /// The body.
        body: String,
    },
    /// Promises a longer body than it sends, and closes.
    CutBody,
    /// Sends a JSON body in chunks and closes before the last one.
    CutChunks,
    /// Starts an SSE stream and closes before the answer.
    CutStream,
    /// Starts an SSE stream with this text and closes.
    Partial {
        /// What it says.
        text: String,
    },
    /// Starts an SSE stream with this text and goes on with `x` for as long as anybody reads.
    Endless {
        /// What it says first.
        text: String,
    },
    /// Ends an SSE stream properly, without an answer.
    EmptyStream,
    /// Accepts, and never answers.
    Silence,
    /// Answers with a body of so many bytes that is no JSON.
    Giant {
        /// The length of the body.
        bytes: usize,
    },
    /// Answers properly, but so many bytes at a time with a pause after each.
    Trickle {
        /// Bytes at a time.
        bytes: usize,
        /// The pause.
        every: Duration,
    },
    /// Answers properly, and closes without having said so: the next request may run into the closing.
    CloseAfter,
}

impl Trouble {
    /// An answer of this status with a body of plain text.
    pub fn status(status: u16, body: &str) -> Trouble {
        Trouble::answer(status, ("Content-Type", "text/plain"), body)
    }

    /// 301, 302, 307 or 308 to another place.
    pub fn redirect(status: u16, location: &str) -> Trouble {
        Trouble::answer(status, ("Location", location), "")
    }

    /// 200 with a page for people.
    pub fn html() -> Trouble {
        let page = "<!DOCTYPE html><html><body><h1>Welcome</h1></body></html>";
        Trouble::answer(200, ("Content-Type", "text/html; charset=utf-8"), page)
    }

    /// 401 with this challenge.
    pub fn unauthorised(challenge: &str) -> Trouble {
        Trouble::answer(401, ("WWW-Authenticate", challenge), "")
    }

    fn answer(status: u16, (name, value): (&str, &str), body: &str) -> Trouble {
        Trouble::Answer { status, headers: vec![(name.to_owned(), value.to_owned())], body: body.to_owned() }
    }
}

/// The troubles that are still to be made.
#[derive(Default)]
pub(super) struct Troubles {
    next: VecDeque<(String, Trouble)>,
    always: Vec<(String, Trouble)>,
}

impl Troubles {
    pub(super) fn next(&mut self, matching: &str, trouble: Trouble) {
        self.next.push_back((matching.to_owned(), trouble));
    }

    pub(super) fn always(&mut self, matching: &str, trouble: Trouble) {
        self.always.push((matching.to_owned(), trouble));
    }

    pub(super) fn clear(&mut self) {
        *self = Troubles::default();
    }

    /// The trouble for this request. One that was meant for a single request is used up.
    pub(super) fn take(&mut self, request: &Request) -> Option<Trouble> {
        let method = Message::parse(&request.body).and_then(|message| message.method());
        let matches = |(matching, _): &&(String, Trouble)| {
            matching == "*" || *matching == request.method || Some(matching) == method.as_ref()
        };
        match self.next.iter().position(|entry| matches(&entry)) {
            Some(at) => self.next.remove(at).map(|(_, trouble)| trouble),
            None => self.always.iter().find(matches).map(|(_, trouble)| trouble.clone()),
        }
    }
}
