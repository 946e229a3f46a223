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

use super::response_stream::Reader;
use super::{ClientMessage, Endpoint, Host, ResponseStream};
use crate::envelope::one_line;
use crate::line::{Line, Lines};
use crate::scan::Unread;
use crate::{DEFAULT_MESSAGE_LIMIT, Id, Message, MessageError, RpcError, error_response};

/// How long the client may take nothing of what is written to it.
const WRITE_WITHIN: Duration = Duration::from_secs(30);
/// Small messages that are there at the same time are written together, up to about this size.
const TOGETHER: usize = 64 << 10;

/// MCP over a pair of pipes.
#[derive(Debug, Clone)]
pub struct StdioFace {
    /// The longest message that is taken.
    pub message_limit: usize,
    /// How much may be waiting to be written, besides answers. While more than this waits, answers included, nothing
    /// is read: a client has to take its answers before it can ask for more.
    pub lane_limit: usize,
    /// What open requests are given when the input ends, or when we stop.
    pub stop_grace: Duration,
}

impl Default for StdioFace {
    fn default() -> Self {
        Self {
            message_limit: DEFAULT_MESSAGE_LIMIT,
            lane_limit: 2 * DEFAULT_MESSAGE_LIMIT,
            stop_grace: Duration::from_secs(5),
        }
    }
}

impl StdioFace {
    /// Serves one client until its input ends, it takes nothing any more, or `stop`; then ends its session.
    ///
    /// `finish` ends a request's lane and nothing else; a lane that is closed unfinished leaves its request unanswered,
    /// as a cancelled one should be.
    pub async fn serve<H: Host>(
        self,
        host: Arc<H>,
        endpoint: Endpoint,
        stdin: impl AsyncRead,
        stdout: impl AsyncWrite,
        stop: CancellationToken,
    ) {
        let lane = ResponseStream::new(self.lane_limit);
        let reader = lane.reader();
        let mut client =
            Client { host, endpoint, lane: lane.clone(), limit: self.message_limit, session: None };
        let reading = async {
            tokio::select! {
                read = client.read(stdin) => read.unwrap_or_else(|error| warn!(%error, "could not read stdin")),
                () = stop.cancelled() => {}
                () = lane.closed() => {}
            }
            if timeout(self.stop_grace, lane.settled()).await.is_err() {
                debug!("open requests were given up");
            }
            lane.close();
        };
        let ((), written) = tokio::join!(reading, write(reader, stdout));
        match written {
            Err(error) if error.kind() == io::ErrorKind::TimedOut => {
                warn!("the client was cut off: it takes nothing of what is written to it");
            }
            Err(error) => debug!(%error, "could not write to stdout"),
            Ok(()) if lane.has_overflown() => {
                warn!(limit = self.lane_limit, "the client was cut off: it does not keep up");
            }
            Ok(()) => {}
        }
        if let Some(session) = client.session {
            client.host.end_session(&client.endpoint, &session);
        }
    }
}

