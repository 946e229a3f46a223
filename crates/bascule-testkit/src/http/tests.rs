//! Tests of the scripted HTTP server over plain sockets.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use serde_json::{Value, json};

use super::{HttpFault, ScriptedHttp};
use crate::{Behaviour, IdPosition, Script, SseFeature};

const CALL: &str = r#"{"id":1,"method":"tools/call","params":{"name":"x","arguments":{"a":1}}}"#;
const PING: &str = r#"{"id":2,"method":"ping"}"#;

fn connect(server: &ScriptedHttp) -> TcpStream {
    let stream = TcpStream::connect(server.address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    stream
}

fn send(mut stream: &TcpStream, headers: &str, body: &str) {
    let length = body.len();
    let common = "Accept: application/json, text/event-stream\r\nContent-Type: application/json";
    let request =
        format!("POST /mcp HTTP/1.1\r\n{common}\r\n{headers}Content-Length: {length}\r\n\r\n{body}");
    stream.write_all(request.as_bytes()).unwrap();
}

/// Reads until the text ends with `end` or the connection ends.
fn read(mut stream: &TcpStream, end: &str) -> String {
    let (mut text, mut block) = (String::new(), [0; 4096]);
    while end.is_empty() || !text.ends_with(end) {
        match stream.read(&mut block).unwrap() {
            0 => break,
            count => text.push_str(&String::from_utf8_lossy(&block[..count])),
        }
    }
    text
}

fn status_of(mut stream: &TcpStream) -> String {
    let mut start = [0; "HTTP/1.1 200".len()];
    stream.read_exact(&mut start).unwrap();
    String::from_utf8_lossy(&start[9..]).into_owned()
}

/// Sends a request on a new connection and reads the response until it ends with `end`.
fn post(server: &ScriptedHttp, body: &str, end: &str) -> String {
    let stream = connect(server);
    send(&stream, "", body);
    read(&stream, end)
}

/// Checks the response to a call with this fault, read until `end`.
fn check(fault: HttpFault, end: &str, expected: &str) {
    let server = ScriptedHttp::start(Script::new().tools(["x"]));
    server.fail_next("tools/call", fault);
    assert!(post(&server, PING, "}").contains(r#""result":{}"#), "other methods are not affected");
    assert_eq!(post(&server, CALL, end), expected);
    assert!(post(&server, CALL, "}}").starts_with("HTTP/1.1 200 OK"), "the next call is not affected");
}

#[test]
fn responds_with_a_body_and_keeps_the_connection() {
    let server = ScriptedHttp::start(Script::new().tools(["x"]));
    let stream = connect(&server);
    for _ in 0..2 {
        send(&stream, "", CALL);
        let answer = read(&stream, r#""isError":false}}"#);
        assert!(answer.contains("Content-Type: application/json"), "{answer}");
        assert!(answer.contains(r#""structuredContent":{"a":1}"#), "{answer}");
    }
}

#[test]
fn responds_with_a_stream_if_scripted() {
    let script = Script::new()
        .sse([SseFeature::Ids])
        .calls("x", [Behaviour::result("{}"), Behaviour::result("{}").as_json()]);
    let server = ScriptedHttp::start(script);
    let streamed = post(&server, CALL, "0\r\n\r\n");
    assert!(streamed.contains("Content-Type: text/event-stream"), "{streamed}");
    assert!(streamed.contains("id: 1\ndata: {\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{}}\n\n"), "{streamed}");
    assert!(post(&server, CALL, "}").contains("Content-Type: application/json"));
}

#[test]
fn several_messages_make_a_stream() {
    let server = ScriptedHttp::start(Script::new().calls("x", [Behaviour::text("x").after_log("working")]));
    let streamed = post(&server, CALL, "0\r\n\r\n");
    let (log, answer) = (streamed.find("working"), streamed.find(r#""result""#));
    assert!(log.is_some() && log < answer, "{streamed}");
}

#[test]
fn issues_and_requires_the_session_id() {
    let server = ScriptedHttp::start(Script::new().session("s1"));
    let first = post(&server, r#"{"id":0,"method":"initialize"}"#, "}");
    assert!(first.contains("Mcp-Session-Id: s1"), "{first}");
    let status = |headers: &str| {
        let stream = connect(&server);
        send(&stream, headers, PING);
        status_of(&stream)
    };
    assert_eq!(status(""), "400");
    assert_eq!(status("mcp-session-id: s0\r\n"), "404");
    assert_eq!(status("mcp-session-id: s1\r\n"), "200");
}

#[test]
fn rejects_requests_that_violate_the_specification() {
    let server = ScriptedHttp::start(Script::new().session("s1"));
    let status = |request: &str| {
        let mut stream = connect(&server);
        stream.write_all(request.as_bytes()).unwrap();
        status_of(&stream)
    };
    assert_eq!(status("GET /mcp HTTP/1.1\r\n\r\n"), "406");
    assert_eq!(status("GET /mcp HTTP/1.1\r\nAccept: text/event-stream\r\n\r\n"), "400");
    let own = "GET /mcp HTTP/1.1\r\nAccept: text/event-stream\r\nMcp-Session-Id: s1\r\n\r\n";
    assert_eq!(status(own), "405");
    assert_eq!(status("POST /other HTTP/1.1\r\n\r\n"), "404");
    assert_eq!(status("POST /mcp HTTP/1.1\r\n\r\n"), "411");
    assert_eq!(status("POST /mcp HTTP/1.1\r\nContent-Length: 0\r\n\r\n"), "415");
    assert_eq!(
        status("POST /mcp HTTP/1.1\r\nContent-Length: 0\r\nContent-Type: application/json\r\n\r\n"),
        "406"
    );
    assert_eq!(status("DELETE /mcp HTTP/1.1\r\nMcp-Session-Id: s1\r\n\r\n"), "200");
}

#[test]
fn accepts_and_records_notifications() {
    let server = ScriptedHttp::start(Script::new());
    let body = r#"{"method":"notifications/cancelled","params":{"requestId":1}}"#;
    assert!(post(&server, body, "\r\n\r\n").starts_with("HTTP/1.1 202"));
    assert_eq!(server.wait_for("cancelled"), body);
    let request = server.wait_until(|request| request.header("ACCEPT").is_some());
    assert_eq!((request.method.as_str(), request.path.as_str()), ("POST", "/mcp"));
}

#[test]
fn returns_the_clients_responses() {
    let server =
        ScriptedHttp::start(Script::new().calls("x", [Behaviour::asking([json!({"method": "ping"})])]));
    let call = connect(&server);
    send(&call, "", CALL);
    let request = read(&call, "\n\n\r\n");
    let data = request.split("data: ").last().unwrap().trim();
    let id = serde_json::from_str::<Value>(data).unwrap()["id"].clone();
    post(&server, &json!({"jsonrpc": "2.0", "id": id, "result": {"pong": 1}}).to_string(), "\r\n\r\n");
    assert!(
        read(&call, "0\r\n\r\n")
            .contains(r#""answers":[{"id":"asked-0","jsonrpc":"2.0","result":{"pong":1}}]"#)
    );
}

#[test]
fn faults_replace_the_response() {
    check(
        HttpFault::redirect(307, "http://elsewhere/"),
        "\r\n\r\n",
        "HTTP/1.1 307 Redirect\r\nLocation: http://elsewhere/\r\nContent-Length: 0\r\n\r\n",
    );
    check(
        HttpFault::unauthorised("Bearer"),
        "\r\n\r\n",
        "HTTP/1.1 401 Unauthorized\r\nWWW-Authenticate: Bearer\r\nContent-Length: 0\r\n\r\n",
    );
    check(
        HttpFault::status(500, "oops"),
        "oops",
        "HTTP/1.1 500 Internal Server Error\r\nContent-Type: text/plain\r\nContent-Length: 4\r\n\r\noops",
    );
    check(
        HttpFault::Giant { bytes: 3 },
        "xxx",
        "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 3\r\n\r\nxxx",
    );
}

#[test]
fn faults_cut_the_response() {
    check(
        HttpFault::CutBody,
        "",
        "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 4096\r\n\r\n{\"jsonrpc\":\"2.0\",",
    );
    check(
        HttpFault::CutChunks,
        "",
        "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n11\r\n{\"jsonrpc\":\"2.0\",\r\n",
    );
    check(
        HttpFault::CutStream,
        "",
        "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n8\r\n: soon\n\n\r\n",
    );
}

fn get(server: &ScriptedHttp, headers: &str) -> TcpStream {
    let mut stream = connect(server);
    let request = format!("GET /mcp HTTP/1.1\r\nAccept: text/event-stream\r\n{headers}\r\n");
    stream.write_all(request.as_bytes()).unwrap();
    stream
}

#[test]
fn resumes_a_stream_after_its_last_id() {
    let behaviour = Behaviour::text("done").after_log("one").after_cut().after_log("two").after_end();
    let script = Script::new().sse([SseFeature::Ids]).calls("x", [behaviour]);
    let server = ScriptedHttp::start(script);
    let first = post(&server, CALL, "");
    assert!(first.contains("id: 1\n") && first.contains("one") && !first.contains("two"), "{first}");
    let second = read(&get(&server, "Last-Event-ID: 1\r\n"), "0\r\n\r\n");
    assert!(second.contains("id: 2\n") && second.contains("two") && !second.contains("done"), "{second}");
    let third = read(&get(&server, "Last-Event-ID: 2\r\n"), "0\r\n\r\n");
    assert!(third.contains("id: 3\n") && third.contains("done"), "{third}");
    assert_eq!(status_of(&get(&server, "Last-Event-ID: 2\r\n")), "405");
}

#[test]
fn server_messages_are_scripted() {
    let script = Script::new().sse([SseFeature::Primed]).on("GET", [Behaviour::end().after_list_changed()]);
    let stream = read(&get(&ScriptedHttp::start(script), ""), "0\r\n\r\n");
    assert!(stream.contains("id: 1\ndata:\n\n") && stream.contains("list_changed"), "{stream}");
}

#[test]
fn deprecated_transport_responds_on_its_stream() {
    let server = ScriptedHttp::start(Script::new().tools(["x"]).legacy("{origin}/messages?n=1"));
    assert!(post(&server, CALL, "\r\n\r\n").starts_with("HTTP/1.1 405"));
    let stream = get(&server, &format!("Host: {}\r\n", server.address));
    let opening = read(&stream, "\n\n\r\n");
    assert!(opening.contains(&format!("event: endpoint\ndata: http://{}/messages?n=1\n", server.address)));
    let mut posted = connect(&server);
    let head = format!("POST /messages?n=1 HTTP/1.1\r\nContent-Length: {}\r\n\r\n{CALL}", CALL.len());
    posted.write_all(head.as_bytes()).unwrap();
    assert!(read(&posted, "").starts_with("HTTP/1.1 202"));
    let answer = read(&stream, "\n\n\r\n");
    assert!(answer.contains("event: message\n") && answer.contains(r#""a":1"#), "{answer}");
}

#[test]
fn crash_closes_the_connection_and_silence_keeps_it() {
    let script = Script::new().calls("x", [Behaviour::exit(1), Behaviour::silence()]);
    let server = ScriptedHttp::start(script);
    assert_eq!(post(&server, CALL, ""), "");
    let silent = connect(&server);
    send(&silent, "", CALL);
    silent.set_read_timeout(Some(Duration::from_millis(50))).unwrap();
    assert!((&silent).read(&mut [0]).is_err(), "neither a response nor an end");
    silent.set_read_timeout(None).unwrap();
    server.drop_connections();
    assert_eq!(read(&silent, ""), "");
}

#[test]
fn trickle_pauses_after_each_write() {
    let server = ScriptedHttp::start(Script::new());
    server.fail_next("ping", HttpFault::Trickle { bytes: 20, every: Duration::from_millis(1) });
    assert!(post(&server, PING, "{}}").contains(r#""result":{}"#));
    // The second write never comes, so the first read returns the first write alone.
    server.fail_next("ping", HttpFault::Trickle { bytes: 20, every: Duration::from_secs(3600) });
    let mut stream = connect(&server);
    send(&stream, "", PING);
    assert_eq!(stream.read(&mut [0; 4096]).unwrap(), 20);
}

#[test]
fn close_after_ends_the_connection_after_the_response() {
    let server = ScriptedHttp::start(Script::new());
    server.fail_always("*", HttpFault::CloseAfter);
    let stream = connect(&server);
    send(&stream, "", PING);
    assert!(read(&stream, "").ends_with(r#""result":{}}"#));
}

#[test]
fn oversized_body_has_the_requested_length() {
    let server = ScriptedHttp::start(Script::new().calls("x", [Behaviour::big(300_000, IdPosition::After)]));
    let answer = post(&server, CALL, r#","id":1}"#);
    assert_eq!(answer.split_once("\r\n\r\n").unwrap().1.len(), 300_000);
}

#[test]
fn stopped_server_refuses_and_restarts_with_other_tools() {
    let mut server = ScriptedHttp::start(Script::new().tools(["old"]));
    let held = connect(&server);
    send(&held, "", PING);
    read(&held, "}");
    server.stop();
    assert_eq!(read(&held, ""), "");
    assert!(TcpStream::connect(server.address).is_err());
    server.restart(Script::new().tools(["new"]));
    assert!(post(&server, r#"{"id":1,"method":"tools/list"}"#, "]}}").contains(r#""name":"new""#));
    assert_eq!(server.methods(), ["ping", "tools/list"]);
}

#[test]
fn serves_many_connections_at_once() {
    let asking = Behaviour::asking([json!({"method": "ping"})]);
    let server = ScriptedHttp::start(Script::new().calls("x", [asking]));
    let calls: Vec<TcpStream> = (0..20).map(|_| connect(&server)).collect();
    calls.iter().for_each(|call| send(call, "", CALL));
    // No call has a response yet, and the server has sent its request on each.
    calls.iter().for_each(|call| drop(read(call, "\n\n\r\n")));
    for n in 0..20 {
        let answer = json!({"jsonrpc": "2.0", "id": format!("asked-{n}"), "result": {}});
        post(&server, &answer.to_string(), "\r\n\r\n");
    }
    assert!(calls.iter().all(|call| read(call, "0\r\n\r\n").contains(r#""answers":"#)));
}
