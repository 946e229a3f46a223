//! One client on a pair of pipes.

use std::sync::{Arc, mpsc};
use std::time::Duration;

use tokio::io::{
    AsyncBufReadExt, AsyncWriteExt, BufReader, DuplexStream, Lines, ReadHalf, WriteHalf, duplex, split,
};
use tokio::task::JoinHandle;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use super::host::{EchoHost, echo_host};
use crate::serve::{Endpoint, StdioServer};

const MOMENT: Duration = Duration::from_millis(20);
const DEADLINE: Duration = Duration::from_secs(10);
const INITIALIZE: &str = r#"{"jsonrpc":"2.0","id":1,"method":"initialize"}"#;

struct PipeClient {
    input: WriteHalf<DuplexStream>,
    output: Lines<BufReader<ReadHalf<DuplexStream>>>,
    host: Arc<EchoHost>,
    reports: mpsc::Receiver<String>,
    stop: CancellationToken,
    serving: JoinHandle<()>,
}

fn connect(limit: usize) -> PipeClient {
    let (near, far) = duplex(1 << 16);
    let (stdin, stdout) = split(far);
    let (host, reports) = echo_host();
    let stop = CancellationToken::new();
    let server = StdioServer { message_limit: limit, stream_limit: limit, ..StdioServer::default() };
    let serving = server.serve(host.clone(), Endpoint::All, stdin, stdout, stop.clone());
    let serving = tokio::spawn(serving);
    let (output, input) = split(near);
    PipeClient { input, output: BufReader::new(output).lines(), host, reports, stop, serving }
}

impl PipeClient {
    async fn send(&mut self, text: &str) {
        self.input.write_all(format!("{text}\n").as_bytes()).await.unwrap();
    }

    async fn receive(&mut self) -> Option<String> {
        timeout(DEADLINE, self.output.next_line()).await.expect("nothing was received").unwrap()
    }

    async fn check(&mut self, message: &str, expected: &str) {
        self.send(message).await;
        let received = self.receive().await.unwrap();
        assert!(
            received.contains(expected),
            "{message}
  gave {received}\n  want {expected}"
        );
    }
}

