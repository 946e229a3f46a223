//! One client on a pair of pipes: a message is a line.
//!
//! Everything that is said to it goes over one lane, in the order in which it was pushed; the lanes of single
//! requests, and the one for what is said unasked, lead onto that one.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tracing::{debug, warn};

use super::lane::Reader;
use super::{Host, Lane, Place};
use crate::envelope::one_line;
use crate::line::{Line, Lines};
use crate::scan::Unread;
use crate::{Id, Message, MessageError, RpcError, error_answer};

/// What open requests are given once the client has said its last word.
const LAST_ANSWERS_WITHIN: Duration = Duration::from_secs(5);
/// How long the client may take nothing of what is written to it.
const WRITE_WITHIN: Duration = Duration::from_secs(30);
/// Small messages that are there at the same time are written together, up to about this size.
const TOGETHER: usize = 64 << 10;

/// Serves one client until its input ends, it takes nothing any more, or `stop`.
///
/// `limit` is the longest message that is taken, and how much may be waiting to be written. When the input ends,
/// or at `stop`, open requests are given a moment to be answered; then the session is ended.
pub async fn serve_stdio<H: Host>(
    host: Arc<H>,
    place: Place,
    stdin: impl AsyncRead,
    stdout: impl AsyncWrite,
    limit: usize,
    stop: CancellationToken,
) {
    let lane = Lane::new(limit);
    let reader = lane.reader();
    let mut client = Client { host, place, lane: lane.clone(), limit, session: None };
    let reading = async {
        tokio::select! {
            read = client.read(stdin) => read.unwrap_or_else(|error| warn!(%error, "could not read stdin")),
            () = stop.cancelled() => {}
            () = lane.closed() => {}
        }
        if timeout(LAST_ANSWERS_WITHIN, lane.settled()).await.is_err() {
            debug!("open requests were given up");
        }
        lane.close();
    };
    let ((), written) = tokio::join!(reading, write(reader, stdout));
    if let Err(error) = written {
        debug!(%error, "could not write to stdout");
    }
    if let Some(session) = client.session {
        client.host.end(&client.place, &session);
    }
}

struct Client<H> {
    host: Arc<H>,
    place: Place,
    lane: Lane,
    limit: usize,
    session: Option<String>,
}

impl<H: Host> Client<H> {
    async fn read(&mut self, stdin: impl AsyncRead) -> io::Result<()> {
        let stdin = std::pin::pin!(stdin);
        let mut lines = Lines::new(stdin, self.limit);
        while let Some(line) = lines.next().await? {
            match line {
                Line::Whole(line) => self.take(line.trim_ascii()).await,
                Line::TooLong(unread) => self.refuse_length(unread),
            }
        }
        Ok(())
    }

    async fn take(&mut self, line: &[u8]) {
        match (Message::parse(line), &self.session) {
            (Err(error @ MessageError::NotJson(_)), _) => {
                self.refuse(Id::NULL, RpcError::PARSE_ERROR, &error.to_string());
            }
            (Err(error), _) => self.refuse(Id::NULL, RpcError::INVALID_REQUEST, &error.to_string()),
            (Ok(Message::Request { .. }), Some(session)) => {
                let session = session.clone();
                self.deliver(&session, line, self.lane.branch());
            }
            (Ok(_), Some(session)) => {
                let session = session.clone();
                self.deliver(&session, line, Lane::new(self.limit));
            }
            (Ok(Message::Request { method, .. }), None) if method == "initialize" => self.begin(line).await,
            (Ok(Message::Request { id, .. }), None) => {
                self.refuse(id, RpcError::INVALID_REQUEST, "there is no session; `initialize` comes first");
            }
            (Ok(_), None) => debug!(bytes = line.len(), "said before `initialize`, and not heard"),
        }
    }

    async fn begin(&mut self, line: &[u8]) {
        let begun = self.host.begin(self.place.clone(), line.to_vec(), self.lane.branch()).await;
        if let Some(unasked) = begun.as_ref().and_then(|session| self.host.listen(&self.place, session)) {
            unasked.lead_onto(&self.lane, false);
        }
        self.session = begun;
    }

    fn deliver(&mut self, session: &str, line: &[u8], lane: Lane) {
        if !self.host.deliver(&self.place, session, line.to_vec(), lane) {
            self.session = None;
            if let Ok(Message::Request { id, .. }) = Message::parse(line) {
                self.refuse(id, RpcError::INVALID_REQUEST, "the session has ended");
            }
        }
    }

    fn refuse_length(&self, unread: Unread) {
        let reason = format!("a message may have {} bytes, and this one had more", self.limit);
        match &unread {
            Unread::Theirs(Some(id)) => {
                self.refuse(Id::from_json(id).unwrap_or(Id::NULL), RpcError::INVALID_REQUEST, &reason);
            }
            Unread::Theirs(None) | Unread::AnswerTo(_) => warn!(limit = self.limit, "a message was too long"),
            Unread::Unknown => self.refuse(Id::NULL, RpcError::INVALID_REQUEST, &reason),
        }
    }

    fn refuse(&self, id: Id<'_>, code: i64, reason: &str) {
        self.lane.push(error_answer(id, code, reason));
    }
}

async fn write(reader: Reader, stdout: impl AsyncWrite) -> io::Result<()> {
    let mut stdout = std::pin::pin!(stdout);
    while let Some(frame) = reader.next().await {
        let mut lines = frame.bytes;
        one_line(&mut lines);
        lines.push(b'\n');
        while lines.len() < TOGETHER
            && let Some(mut frame) = reader.next_if_there()
        {
            one_line(&mut frame.bytes);
            lines.extend_from_slice(&frame.bytes);
            lines.push(b'\n');
        }
        let writing = async {
            stdout.write_all(&lines).await?;
            stdout.flush().await
        };
        timeout(WRITE_WITHIN, writing).await.map_err(|_| io::ErrorKind::TimedOut)??;
    }
    Ok(())
}