struct Client<H> {
    host: Arc<H>,
    endpoint: Endpoint,
    lane: ResponseStream,
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
            self.lane.has_room().await;
        }
        Ok(())
    }

    async fn take(&mut self, line: &[u8]) {
        let message = match ClientMessage::parse(line) {
            Ok(message) => message,
            Err(error @ MessageError::NotJson(_)) => {
                return self.refuse(Id::NULL, RpcError::PARSE_ERROR, &error.to_string());
            }
            Err(error) => return self.refuse(Id::NULL, RpcError::INVALID_REQUEST, &error.to_string()),
        };
        match (&message.message, self.client()) {
            (Message::Request { id, .. }, Some(client)) => {
                let stream = self.lane.branch(id.as_json());
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
                self.refuse(*id, RpcError::INVALID_REQUEST, "there is no session; `initialize` comes first");
            }
            (_, None) => debug!(bytes = line.len(), "message ignored: there is no session"),
        }
    }

    /// The client on this connection, as long as its session exists.
    fn client(&self) -> Option<Arc<H::Client>> {
        self.host.find_session(&self.endpoint, self.session.as_deref()?)
    }

    async fn initialize(&mut self, id: Id<'_>, line: &[u8]) {
        let lane = self.lane.branch(id.as_json());
        self.session = self.host.initialize(self.endpoint.clone(), line.to_vec(), lane).await;
        if let Some(client) = self.client() {
            self.host.open_stream(&client).lead_onto(&self.lane);
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
        self.lane.branch(id.as_json()).finish(error_response(id, code, reason));
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

#[cfg(test)]
mod tests {
    use super::super::tests::{Parrot, parrot};
    use super::*;
    use tokio::io::{
        AsyncBufReadExt, BufReader, DuplexStream, Lines as Read, ReadHalf, WriteHalf, duplex, split,
    };
    use tokio::task::JoinHandle;

    const NOW: Duration = Duration::from_millis(20);
    const SOON: Duration = Duration::from_secs(10);
    const INITIALIZE: &str = r#"{"jsonrpc":"2.0","id":1,"method":"initialize"}"#;

    struct Caller {
        into: WriteHalf<DuplexStream>,
        from: Read<BufReader<ReadHalf<DuplexStream>>>,
        parrot: Arc<Parrot>,
        heard: std::sync::mpsc::Receiver<String>,
        stop: CancellationToken,
        served: JoinHandle<()>,
    }

    fn call(limit: usize) -> Caller {
        let (near, far) = duplex(1 << 16);
        let (stdin, stdout) = split(far);
        let (parrot, heard) = parrot();
        let stop = CancellationToken::new();
        let face = StdioFace { message_limit: limit, lane_limit: limit, ..StdioFace::default() };
        let served = face.serve(parrot.clone(), Endpoint::All, stdin, stdout, stop.clone());
        let served = tokio::spawn(served);
        let (from, into) = split(near);
        Caller { into, from: BufReader::new(from).lines(), parrot, heard, stop, served }
    }

    impl Caller {
        async fn say(&mut self, text: &str) {
            self.into.write_all(format!("{text}\n").as_bytes()).await.unwrap();
        }

        async fn hear(&mut self) -> Option<String> {
            timeout(SOON, self.from.next_line()).await.expect("nothing was said").unwrap()
        }

        async fn check(&mut self, said: &str, expected: &str) {
            self.say(said).await;
            let heard = self.hear().await.unwrap();
            assert!(heard.contains(expected), "{said}\n  gave {heard}\n  want {expected}");
        }
    }

    fn request(method: &str) -> String {
        format!(r#"{{"jsonrpc":"2.0","id":"q","method":"{method}","params":{{"a":1.50}}}}"#)
    }

    // req: GW-01
    #[tokio::test]
    async fn a_session_over_lines() {
        let mut caller = call(1000);
        caller.check(&request("echo"), "`initialize` comes first").await;
        caller.check(INITIALIZE, r#""id":1,"result""#).await;
        caller.check(&request("echo"), r#"{"jsonrpc":"2.0","id":"q","result":{"a":1.50}}"#).await;
        caller.say(r#"{"jsonrpc":"2.0","method":"n"}"#).await;
        caller.check("{oops", "-32700").await;
        caller.check("[]", "-32600").await;
        caller.check(&request("drop"), r#""id":"q","error":{"code":-32000"#).await;
        assert_eq!(caller.heard.try_recv().as_deref(), Ok(r#"{"jsonrpc":"2.0","method":"n"}"#));
        let lane = caller.parrot.unasked_lane();
        assert!(lane.push(b"{\"a\":\n1}".to_vec()));
        assert_eq!(caller.hear().await.as_deref(), Some("{\"a\": 1}"));
    }

    // req: GW-03
    #[tokio::test]
    async fn notifications_come_in_order_before_the_answer() {
        let mut caller = call(1 << 20);
        caller.check(INITIALIZE, "result").await;
        caller.say(&request("count")).await;
        for n in 0..200 {
            assert_eq!(
                caller.hear().await,
                Some(format!(r#"{{"jsonrpc":"2.0","method":"n","params":{n}}}"#))
            );
        }
        assert!(caller.hear().await.unwrap().contains("result"));
    }

    // req: GW-03
    #[tokio::test]
    async fn a_line_that_is_too_long_is_refused_under_its_id() {
        let mut caller = call(1000);
        caller.check(INITIALIZE, "result").await;
        let long = request("echo").replace("1.50", &format!("\"{}\"", "x".repeat(5000)));
        caller
            .check(&long, r#""id":"q","error":{"code":-32600,"message":"a message may have 1000 bytes"#)
            .await;
        caller.check(&request("echo"), "result").await;
    }

    #[tokio::test(start_paused = true)]
    async fn after_the_last_word_open_requests_are_answered() {
        let mut caller = call(1000);
        caller.check(INITIALIZE, "result").await;
        caller.say(&request("slow")).await;
        caller.into.shutdown().await.unwrap();
        // This clock moves when there is nothing else to do: by then it knows that this was the last word.
        tokio::time::sleep(NOW).await;
        caller.parrot.go_on();
        assert!(caller.hear().await.unwrap().contains("result"));
        assert_eq!(caller.hear().await, None);
        timeout(SOON, caller.served).await.unwrap().unwrap();
        assert!(!caller.parrot.has_sessions());
    }

    #[tokio::test]
    async fn a_stop_and_a_client_that_has_gone_end_it() {
        let mut caller = call(1000);
        caller.check(INITIALIZE, "result").await;
        caller.stop.cancel();
        timeout(SOON, caller.served).await.unwrap().unwrap();

        let mut caller = call(1000);
        caller.check(INITIALIZE, "result").await;
        let Caller { into, from, parrot, served, heard: _heard, stop: _stop } = caller;
        drop((into, from));
        timeout(SOON, served).await.unwrap().unwrap();
        assert!(parrot.unasked_lane().is_closed() && !parrot.has_sessions());
    }

    // req: GW-03
    #[tokio::test]
    async fn answers_that_are_too_much_together_come_all_the_same() {
        let mut caller = call(1000);
        caller.check(INITIALIZE, "result").await;
        let long = request("echo").replace("1.50", &format!("\"{}\"", "x".repeat(800)));
        // All more than the pipes hold: nothing is read before the last is on its way.
        let Caller { mut into, mut from, parrot: _parrot, heard: _heard, stop: _stop, served } = caller;
        let asking = tokio::spawn(async move {
            for _ in 0..500 {
                into.write_all(format!("{long}\n").as_bytes()).await.unwrap();
            }
            into
        });
        for n in 0..500 {
            let heard = timeout(SOON, from.next_line()).await.expect("nothing was said").unwrap();
            assert!(heard.is_some_and(|heard| heard.contains("result")), "{n}");
        }
        asking.await.unwrap().shutdown().await.unwrap();
        assert_eq!(timeout(SOON, from.next_line()).await.unwrap().unwrap(), None);
        timeout(SOON, served).await.unwrap().unwrap();
    }

    // req: GW-07
    #[tokio::test(start_paused = true)]
    async fn a_client_that_asks_and_does_not_read_is_not_heard_either() {
        let mut caller = call(1000);
        caller.check(INITIALIZE, "result").await;
        let long = request("echo").replace("1.50", &format!("\"{}\"", "x".repeat(800)));
        let flood = async {
            for _ in 0..5000 {
                caller.say(&long).await;
            }
        };
        // Time passes only when nothing else can happen.
        assert!(timeout(NOW, flood).await.is_err(), "all of it was taken");
        // What is unread fits into the pipes and the lane.
        caller.stop.cancel();
        let mut answers = 0;
        while caller.hear().await.is_some() {
            answers += 1;
        }
        assert!(answers * long.len() < 4 << 16, "{answers} answers were waiting");
        timeout(SOON, caller.served).await.unwrap().unwrap();
    }

    // req: GW-07
    #[tokio::test]
    async fn a_client_that_does_not_read_is_cut_off() {
        let mut caller = call(1 << 20);
        caller.check(INITIALIZE, "result").await;
        caller.say(&request("flood")).await;
        while caller.hear().await.is_some() {}
        timeout(SOON, caller.served).await.unwrap().unwrap();
    }
}
