//! The bridge's own tools (GW-08): `execute_code` runs a script, `describe_tools` describes the tools that scripts can call.
//!
//! In the view `code` clients see these two alone; in the view `all`, `execute_code` beside the tools of servers.

use std::time::Duration;

use bascule_catalog::CatalogTool;
use bascule_mcp::patch;
use bascule_model::{BridgeResult, CallOutcome};
use bascule_script::names::{self, to_camel_case};
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::Gateway;
use super::client_request::ClientRequest;
use super::reply::{ErrorReply, Reply, call_failure};
use crate::call::CallContext;
use crate::call_record::{Caller, Face};
use crate::config::ToolView;
use crate::script::ScriptCall;
use crate::{ScriptOutcome, ScriptRequest, ToolSelection};

const EXECUTE: &str = "execute_code";
const DESCRIBE: &str = "describe_tools";
/// The longest list of tools in a description, in bytes.
const SUMMARY: usize = 4_000;

const HOW: &str = "Runs TypeScript that calls tools as functions, in a sandbox without files, network or `fetch`. The tool \
`list_commits` of the server `github` is `await mcp.github.listCommits({ … })`. A call returns the tool's structured \
result; without one, its text, parsed if it is JSON. `bascule.raw(call)` returns the whole result. A failed call throws an \
MCPToolError with `code`, `message`, `data` and `retryable`. Run independent calls in parallel with Promise.all. Top-level \
`await` and `return` work. You get the returned value (JSON) and the console output: return only the data you need.";

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Execute {
    code: String,
    tools: Option<Vec<String>>,
    context: Option<Box<RawValue>>,
    timeout_ms: Option<u64>,
}

#[derive(Deserialize, Default)]
#[serde(default, deny_unknown_fields)]
struct Describe {
    tools: Option<Vec<String>>,
}

impl Gateway {
    /// Returns true if clients see the bridge's own tools alone.
    pub(super) fn shows_code(&self) -> bool {
        self.show == ToolView::Code
    }

    /// Returns the definitions of the bridge's own tools.
    pub(super) fn own_tools(&self) -> Vec<String> {
        match self.shows_code() {
            true => vec![describe_definition().to_string(), execute_definition(&self.summary()).to_string()],
            false => vec![execute_definition("").to_string()],
        }
    }

    /// Returns true if the bridge itself handles calls of this tool. In the view `code` it handles all of them.
    pub(super) fn is_own_tool(&self, name: &str) -> bool {
        name == EXECUTE || self.shows_code()
    }

    /// Handles a call of one of the bridge's own tools.
    pub(super) async fn call_own(&self, request: &ClientRequest<'_>, name: &str) -> Reply {
        let arguments = patch::find(request.params(), &["arguments"]).unwrap_or("{}");
        let invalid = |error| failure_result(&format!("the arguments of `{name}` are wrong: {error}"));
        match name {
            EXECUTE => match serde_json::from_str(arguments) {
                Ok(execute) => self.execute(request, execute).await,
                Err(error) => Ok(invalid(error)),
            },
            DESCRIBE => {
                Ok(serde_json::from_str(arguments).map_or_else(invalid, |tools| self.describe(&tools)))
            }
            // A client can call only the tools that it sees.
            _ => {
                let message = format!("there is no tool `{name}`: call it from a script, with `{EXECUTE}`");
                Err(ErrorReply::invalid_params(message))
            }
        }
    }

    async fn execute(&self, request: &ClientRequest<'_>, execute: Execute) -> Reply {
        let tools = match execute.tools {
            None => ToolSelection::all(),
            Some(names) => match ToolSelection::parse(names.iter().map(String::as_str)) {
                Ok(tools) => tools,
                Err(error) => return Ok(failure_result(&error.to_string())),
            },
        };
        if execute.context.as_ref().is_some_and(|context| !context.get().starts_with('{')) {
            return Ok(failure_result("the context must be a JSON object"));
        }
        let script = ScriptRequest {
            tools,
            context: execute.context,
            // A client can shorten the configured timeout, not extend it.
            timeout: execute.timeout_ms.map(|ms| Duration::from_millis(ms.max(1)).min(self.longest())),
            ..ScriptRequest::new(execute.code)
        };
        match self.bridge.run_script_with(script, &|call| Box::pin(self.call_for_script(request, call))).await
        {
            Ok(outcome) => Ok(outcome_result(&outcome)),
            Err(error) => call_failure(error),
        }
    }

    /// Makes a script's call for its client: the server's messages during the call go to that client.
    async fn call_for_script(
        &self,
        request: &ClientRequest<'_>,
        call: ScriptCall,
    ) -> BridgeResult<CallOutcome> {
        let upstream = self.upstream(request.client, call.request.tool.server());
        let context = CallContext {
            caller: Caller { script: Some(call.script), ..Caller::of_client(Face::Mcp, request.client) },
            server: Some(upstream.as_ref().map(|upstream| upstream.server.clone()).map_err(Clone::clone)),
            origin: request.origin(),
            observer: Some(&*call.observer),
            ..CallContext::default()
        };
        let result = self.bridge.call_with(call.request, context, call.correlation_id).await;
        result.map_err(|error| match &upstream {
            Ok(upstream) => upstream.redacted(error),
            Err(_) => error,
        })
    }

    fn longest(&self) -> Duration {
        self.bridge.fleet.snapshot.load().settings.bridge.scripts.timeout
    }

