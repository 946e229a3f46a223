//! Tests long results of scripts: they are cut, kept for their session, and read in pages.

use serde_json::{Value, json};

use super::demo_servers;
use crate::fleet::serve_process::ServeProcess;
use crate::gateway::client::Client;
use crate::support::text;

const LONG: &str = "return Array.from({ length: 20_000 }, (_, n) => `row ${n}`)";

fn execute(client: &Client, code: &str) -> Value {
    client.call("execute_code", &json!({ "code": code }))["result"].clone()
}

// req: CM-15
#[test]
fn long_result_is_cut_and_read_in_pages() {
    let serving = ServeProcess::start(demo_servers());
    let client = Client::connect(serving.address(), "/mcp");
    let result = execute(&client, LONG);
    assert!(
        text(&result).len() < 51_000 && text(&result).starts_with("[\"row 0\""),
        "{}",
        text(&result).len()
    );
    let handle = &result["structuredContent"]["resultHandle"];
    let (mut uri, mut whole) = (handle["uri"].as_str().unwrap().to_owned(), String::new());
    assert!(text(&result).contains(&uri));
    loop {
        let page = client.request("resources/read", &json!({ "uri": uri }));
        let content = &page["result"]["contents"][0];
        whole.push_str(content["text"].as_str().unwrap_or_else(|| panic!("{page:#}")));
        match content["_meta"]["bascule/page"]["next"].as_str() {
            Some(next) => uri = next.to_owned(),
            None => break,
        }
    }
    assert_eq!(whole.len() as u64, handle["bytes"].as_u64().unwrap());
    assert_eq!(serde_json::from_str::<Vec<String>>(&whole).unwrap()[19_999], "row 19999");
    let id = handle["id"].as_str().unwrap();
    let again = execute(&client, &format!("return (await bascule.result('{id}')).slice(-1)"));
    assert_eq!(again["structuredContent"]["result"], json!(["row 19999"]), "{again:#}");
    let none = execute(&client, "try { await bascule.result('r999') } catch (e) { return e.message }");
    assert!(text(&none).contains("there is no result `r999`"), "{none:#}");
}

// req: CM-15
#[test]
fn kept_result_belongs_to_its_session() {
    let serving = ServeProcess::start(demo_servers());
    let client = Client::connect(serving.address(), "/mcp");
    let handle = execute(&client, LONG)["structuredContent"]["resultHandle"].clone();
    let other = Client::connect(serving.address(), "/mcp");
    assert!(other.request("resources/read", &json!({ "uri": handle["uri"] }))["error"].is_object());
    let code = format!("return await bascule.result('{}')", handle["id"].as_str().unwrap());
    assert_eq!(execute(&other, &code)["isError"], true);
    assert!(client.request("resources/read", &json!({ "uri": handle["uri"] }))["result"].is_object());
}

// req: CM-15
#[test]
fn long_console_output_is_cut() {
    let serving = ServeProcess::start(demo_servers());
    let client = Client::connect(serving.address(), "/mcp");
    let result = execute(&client, "for (let n = 0; n < 5000; n++) console.log('line', n); return 'short'");
    assert!(
        text(&result).len() < 52_000 && text(&result).starts_with("\"short\"\n\nconsole:\nlog: line 0\n")
    );
    assert_eq!(result["structuredContent"]["result"], "short");
    assert!(result["structuredContent"]["logsHandle"]["bytes"].as_u64().unwrap() > 50_000, "{result:#}");
}

// req: CM-15
#[test]
fn client_that_asks_receives_progress() {
    let serving = ServeProcess::start(demo_servers());
    let client = Client::connect(serving.address(), "/mcp");
    let params = json!({
        "name": "execute_code",
        "arguments": { "code": "await trouble.sleep({ ms: 1300 }); return 1" },
        "_meta": { "progressToken": "p" },
    });
    let mut answer = client.send_request("9", "tools/call", &params.to_string());
    let progress = answer.wait_for_method("notifications/progress");
    assert_eq!(progress["params"]["progressToken"], "p");
    assert!(progress["params"]["message"].as_str().unwrap().contains("1 under way"), "{progress:#}");
    assert_eq!(answer.result()["structuredContent"]["result"], 1);
}