fn request(method: &str) -> String {
    format!(r#"{{"jsonrpc":"2.0","id":"q","method":"{method}","params":{{"a":1.50}}}}"#)
}

// req: GW-01
#[tokio::test]
async fn serves_a_session_over_lines() {
    let mut client = connect(1000);
    client.check(&request("echo"), "send `initialize` first").await;
    client.check(INITIALIZE, r#""id":1,"result""#).await;
    client.check(&request("echo"), r#"{"jsonrpc":"2.0","id":"q","result":{"a":1.50}}"#).await;
    client.send(r#"{"jsonrpc":"2.0","method":"n"}"#).await;
    client.check("{oops", "-32700").await;
    client.check("[]", "-32600").await;
    client.check(&request("drop"), r#""id":"q","error":{"code":-32000"#).await;
    assert_eq!(client.reports.try_recv().as_deref(), Ok(r#"{"jsonrpc":"2.0","method":"n"}"#));
    let stream = client.host.session_stream();
    assert!(stream.push(b"{\"a\":\n1}".to_vec()));
    assert_eq!(client.receive().await.as_deref(), Some("{\"a\": 1}"));
}

// req: GW-03
#[tokio::test]
async fn sends_notifications_in_order_before_the_response() {
    let mut client = connect(1 << 20);
    client.check(INITIALIZE, "result").await;
    client.send(&request("count")).await;
    for n in 0..200 {
        assert_eq!(client.receive().await, Some(format!(r#"{{"jsonrpc":"2.0","method":"n","params":{n}}}"#)));
    }
    assert!(client.receive().await.unwrap().contains("result"));
}

// req: GW-03
#[tokio::test]
async fn refuses_too_long_line_under_its_id() {
    let mut client = connect(1000);
    client.check(INITIALIZE, "result").await;
    let long = request("echo").replace("1.50", &format!("\"{}\"", "x".repeat(5000)));
    client
        .check(&long, r#""id":"q","error":{"code":-32600,"message":"the message is larger than the limit of 1000 bytes"#)
        .await;
    client.check(&request("echo"), "result").await;
}

#[tokio::test(start_paused = true)]
async fn answers_open_requests_after_the_end_of_input() {
    let mut client = connect(1000);
    client.check(INITIALIZE, "result").await;
    client.send(&request("slow")).await;
    client.input.shutdown().await.unwrap();
    // The paused clock moves when all tasks wait: by then the server has seen the end of input.
    tokio::time::sleep(MOMENT).await;
    client.host.release_slow_requests();
    assert!(client.receive().await.unwrap().contains("result"));
    assert_eq!(client.receive().await, None);
    timeout(DEADLINE, client.serving).await.unwrap().unwrap();
    assert!(!client.host.has_sessions());
}

#[tokio::test]
async fn ends_on_stop_and_on_disconnect() {
    let mut client = connect(1000);
    client.check(INITIALIZE, "result").await;
    client.stop.cancel();
    timeout(DEADLINE, client.serving).await.unwrap().unwrap();

    let mut client = connect(1000);
    client.check(INITIALIZE, "result").await;
    let PipeClient { input, output, host, serving, reports: _reports, stop: _stop } = client;
    drop((input, output));
    timeout(DEADLINE, serving).await.unwrap().unwrap();
    assert!(host.session_stream().is_closed() && !host.has_sessions());
}

// req: GW-03
#[tokio::test]
async fn delivers_more_responses_than_the_limit() {
    let mut client = connect(1000);
    client.check(INITIALIZE, "result").await;
    let long = request("echo").replace("1.50", &format!("\"{}\"", "x".repeat(800)));
    // Together they are more than the pipes hold: the client reads nothing before the last one is on its way.
    let PipeClient { mut input, mut output, host: _host, reports: _reports, stop: _stop, serving } = client;
    let sending = tokio::spawn(async move {
        for _ in 0..500 {
            input.write_all(format!("{long}\n").as_bytes()).await.unwrap();
        }
        input
    });
    for n in 0..500 {
        let line = timeout(DEADLINE, output.next_line()).await.expect("nothing was received").unwrap();
        assert!(line.is_some_and(|line| line.contains("result")), "{n}");
    }
    sending.await.unwrap().shutdown().await.unwrap();
    assert_eq!(timeout(DEADLINE, output.next_line()).await.unwrap().unwrap(), None);
    timeout(DEADLINE, serving).await.unwrap().unwrap();
}

// req: GW-07
#[tokio::test(start_paused = true)]
async fn stops_reading_from_client_that_does_not_read() {
    let mut client = connect(1000);
    client.check(INITIALIZE, "result").await;
    let long = request("echo").replace("1.50", &format!("\"{}\"", "x".repeat(800)));
    let flood = async {
        for _ in 0..5000 {
            client.send(&long).await;
        }
    };
    // The paused clock moves only when all tasks wait.
    assert!(timeout(MOMENT, flood).await.is_err(), "all requests were read");
    // The unread responses fit into the pipes and the stream.
    client.stop.cancel();
    let mut answers = 0;
    while client.receive().await.is_some() {
        answers += 1;
    }
    assert!(answers * long.len() < 4 << 16, "{answers} responses were waiting");
    timeout(DEADLINE, client.serving).await.unwrap().unwrap();
}

// req: GW-07
#[tokio::test]
async fn disconnects_client_that_does_not_read() {
    let mut client = connect(1 << 20);
    client.check(INITIALIZE, "result").await;
    client.send(&request("flood")).await;
    while client.receive().await.is_some() {}
    timeout(DEADLINE, client.serving).await.unwrap().unwrap();
}