    fn describe(&self, describe: &Describe) -> String {
        let catalog = self.bridge.fleet.snapshot.load().catalog.clone();
        let described: Vec<Value> = match &describe.tools {
            None => catalog.tools().filter(|tool| is_callable(tool)).map(|tool| brief(tool)).collect(),
            Some(names) => match ToolSelection::parse(names.iter().map(String::as_str)) {
                Ok(selection) => {
                    let wanted =
                        catalog.tools().filter(|tool| selection.includes(tool.id()) && is_callable(tool));
                    wanted.map(|tool| full(tool)).collect()
                }
                Err(error) => return failure_result(&error.to_string()),
            },
        };
        let described = json!({ "tools": described });
        let content = [json!({ "type": "text", "text": described.to_string() })];
        json!({ "content": content, "structuredContent": described }).to_string()
    }

    /// Lists the servers and their tools, as far as there is room.
    fn summary(&self) -> String {
        let catalog = self.bridge.fleet.snapshot.load().catalog.clone();
        let mut summary = String::new();
        for server in catalog.servers() {
            let callable = server.tools().iter().filter(|tool| is_callable(tool));
            let tools: Vec<String> = callable.map(|tool| to_camel_case(tool.id().tool())).collect();
            let line = format!("\nmcp.{}: {}", to_camel_case(server.name().as_str()), tools.join(", "));
            if summary.len() + line.len() > SUMMARY {
                summary.push_str(&format!("\n… and more: `{DESCRIBE}` lists them"));
                break;
            }
            summary.push_str(&line);
        }
        summary
    }
}

/// Returns true if scripts can call the tool.
fn is_callable(tool: &CatalogTool) -> bool {
    names::check(tool.id().server(), tool.id().tool()).is_ok()
}

/// Returns the expression with which a script calls the tool: camelCase where that is a JavaScript name.
fn call_of(tool: &CatalogTool) -> String {
    let part = |name: &str| match to_camel_case(name) {
        camel if camel.starts_with(|first: char| first.is_ascii_alphabetic()) => format!(".{camel}"),
        _ => format!("[\"{name}\"]"),
    };
    format!("mcp{}{}", part(tool.id().server()), part(tool.id().tool()))
}

fn brief(tool: &CatalogTool) -> Value {
    let first = tool.definition().description.as_deref().and_then(|text| text.lines().next()).unwrap_or("");
    json!({ "id": tool.id(), "call": call_of(tool), "description": first })
}

fn full(tool: &CatalogTool) -> Value {
    let definition = tool.definition();
    json!({
        "id": tool.id(),
        "call": call_of(tool),
        "description": definition.description,
        "inputSchema": definition.input_schema,
        "outputSchema": definition.output_schema,
    })
}

/// Builds the result of `execute_code`. The text, which models read, begins with the value or the error.
fn outcome_result(outcome: &ScriptOutcome) -> String {
    let mut text = match (&outcome.error, &outcome.result) {
        (Some(error), _) => {
            error.stack.clone().unwrap_or_else(|| format!("{}: {}", error.name, error.message))
        }
        (None, Some(result)) => result.get().to_owned(),
        (None, None) => "null".into(),
    };
    if !outcome.logs.is_empty() {
        let lines = outcome.logs.iter().map(|line| format!("{}: {}", line.level, line.text));
        text.push_str(&format!("\n\nconsole:\n{}", lines.collect::<Vec<_>>().join("\n")));
    }
    let content = [json!({ "type": "text", "text": text })];
    // Formatted by hand: the script's value stays byte for byte.
    let structured = serde_json::to_string(outcome).expect("all of it is JSON");
    let (content, failed) = (json!(content), !outcome.success);
    format!(r#"{{"content":{content},"structuredContent":{structured},"isError":{failed}}}"#)
}

fn failure_result(message: &str) -> String {
    json!({ "content": [{ "type": "text", "text": message }], "isError": true }).to_string()
}

fn execute_definition(tools: &str) -> Value {
    let description = if tools.is_empty() { HOW.to_owned() } else { format!("{HOW}\n\nTools:{tools}") };
    json!({
        "name": EXECUTE,
        "title": "Run a script",
        "description": description,
        "inputSchema": {
            "type": "object",
            "properties": {
                "code": { "type": "string", "description": "The script, in TypeScript." },
                "tools": {
                    "type": "array",
                    "items": { "type": "string" },
                    "description": "Tools the script may call (`server:tool` or `server:*`). Default: all.",
                },
                "context": { "type": "object", "description": "A JSON object that the script sees as `context`." },
                "timeoutMs": { "type": "integer", "minimum": 1, "description": "Time limit in milliseconds. Default and maximum: the bridge's own limit." },
            },
            "required": ["code"],
            "additionalProperties": false,
        },
    })
}

fn describe_definition() -> Value {
    json!({
        "name": DESCRIBE,
        "title": "Describe tools",
        "description": "Lists the tools that scripts can call. With `tools`, returns the schemas of those tools: ask for \
                        the tools that you are about to call.",
        "inputSchema": {
            "type": "object",
            "properties": {
                "tools": {
                    "type": "array",
                    "items": { "type": "string" },
                    "description": "Tools to describe (`server:tool` or `server:*`). Default: a list of all, without schemas.",
                },
            },
            "additionalProperties": false,
        },
        "annotations": { "readOnlyHint": true },
    })
}
