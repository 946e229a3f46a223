//! Tests search with other encoders: an embeddings endpoint, which is an HTTP server of the tests that speaks the protocol of OpenAI,
//! and the real model all-MiniLM-L6-v2 from a folder.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

use serde_json::{Value, json};

use crate::fleet::serve_process::ServeProcess;
use crate::support::{Bascule, demo_servers, eventually, project_file, test_env};

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

/// A configuration with the model in a folder.
fn with_model(folder: &Path, timeout_ms: u64) -> String {
    let encoder = json!({ "folder": folder, "timeoutMs": timeout_ms });
    json!({ "mcpServers": demo_servers(), "bascule": { "search": { "encoder": encoder } } }).to_string()
}

/// Returns the number of vectors on disk, and of the numbers of each.
fn vectors_on_disk(bascule: &Bascule) -> Option<(usize, usize)> {
    let file = std::fs::read_dir(bascule.data_folder().join("bascule/vectors")).ok()?.flatten().next()?;
    let kept: Value = serde_json::from_slice(&std::fs::read(file.path()).ok()?).ok()?;
    let vectors = kept["vectors"].as_array()?;
    Some((vectors.len(), vectors.first()?[1].as_str()?.len() / 2))
}

// req: SE-01
#[test]
fn model_in_folder_ranks_tools() {
    let bascule = Bascule::with_text(&with_model(&test_env("model/files"), 120_000));
    for _ in 0..2 {
        let ran = bascule.run(&["search", "which hour is it in Tokyo", "-k", "1", "--json"]);
        assert_eq!((ran.code, ran.stderr.as_str()), (Some(0), ""));
        assert_eq!(ran.document()[0]["server"], "clock", "{}", ran.stdout);
    }
    let tools = bascule.run(&["tools", "--json"]).document().as_array().unwrap().len();
    assert_eq!(vectors_on_disk(&bascule), Some((tools, 384)), "those of tools alone are kept");
}

// req: SE-01
#[test]
fn folder_without_model_is_replaced_by_built_in_encoder() {
    let folder = tempfile::tempdir().unwrap();
    let tiny = project_file("crates/bascule-search/tests/models/tiny");
    for name in ["config.json", "vocab.txt"] {
        std::fs::copy(tiny.join(name), folder.path().join(name)).unwrap();
    }
    let check = |part: &str| {
        let bascule = Bascule::with_text(&with_model(folder.path(), 60_000));
        let ran = bascule.run(&["search", "what time is it", "-k", "1", "--json"]);
        assert_eq!((ran.code, &ran.document()[0]["id"]), (Some(0), &json!("clock:now")), "{}", ran.stderr);
        assert_eq!(ran.stderr.matches("search uses the built-in encoder").count(), 1, "{}", ran.stderr);
        assert!(ran.stderr.contains(part), "{}", ran.stderr);
    };
    check("model.safetensors`: No such file");
    std::fs::write(folder.path().join("model.safetensors"), "no model").unwrap();
    check("`model.safetensors`: its header");
    std::fs::remove_file(folder.path().join("config.json")).unwrap();
    check("config.json`: entity not found");
}

// req: SE-01
#[test]
fn model_that_needs_long_goes_on_while_searches_use_the_built_in_encoder() {
    let bridge = ServeProcess::start_with_config(&with_model(&test_env("model/files"), 1), &[]);
    let bascule = &bridge.bascule;
    let tools = bascule.run(&["tools", "--json"]).document().as_array().unwrap().len();
    let code = "return (await mcp.search('what time is it', { k: 1 }))[0].id";
    std::fs::write(bascule.folder().join("find.ts"), code).unwrap();
    let ran = bascule.run(&["run", "find.ts"]);
    assert_eq!((ran.code, ran.stdout.trim()), (Some(0), "clock:now"), "{}", ran.stderr);
    // The first search has given up after a millisecond; its work ends anyway.
    eventually("the vectors of all tools are kept", || vectors_on_disk(bascule) == Some((tools, 384)));
}
