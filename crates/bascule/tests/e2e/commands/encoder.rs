//! Tests search with an embeddings endpoint: an HTTP server of the tests that speaks the protocol of OpenAI.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

use serde_json::{Value, json};

use crate::support::{Bascule, demo_servers};

/// An endpoint whose vectors say only whether a text mentions time or a clock.
struct EmbeddingsServer {
    address: String,
    /// The requests: the `Authorization` header and the body.
    requests: Arc<Mutex<Vec<(String, Value)>>>,
    thread: Option<JoinHandle<()>>,
}

impl EmbeddingsServer {
    /// `status` is that of every response.
    fn start(status: &'static str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let requests = Arc::new(Mutex::new(Vec::new()));
        let seen = requests.clone();
        let serve = move || {
            for stream in listener.incoming() {
                // A connection without a request ends the server.
                let Some(request) = read_request(stream.as_ref().unwrap()) else { return };
                answer(&mut stream.unwrap(), status, &request.1);
                seen.lock().unwrap().push(request);
            }
        };
        Self { address, requests, thread: Some(std::thread::spawn(serve)) }
    }

    fn take_requests(&self) -> Vec<(String, Value)> {
        std::mem::take(&mut self.requests.lock().unwrap())
    }

    fn configuration(&self) -> String {
        let encoder = json!({
            "url": format!("http://{}/v1", self.address), "model": "m-1", "apiKey": "${TEST_KEY}", "timeoutMs": 60_000,
        });
        json!({ "mcpServers": demo_servers(), "bascule": { "search": { "encoder": encoder } } }).to_string()
    }
}

impl Drop for EmbeddingsServer {
    fn drop(&mut self) {
        drop(TcpStream::connect(&self.address));
        self.thread.take().map(JoinHandle::join);
    }
}

fn read_request(stream: &TcpStream) -> Option<(String, Value)> {
    let mut reader = BufReader::new(stream);
    let (mut key, mut length, mut line) = (String::new(), 0, String::new());
    reader.read_line(&mut line).ok().filter(|length| *length > 0)?;
    assert!(line.starts_with("POST /v1/embeddings HTTP/1.1"), "{line}");
    loop {
        line.clear();
        reader.read_line(&mut line).ok()?;
        match line.trim().split_once(": ") {
            Some((name, value)) if name.eq_ignore_ascii_case("authorization") => key = value.to_owned(),
            Some((name, value)) if name.eq_ignore_ascii_case("content-length") => {
                length = value.parse().unwrap()
            }
            Some(_) => {}
            None => break,
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body).ok()?;
    Some((key, serde_json::from_slice(&body).unwrap()))
}

fn answer(stream: &mut TcpStream, status: &str, request: &Value) {
    let vector = |text: &Value| {
        let text = text.as_str().unwrap().to_lowercase();
        let is_about_time = ["time", "clock", "hour", "zzz"].iter().any(|word| text.contains(word));
        if is_about_time { json!([1.0, 0.1, 0.0]) } else { json!([0.0, 0.1, 1.0]) }
    };
    let vectors = request["input"].as_array().unwrap().iter().enumerate();
    let data: Vec<_> = vectors
        .map(|(index, text)| json!({ "object": "embedding", "index": index, "embedding": vector(text) }))
        .collect();
    let body = json!({ "object": "list", "data": data, "model": request["model"] }).to_string();
    let head = format!("HTTP/1.1 {status}\r\ncontent-type: application/json\r\nconnection: close\r\n");
    write!(stream, "{head}content-length: {}\r\n\r\n{body}", body.len()).unwrap();
}

// req: SE-01
#[test]
fn configured_endpoint_ranks_tools() {
    let server = EmbeddingsServer::start("200 OK");
    let bascule = Bascule::with_text(&server.configuration()).env("TEST_KEY", "key-of-the-test");
    // No word of the intent is in a tool, and the built-in table does not know it.
    let ran = bascule.run(&["search", "zzz", "-k", "1", "--json"]);
    assert_eq!((ran.code, ran.stderr.as_str()), (Some(0), ""));
    assert_eq!(ran.document()[0]["server"], "clock", "{}", ran.stdout);
    let requests = server.take_requests();
    assert_eq!(requests.len(), 2, "one for the tools and one for the intent: {requests:?}");
    for (key, body) in &requests {
        assert_eq!((key.as_str(), &body["model"]), ("Bearer key-of-the-test", &json!("m-1")));
    }
    assert_eq!(requests[1].1["input"], json!(["zzz"]));
    // Another process finds the vectors of the tools on disk.
    assert_eq!(bascule.run(&["search", "zzz", "-k", "1", "--json"]).document()[0]["server"], "clock");
    let again: Vec<Value> =
        server.take_requests().into_iter().map(|(_, body)| body["input"].clone()).collect();
    assert_eq!(again, [json!(["zzz"])]);
}

// req: SE-01
#[test]
fn failing_endpoint_is_replaced_by_built_in_encoder() {
    let server = EmbeddingsServer::start("500 Internal Server Error");
    let bascule = Bascule::with_text(&server.configuration()).env("TEST_KEY", "key-of-the-test");
    let ran = bascule.run(&["search", "what time is it", "-k", "1", "--json"]);
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    assert_eq!(ran.document()[0]["id"], "clock:now");
    assert_eq!(ran.stderr.matches("search uses the built-in encoder").count(), 1, "{}", ran.stderr);
    assert!(!ran.stderr.contains("key-of-the-test"), "{}", ran.stderr);
    assert_eq!(server.take_requests().len(), 1);
}
