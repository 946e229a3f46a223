//! Drives the scripted HTTP server through bare sockets.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::{ScriptedHttp, Trouble};
use crate::{Behaviour, IdPlace, Script, SseHabit};

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

/// All that comes until the text has this end, or the connection its own.
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

/// What the server says to one request on a connection of its own, until the text has this end.
fn post(server: &ScriptedHttp, body: &str, end: &str) -> String {
    let stream = connect(server);
    send(&stream, "", body);
    read(&stream, end)
}

/// What trouble the server makes over a call; `end` where it does not close the connection.
fn check(trouble: Trouble, end: &str, expected: &str) {
    let server = ScriptedHttp::start(Script::new().tools(["x"]));
    server.next("tools/call", trouble);
    assert!(post(&server, PING, "}").contains(r#""result":{}"#), "others are spared");
    assert_eq!(post(&server, CALL, end), expected);
    assert!(post(&server, CALL, "}}").starts_with("HTTP/1.1 200 OK"), "and so is the next");
}

#[test]
fn a_call_is_answered_with_a_body_and_the_connection_kept() {
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
fn a_call_is_answered_with_a_stream_where_the_script_says_so() {
    let script = Script::new()
        .sse([SseHabit::Ids])
        .calls("x", [Behaviour::result("{}"), Behaviour::result("{}").as_json()]);
    let server = ScriptedHttp::start(script);
    let streamed = post(&server, CALL, "0\r\n\r\n");
    assert!(streamed.contains("Content-Type: text/event-stream"), "{streamed}");
    assert!(streamed.contains("id: 1\ndata: {\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{}}\n\n"), "{streamed}");
    assert!(post(&server, CALL, "}").contains("Content-Type: application/json"));
}

#[test]
fn more_than_one_message_makes_a_stream() {
    let server = ScriptedHttp::start(Script::new().calls("x", [Behaviour::text("x").after_log("working")]));
    let streamed = post(&server, CALL, "0\r\n\r\n");
    let (log, answer) = (streamed.find("working"), streamed.find(r#""result""#));
    assert!(log.is_some() && log < answer, "{streamed}");
}

#[test]
fn the_session_id_is_given_out_and_insisted_on() {
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
fn a_careless_client_is_refused() {
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
fn notifications_are_accepted_and_recorded() {
    let server = ScriptedHttp::start(Script::new());
    let body = r#"{"method":"notifications/cancelled","params":{"requestId":1}}"#;
    assert!(post(&server, body, "\r\n\r\n").starts_with("HTTP/1.1 202"));
    assert_eq!(server.wait_for("cancelled"), body);
    let request = server.wait_until(|request| request.header("ACCEPT").is_some());
    assert_eq!((request.method.as_str(), request.path.as_str()), ("POST", "/mcp"));
}

#[test]
fn what_the_client_answers_comes_back_in_the_result() {
    let server =
        ScriptedHttp::start(Script::new().calls("x", [Behaviour::asking([json!({"method": "ping"})])]));
    let call = connect(&server);
    send(&call, "", CALL);
    let question = read(&call, "\n\n\r\n");
    let data = question.split("data: ").last().unwrap().trim();
    let id = serde_json::from_str::<Value>(data).unwrap()["id"].clone();
    post(&server, &json!({"jsonrpc": "2.0", "id": id, "result": {"pong": 1}}).to_string(), "\r\n\r\n");
    assert!(
        read(&call, "0\r\n\r\n")
            .contains(r#""answers":[{"id":"asked-0","jsonrpc":"2.0","result":{"pong":1}}]"#)
    );
}

#[test]
fn answers_may_be_of_any_other_kind() {
    check(
        Trouble::redirect(307, "http://elsewhere/"),
        "\r\n\r\n",
        "HTTP/1.1 307 Redirect\r\nLocation: http://elsewhere/\r\nContent-Length: 0\r\n\r\n",
    );
    check(
        Trouble::unauthorised("Bearer"),
        "\r\n\r\n",
        "HTTP/1.1 401 Unauthorized\r\nWWW-Authenticate: Bearer\r\nContent-Length: 0\r\n\r\n",
    );
    check(
        Trouble::status(500, "oops"),
        "oops",
        "HTTP/1.1 500 Internal Server Error\r\nContent-Type: text/plain\r\nContent-Length: 4\r\n\r\noops",
    );
    check(
        Trouble::Giant { bytes: 3 },
        "xxx",
        "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 3\r\n\r\nxxx",
    );
}

#[test]
fn an_answer_may_stop_in_the_middle() {
    check(
        Trouble::CutBody,
        "",
        "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 4096\r\n\r\n{\"jsonrpc\":\"2.0\",",
    );
    check(
        Trouble::CutChunks,
        "",
        "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n11\r\n{\"jsonrpc\":\"2.0\",\r\n",
    );
    check(
        Trouble::CutStream,
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
fn a_stream_that_was_left_goes_on_after_its_last_id() {
    let behaviour = Behaviour::text("done").after_log("one").after_cut().after_log("two").after_end();
    let script = Script::new().sse([SseHabit::Ids]).calls("x", [behaviour]);
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
fn what_is_said_unasked_is_scripted_too() {
    let script = Script::new().sse([SseHabit::Primed]).on("GET", [Behaviour::end().after_list_changed()]);
    let said = read(&get(&ScriptedHttp::start(script), ""), "0\r\n\r\n");
    assert!(said.contains("id: 1\ndata:\n\n") && said.contains("list_changed"), "{said}");
}

#[test]
fn the_older_transport_answers_on_its_stream() {
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
fn a_crash_closes_the_connection_and_silence_keeps_it() {
    let script = Script::new().calls("x", [Behaviour::exit(1), Behaviour::silence()]);
    let server = ScriptedHttp::start(script);
    assert_eq!(post(&server, CALL, ""), "");
    let silent = connect(&server);
    send(&silent, "", CALL);
    silent.set_read_timeout(Some(Duration::from_millis(50))).unwrap();
    assert!((&silent).read(&mut [0]).is_err(), "neither an answer nor an end");
    silent.set_read_timeout(None).unwrap();
    server.drop_connections();
    assert_eq!(read(&silent, ""), "");
}

#[test]
fn a_trickle_takes_its_time_and_a_hasty_server_closes() {
    let server = ScriptedHttp::start(Script::new());
    server.next("ping", Trouble::Trickle { bytes: 20, every: Duration::from_millis(10) });
    server.always("*", Trouble::CloseAfter);
    let start = Instant::now();
    assert!(post(&server, PING, "{}}").contains(r#""result":{}"#));
    assert!(start.elapsed() >= Duration::from_millis(40));
    let stream = connect(&server);
    send(&stream, "", PING);
    assert!(read(&stream, "").ends_with(r#""result":{}}"#), "and then the end");
}

#[test]
fn a_big_body_has_its_length() {
    let server = ScriptedHttp::start(Script::new().calls("x", [Behaviour::big(300_000, IdPlace::After)]));
    let answer = post(&server, CALL, r#","id":1}"#);
    assert_eq!(answer.split_once("\r\n\r\n").unwrap().1.len(), 300_000);
}

#[test]
fn a_stopped_server_refuses_and_comes_back_with_other_tools() {
    let mut server = ScriptedHttp::start(Script::new().tools(["old"]));
    let held = connect(&server);
    send(&held, "", PING);
    read(&held, "}");
    server.stop();
    assert_eq!(read(&held, ""), "");
    assert!(TcpStream::connect(server.address).is_err());
    server.start_again(Script::new().tools(["new"]));
    assert!(post(&server, r#"{"id":1,"method":"tools/list"}"#, "]}}").contains(r#""name":"new""#));
    assert_eq!(server.methods(), ["ping", "tools/list"]);
}

#[test]
fn many_connections_are_served_at_once() {
    let slow = Behaviour::echo().after_delay(Duration::from_secs(2));
    let server = ScriptedHttp::start(Script::new().calls("x", [slow]));
    let start = Instant::now();
    thread::scope(|scope| {
        for _ in 0..20 {
            scope.spawn(|| post(&server, CALL, "}}"));
        }
    });
    assert!(start.elapsed() < Duration::from_secs(30), "one after another they would take longer");
}
