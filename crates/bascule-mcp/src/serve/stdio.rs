//! Serves one client on a pair of pipes, one message a line.
//!
//! One stream takes all messages to the client, in the order of their pushes. The streams of single requests, and the one
//! for messages that belong to no request, forward to it.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tracing::{debug, warn};

use super::response_stream::FrameReceiver;
use super::{ClientMessage, Endpoint, Host, ResponseStream};
use crate::envelope::replace_line_breaks;
use crate::line::{InputLine, LineReader};
use crate::scan::ScannedMessage;
use crate::{DEFAULT_MESSAGE_LIMIT, Id, Message, MessageError, RpcError, error_response};

/// The time that the client may take before it reads some of the bytes written to it.
const WRITE_TIMEOUT: Duration = Duration::from_secs(30);
/// Messages that are ready at the same time are written together, up to about this size.
const WRITE_BYTES: usize = 64 << 10;

/// An MCP server on a pair of pipes, and its limits.
#[derive(Debug, Clone)]
pub struct StdioServer {
    /// The largest accepted message.
    pub message_limit: usize,
    /// The bytes that may wait to be written, responses aside. While more than this waits, responses included, nothing is
    /// read: a client must read its responses before it can send more requests.
    pub stream_limit: usize,
    /// The time that requests in flight have when the input ends or the server stops.
    pub shutdown_grace: Duration,
}

impl Default for StdioServer {
    fn default() -> Self {
        Self {
            message_limit: DEFAULT_MESSAGE_LIMIT,
            stream_limit: 2 * DEFAULT_MESSAGE_LIMIT,
            shutdown_grace: Duration::from_secs(5),
        }
    }
}

impl StdioServer {
    /// Serves one client until its input ends, it stops reading, or `stop`. Then ends its session.
    ///
    /// A request whose stream is closed before it is finished gets no response, as MCP demands for cancelled requests.
    pub async fn serve<H: Host>(
        self,
        host: Arc<H>,
        endpoint: Endpoint,
        stdin: impl AsyncRead,
        stdout: impl AsyncWrite,
        stop: CancellationToken,
    ) {
        let stream = ResponseStream::new(self.stream_limit);
        let receiver = stream.receiver();
        let mut connection = StdioConnection {
            host,
            endpoint,
            stream: stream.clone(),
            limit: self.message_limit,
            session: None,
        };
        let reading = async {
            tokio::select! {
                read = connection.read(stdin) => read.unwrap_or_else(|error| warn!(%error, "could not read stdin")),
                () = stop.cancelled() => {}
                () = stream.closed() => {}
            }
            if timeout(self.shutdown_grace, stream.wait_for_branches()).await.is_err() {
                debug!("requests in flight were abandoned");
            }
            stream.close();
        };
        let ((), written) = tokio::join!(reading, write(receiver, stdout));
        match written {
            Err(error) if error.kind() == io::ErrorKind::TimedOut => {
                warn!("client disconnected: it does not read");
            }
            Err(error) => debug!(%error, "could not write to stdout"),
            Ok(()) if stream.has_overflowed() => {
                warn!(limit = self.stream_limit, "client disconnected: it reads too slowly");
            }
            Ok(()) => {}
        }
        if let Some(session) = connection.session {
            connection.host.end_session(&connection.endpoint, &session);
        }
    }
}

struct StdioConnection<H> {
    host: Arc<H>,
    endpoint: Endpoint,
    stream: ResponseStream,
    limit: usize,
    session: Option<String>,
}

impl<H: Host> StdioConnection<H> {
    async fn read(&mut self, stdin: impl AsyncRead) -> io::Result<()> {
        let stdin = std::pin::pin!(stdin);
        let mut lines = LineReader::new(stdin, self.limit);
        while let Some(line) = lines.next().await? {
            match line {
                InputLine::Whole(line) => self.handle_line(line.trim_ascii()).await,
                InputLine::TooLong(scanned) => self.refuse_too_long(scanned),
            }
            self.stream.wait_for_room().await;
        }
        Ok(())
    }

    async fn handle_line(&mut self, line: &[u8]) {
        let message = match ClientMessage::parse(line) {
            Ok(message) => message,
            Err(error @ MessageError::NotJson(_)) => {
                return self.refuse(Id::NULL, RpcError::PARSE_ERROR, &error.to_string());
            }
            Err(error) => return self.refuse(Id::NULL, RpcError::INVALID_REQUEST, &error.to_string()),
        };
        match (&message.message, self.client()) {
            (Message::Request { id, .. }, Some(client)) => {
                let stream = self.stream.branch(id.as_json());
                self.host.deliver(client, message, stream);
            }
            (_, Some(client)) => self.host.deliver(client, message, ResponseStream::new(self.limit)),
            (Message::Request { id, .. }, None) if self.session.is_some() => {
                self.refuse(*id, RpcError::INVALID_REQUEST, "the session has ended");
            }
            (Message::Request { id, method, .. }, None) if method == "initialize" => {
                self.initialize(*id, line).await;
            }
            (Message::Request { id, .. }, None) => {
                self.refuse(*id, RpcError::INVALID_REQUEST, "there is no session; send `initialize` first");
            }
            (_, None) => debug!(bytes = line.len(), "message ignored: there is no session"),
        }
    }

    /// Returns the client on this connection, as long as its session exists.
    fn client(&self) -> Option<Arc<H::Client>> {
        self.host.find_session(&self.endpoint, self.session.as_deref()?)
    }

    async fn initialize(&mut self, id: Id<'_>, line: &[u8]) {
        let stream = self.stream.branch(id.as_json());
        self.session = self.host.initialize(self.endpoint.clone(), line.to_vec(), stream).await;
        if let Some(client) = self.client() {
            self.host.open_stream(&client).forward_to(&self.stream);
        }
    }

    fn refuse_too_long(&self, scanned: ScannedMessage) {
        let reason = format!("the message is larger than the limit of {} bytes", self.limit);
        match &scanned {
            ScannedMessage::RequestOrNotification(Some(id)) => {
                self.refuse(Id::from_json(id).unwrap_or(Id::NULL), RpcError::INVALID_REQUEST, &reason);
            }
            ScannedMessage::RequestOrNotification(None) | ScannedMessage::ResponseTo(_) => {
                warn!(limit = self.limit, "message ignored: it is larger than the limit")
            }
            ScannedMessage::Unknown => self.refuse(Id::NULL, RpcError::INVALID_REQUEST, &reason),
        }
    }

    fn refuse(&self, id: Id<'_>, code: i64, reason: &str) {
        self.stream.branch(id.as_json()).finish(error_response(id, code, reason));
    }
}

async fn write(receiver: FrameReceiver, stdout: impl AsyncWrite) -> io::Result<()> {
    let mut stdout = std::pin::pin!(stdout);
    while let Some(frame) = receiver.next().await {
        let mut lines = frame.bytes;
        replace_line_breaks(&mut lines);
        lines.push(b'\n');
        while lines.len() < WRITE_BYTES
            && let Some(mut frame) = receiver.try_next()
        {
            replace_line_breaks(&mut frame.bytes);
            lines.extend_from_slice(&frame.bytes);
            lines.push(b'\n');
        }
        let writing = async {
            stdout.write_all(&lines).await?;
            stdout.flush().await
        };
        timeout(WRITE_TIMEOUT, writing).await.map_err(|_| io::ErrorKind::TimedOut)??;
    }
    Ok(())
}
