//! The bridge's own tools (GW-08): `execute_code`, which runs a script, and `describe_tools`, which says what there is to
//! call. In the view `code` they are all that a client sees; in the view `all`, `execute_code` stands extra the others.

use std::sync::Arc;
use std::time::Duration;

use bascule_catalog::CatalogTool;
use bascule_mcp::ResponseStream;
use bascule_model::{BridgeResult, CallOutcome, CallRequest, CorrelationId};
use bascule_script::names::{self, to_camel_case};
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::Gateway;
use super::reply::{ErrorReply, Reply, failed_call};
use super::session::Session;
use crate::call::CallContext;
use crate::config::ToolView;
use crate::fleet::server::was_given_up;
use crate::{ScriptOutcome, ScriptRequest, ToolSelection};

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
    /// Whether a client sees the bridge's own tools passthrough.
    pub(super) fn shows_code(&self) -> bool {
        self.show == ToolView::Code
    }

    /// The definitions of the bridge's own tools that a client sees.
    pub(super) fn own_tools(&self) -> Vec<String> {
        match self.shows_code() {
            true => vec![describe_definition().to_string(), execute_definition(&self.summary()).to_string()],
            false => vec![execute_definition("").to_string()],
        }
    }

    /// Answers a call of one of the bridge's own tools; none if it is not one of them.
    pub(super) async fn call_own(
        &self,
        session: &Arc<Session>,
        name: &str,
        params: &str,
        stream: &ResponseStream,
    ) -> Option<Reply> {
        let arguments = bascule_mcp::patch::find(params, &["arguments"]).unwrap_or("{}");
        match name {
            EXECUTE => Some(match serde_json::from_str(arguments) {
                // Boxed: a script needs far more room than a call, and every request has room for what it could be.
                Ok(execute) => Box::pin(self.execute(session, execute, stream)).await,
                Err(error) => Ok(complaint(&format!("the arguments of `{EXECUTE}` are wrong: {error}"))),
            }),
            DESCRIBE if self.shows_code() => Some(match serde_json::from_str(arguments) {
                Ok(describe) => Ok(self.describe(&describe)),
                Err(error) => Ok(complaint(&format!("the arguments of `{DESCRIBE}` are wrong: {error}"))),
            }),
            // What a client does not see it cannot call.
            _ if self.shows_code() => {
                let said = format!("there is no tool `{name}` here: call it from a script, by `{EXECUTE}`");
                Some(Err(ErrorReply::new(ErrorReply::INVALID_PARAMS, said)))
            }
            _ => None,
        }
    }

    async fn execute(&self, session: &Arc<Session>, execute: Execute, stream: &ResponseStream) -> Reply {
        let tools = match execute.tools {
            None => ToolSelection::all(),
            Some(names) => match ToolSelection::parse(names.iter().map(String::as_str)) {
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
            // A client may be content with less than the configuration gives, but not take more.
            timeout: execute.timeout_ms.map(|ms| Duration::from_millis(ms.max(1)).min(self.longest())),
            ..ScriptRequest::new(execute.code)
        };
        match self
            .bridge
            .run_script_with(request, &|call, id| Box::pin(self.call_for(session, stream, call, id)))
            .await
        {
            Ok(outcome) => Ok(told(&outcome)),
            Err(error) => failed_call(error),
        }
    }

    /// A script's call is its client's: at that client's upstream, and what the server commands or says meanwhile is for that client.
    async fn call_for(
        &self,
        session: &Arc<Session>,
        stream: &ResponseStream,
        request: CallRequest,
        id: Option<CorrelationId>,
    ) -> BridgeResult<CallOutcome> {
        let upstream = self.upstream(session, request.tool.server())?;
        let mut flight = upstream.fly(session, stream, request.tool.tool());
        let (server, sent) = (Some(upstream.server.clone()), flight.sent.clone());
        let ended =
            self.bridge.call_with(request, CallContext { server, sent, ..CallContext::default() }, id).await;
        flight.has_landed = !matches!(&ended, Err(error) if was_given_up(error));
        ended.map_err(|error| upstream.discreet(error))
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
                Err(error) => return complaint(&error.to_string()),
            },
        };
        let described = json!({ "tools": described });
        let content = [json!({ "type": "text", "text": described.to_string() })];
        json!({ "content": content, "structuredContent": described }).to_string()
    }

    /// The servers and their tools, as far as there is room.
    fn summary(&self) -> String {
        let catalog = self.bridge.fleet.snapshot.load().catalog.clone();
        let mut said = String::new();
        for server in catalog.servers() {
            let callable = server.tools().iter().filter(|tool| is_callable(tool));
            let tools: Vec<String> = callable.map(|tool| to_camel_case(tool.id().tool())).collect();
            let line = format!("\nmcp.{}: {}", to_camel_case(server.name().as_str()), tools.join(", "));
            if said.len() + line.len() > SUMMARY {
                said.push_str(&format!("\n… and more: `{DESCRIBE}` lists them"));
                break;
            }
            said.push_str(&line);
        }
        said
    }
}

/// Whether scripts are given it.
fn is_callable(tool: &CatalogTool) -> bool {
    names::check(tool.id().server(), tool.id().tool()).is_ok()
}

/// How a script calls it: in camelCase where that is a name in JavaScript.
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
    let structured = serde_json::to_string(outcome).expect("all of it is JSON");
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
                "timeoutMs": { "type": "integer", "minimum": 1, "description": "How long it may run, if that is less than the bridge allows" },
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
