//! Serves one client on a pair of pipes, one message a line.
//!
//! One stream takes all messages to the client, in the order of their pushes. The streams of single requests, and the one
//! for messages that belong to no request, forward to it.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tracing::{debug, warn};

use super::response_stream::FrameReceiver;
use super::{ClientMessage, Endpoint, Host, PeerId, ResponseStream};
use crate::envelope::replace_line_breaks;
use crate::line::{InputLine, LineReader};
use crate::scan::ScannedMessage;
use crate::{
    DEFAULT_MESSAGE_LIMIT, Id, Message, MessageError, RpcError, error_response, is_large, run_large,
};

/// The time that the client may take before it reads some of the bytes written to it.
const WRITE_TIMEOUT: Duration = Duration::from_secs(30);
/// Messages that are ready at the same time are written together, up to about this size.
const WRITE_BYTES: usize = 64 << 10;

/// An MCP server on a pair of pipes, and its limits.
#[derive(Debug, Clone)]
pub struct StdioServer {
    /// The largest accepted message.
    pub message_limit: usize,
    /// The most bytes that may wait to be written, not counting responses. While more bytes wait, counting responses, the
    /// server reads nothing: a client must read its responses before it can send more requests.
    pub stream_limit: usize,
    /// The time in which requests in flight can end after the input has ended or the server was stopped.
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
        self.log_end(written, &stream);
        if let Some(session) = connection.session {
            connection.host.end_session(&connection.endpoint, &session);
        }
    }

    fn log_end(&self, written: io::Result<()>, stream: &ResponseStream) {
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
                InputLine::Whole(line) => self.handle_line(line).await,
                InputLine::TooLong(scanned) => self.refuse_too_long(scanned),
                InputLine::Blank(_) => tokio::task::yield_now().await,
            }
            self.stream.wait_for_room().await;
        }
        Ok(())
    }

    async fn handle_line(&mut self, line: Bytes) {
        match self.client() {
            Some(client) if is_large(line.len()) => {
                let (host, stream, limit) = (self.host.clone(), self.stream.clone(), self.limit);
                run_large(move || deliver(&host, client, &stream, limit, line.trim_ascii())).await;
            }
            Some(client) => deliver(&self.host, client, &self.stream, self.limit, line.trim_ascii()),
            None => self.handle_without_session(line.trim_ascii()).await,
        }
    }

    async fn handle_without_session(&mut self, line: &[u8]) {
        let message = match ClientMessage::parse(line) {
            Ok(message) => message.message,
            Err(error) => return refuse_invalid(&self.stream, &error),
        };
        match message {
            Message::Request { id, .. } if self.session.is_some() => {
                self.refuse(id, RpcError::INVALID_REQUEST, "the session has ended");
            }
            Message::Request { id, method, .. } if method == "initialize" => self.initialize(id, line).await,
            Message::Request { id, .. } => {
                self.refuse(id, RpcError::INVALID_REQUEST, "there is no session; send `initialize` first");
            }
            _ => debug!(bytes = line.len(), "message ignored: there is no session"),
        }
    }

    /// Returns the client on this connection, as long as its session exists.
    fn client(&self) -> Option<Arc<H::Client>> {
        self.host.find_session(&self.endpoint, self.session.as_deref()?)
    }

    async fn initialize(&mut self, id: Id<'_>, line: &[u8]) {
        let stream = self.stream.branch(id.as_json());
        self.session =
            self.host.initialize(self.endpoint.clone(), PeerId::default(), line.to_vec(), stream).await;
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
        refuse(&self.stream, id, code, reason);
    }
}

/// Parses a message and passes it to the host.
fn deliver<H: Host>(
    host: &Arc<H>,
    client: Arc<H::Client>,
    stream: &ResponseStream,
    limit: usize,
    line: &[u8],
) {
    match ClientMessage::parse(line) {
        Ok(message) => {
            let stream = match &message.message {
                Message::Request { id, .. } => stream.branch(id.as_json()),
                _ => ResponseStream::new(limit),
            };
            host.deliver(client, message, stream);
        }
        Err(error) => refuse_invalid(stream, &error),
    }
}

fn refuse_invalid(stream: &ResponseStream, error: &MessageError) {
    let code = match error {
        MessageError::NotJson(_) => RpcError::PARSE_ERROR,
        _ => RpcError::INVALID_REQUEST,
    };
    refuse(stream, Id::NULL, code, &error.to_string());
}

fn refuse(stream: &ResponseStream, id: Id<'_>, code: i64, reason: &str) {
    stream.branch(id.as_json()).finish(error_response(id, code, reason));
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
