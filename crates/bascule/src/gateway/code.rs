//! The bridge's own tools (GW-08): `execute_code`, which runs a script, and `describe_tools`, which says what there is to
//! call. In the view `code` they are all that a client sees; in the view `all`, `execute_code` stands beside the others.

use std::sync::Arc;
use std::time::Duration;

use bascule_catalog::CatalogTool;
use bascule_script::names::camel;
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::Gateway;
use super::session::Session;
use super::wire::{Outcome, Refusal, failed_call};
use crate::config::Show;
use crate::{ScriptOutcome, ScriptRequest, Selection};

const EXECUTE: &str = "execute_code";
const DESCRIBE: &str = "describe_tools";
/// No more is said of the tools there are in the description of one.
const SUMMARY: usize = 4_000;

const HOW: &str = "Runs TypeScript that calls tools as functions, in a sandbox without files, network or `fetch`. \
A tool `list_commits` of the server `github` is `await mcp.github.listCommits({ … })`. Calls give the tool's structured \
result, else its text parsed as JSON where it is JSON; `bascule.raw(call)` gives all of it. A failed call throws an \
MCPToolError with `code`, `message`, `data` and `retryable`. Make calls that do not depend on each other at once, with \
Promise.all. What the script returns (JSON) and logs (console.log) is the result: return only what you need to see.";

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
    /// Whether a client sees the bridge's own tools alone.
    pub(super) fn shows_code(&self) -> bool {
        self.show == Show::Code
    }

    /// The definitions of the bridge's own tools that a client sees.
    pub(super) fn own_tools(&self) -> Vec<String> {
        match self.shows_code() {
            true => vec![describe_definition().to_string(), execute_definition(&self.summary()).to_string()],
            false => vec![execute_definition("").to_string()],
        }
    }

    /// Answers a call of one of the bridge's own tools; none if it is not one of them.
    pub(super) async fn call_own(&self, session: &Arc<Session>, name: &str, params: &str) -> Option<Outcome> {
        let arguments = bascule_client::patch::find(params, &["arguments"]).unwrap_or("{}");
        match name {
            EXECUTE => Some(match serde_json::from_str(arguments) {
                Ok(execute) => self.execute(session, execute).await,
                Err(error) => Ok(complaint(&format!("the arguments of `{EXECUTE}` are wrong: {error}"))),
            }),
            DESCRIBE if self.shows_code() => Some(match serde_json::from_str(arguments) {
                Ok(describe) => Ok(self.describe(&describe)),
                Err(error) => Ok(complaint(&format!("the arguments of `{DESCRIBE}` are wrong: {error}"))),
            }),
            // What a client does not see it cannot call.
            _ if self.shows_code() => {
                let said = format!("there is no tool `{name}` here: call it from a script, by `{EXECUTE}`");
                Some(Err(Refusal::new(Refusal::INVALID_PARAMS, said)))
            }
            _ => None,
        }
    }

    async fn execute(&self, session: &Arc<Session>, execute: Execute) -> Outcome {
        let tools = match execute.tools {
            None => Selection::all(),
            Some(names) => match Selection::named(names.iter().map(String::as_str)) {
                Ok(tools) => tools,
                Err(error) => return Ok(complaint(&error.to_string())),
            },
        };
        if execute.context.as_ref().is_some_and(|context| !context.get().starts_with('{')) {
            return Ok(complaint("the context must be a JSON object"));
        }
        let request = ScriptRequest {
            tools,
            context: execute.context,
            timeout: execute.timeout_ms.filter(|ms| *ms > 0).map(Duration::from_millis),
            ..ScriptRequest::new(execute.code)
        };
        // A server that keeps its clients apart keeps their scripts apart too.
        let route = |server: &str| Ok(Some(self.desk(session, server)?.server.clone()));
        match self.bridge.run_script_along(request, &route).await {
            Ok(outcome) => Ok(told(&outcome)),
            Err(error) => failed_call(error),
        }
    }

    fn describe(&self, describe: &Describe) -> String {
        let catalog = self.bridge.common.world.load().catalog.clone();
        let described: Vec<Value> = match &describe.tools {
            None => catalog.tools().map(|tool| brief(tool)).collect(),
            Some(names) => match Selection::named(names.iter().map(String::as_str)) {
                Ok(selection) => {
                    catalog.tools().filter(|tool| selection.takes(tool.id())).map(|tool| full(tool)).collect()
                }
                Err(error) => return complaint(&error.to_string()),
            },
        };
        let described = json!({ "tools": described });
        let content = [json!({ "type": "text", "text": described.to_string() })];
        json!({ "content": content, "structuredContent": described }).to_string()
    }

    /// The servers and their tools, as far as there is room.
    fn summary(&self) -> String {
        let catalog = self.bridge.common.world.load().catalog.clone();
        let mut said = String::new();
        for server in catalog.servers() {
            let tools: Vec<String> = server.tools().iter().map(|tool| camel(tool.id().tool())).collect();
            let line = format!("\nmcp.{}: {}", camel(server.name().as_str()), tools.join(", "));
            if said.len() + line.len() > SUMMARY {
                said.push_str(&format!("\n… and more: `{DESCRIBE}` lists them"));
                break;
            }
            said.push_str(&line);
        }
        said
    }
}

fn call_of(tool: &CatalogTool) -> String {
    format!("mcp.{}.{}", camel(tool.id().server()), camel(tool.id().tool()))
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

/// What a model reads first is the value, or the error; the rest is for programs.
fn told(outcome: &ScriptOutcome) -> String {
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
    // Spelled by hand: the script's value passes as it was written.
    let structured = serde_json::to_string(outcome).unwrap_or_else(|_| "null".into());
    let (content, failed) = (json!(content), !outcome.success);
    format!(r#"{{"content":{content},"structuredContent":{structured},"isError":{failed}}}"#)
}

fn complaint(said: &str) -> String {
    json!({ "content": [{ "type": "text", "text": said }], "isError": true }).to_string()
}

fn execute_definition(tools: &str) -> Value {
    let description = if tools.is_empty() { HOW.to_owned() } else { format!("{HOW}\n\nTools:{tools}") };
    json!({
        "name": EXECUTE,
        "title": "Run a script that calls tools",
        "description": description,
        "inputSchema": {
            "type": "object",
            "properties": {
                "code": { "type": "string", "description": "TypeScript; top-level await and return work" },
                "tools": {
                    "type": "array",
                    "items": { "type": "string" },
                    "description": "The tools it may call, as `server:tool` or `server:*`; all if left away",
                },
                "context": { "type": "object", "description": "JSON that the script finds as `context`" },
                "timeoutMs": { "type": "integer", "minimum": 1, "description": "How long it may run" },
            },
            "required": ["code"],
            "additionalProperties": false,
        },
    })
}

fn describe_definition() -> Value {
    json!({
        "name": DESCRIBE,
        "title": "Say which tools there are",
        "description": "Lists the tools that scripts can call. With `tools`, gives their schemas: ask for those that you \
                        are about to call.",
        "inputSchema": {
            "type": "object",
            "properties": {
                "tools": {
                    "type": "array",
                    "items": { "type": "string" },
                    "description": "`server:tool` or `server:*`",
                },
            },
            "additionalProperties": false,
        },
        "annotations": { "readOnlyHint": true },
    })
}
