//! Measures the check of a script before its first call, and the types of tools.

use std::fmt::Write;
use std::time::Instant;

use bascule::{McpBridgeAdapter, ScriptRequest, ToolSelection};
use bascule_catalog::CatalogTool;
use bascule_model::{ServerName, ToolDefinition};
use serde_json::value::{RawValue, to_raw_value};

use crate::{median, micros, real_ids, tools};

/// The number of tools that the script calls.
pub(crate) const TOOLS: usize = 32;

/// Returns a script of 100 lines that calls real tools and uses their results. Its last line has a mistake that the check
/// finds, so nothing is called.
fn long_script() -> String {
    let mut code = String::new();
    let real = tools::real_tools(TOOLS);
    for (n, tool) in real.iter().enumerate() {
        let name = tool["name"].as_str().unwrap();
        writeln!(code, "const result{n} = await bascule.call('real:{name}', {{ ...context, page: {n} }});")
            .unwrap();
        writeln!(
            code,
            "const lines{n} = String(result{n}).split('\\n').filter((line) => line.length > {n});"
        )
        .unwrap();
        writeln!(
            code,
            "console.log(`${{lines{n}.length}} lines`, lines{n}.map((line) => line.trim()).join());"
        )
        .unwrap();
    }
    code + "const total = 0;\nconst one = 1;\ntotal += one;\nreturn total;\n"
}

/// Returns the median time from the request to the refusal of a script of 100 lines.
pub(crate) async fn stopped_script(bridge: &McpBridgeAdapter, scripts: usize) -> f64 {
    let code = long_script();
    assert_eq!(code.lines().count(), 100);
    let mut each = Vec::with_capacity(scripts);
    for _ in 0..scripts {
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
        let tools = ToolSelection::parse(real_ids(TOOLS).iter().map(String::as_str)).unwrap();
        let request = ScriptRequest { tools, ..ScriptRequest::new(code.clone()) };
        let begin = Instant::now();
        let outcome = bridge.run_script(request).await.unwrap();
        each.push(micros(begin.elapsed()));
        let error = outcome.error.unwrap();
        assert!(error.message.contains("before any call"), "{error:?}");
    }
    median(each)
}

/// Returns the median time of the signatures of five real tools: the first time, and from the cache.
pub(crate) fn signatures(rounds: usize) -> (f64, f64) {
    let definitions: Vec<_> = tools::real_tools(5).iter().map(|tool| to_raw_value(tool).unwrap()).collect();
    let server = ServerName::parse("real").unwrap();
    let (mut cold, mut cached) = (Vec::new(), Vec::new());
    for _ in 0..rounds {
        let new = |raw: &RawValue| CatalogTool::new(&server, ToolDefinition::parse(raw.to_owned()).unwrap());
        let tools: Vec<CatalogTool> = definitions.iter().map(|raw| new(raw)).collect();
        let time = || {
            let begin = Instant::now();
            let length: usize = tools.iter().map(|tool| tool.signature("mcp.real.tool").len()).sum();
            assert!(length > 100);
            micros(begin.elapsed())
        };
        cold.push(time());
        cached.push(time());
    }
    (median(cold), median(cached))
}
