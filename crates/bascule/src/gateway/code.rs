//! The bridge's own tools: `search_tools` finds tools (`search`), `describe_tools` describes them, `execute_code` runs a script
//! that calls them.
//!
//! In the view `code` clients see these three alone; in the view `all`, `execute_code` beside the tools of servers.

use std::num::NonZeroU64;
use std::sync::Arc;
use std::time::Duration;

use bascule_mcp::patch;
use bascule_model::{
    BridgeError, BridgeResult, CallOutcome, CallRequest, CorrelationId, Delivery, ErrorCode, ToolId,
};
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::Gateway;
use super::client_request::ClientRequest;
use super::correlation;
use super::kept_results::ResultPage;
use super::reply::{ErrorReply, Reply, call_failure, failed_result};
use super::script_reply::AnswerFormat;
use super::search::{DESCRIBE, SEARCH, describe_definition, search_definition, summarise};
use crate::call::{CallContext, refused_tool};
use crate::call_record::Caller;
use crate::client::ClientContext;
use crate::config::ToolView;
use crate::script::{CallFuture, ScriptCall, ScriptHost, ScriptOwner};
use crate::search::{DEFAULT_COUNT, MAX_COUNT};
use crate::tool_spelling::ToolSpellings;
use crate::{McpBridgeAdapter, ScriptRequest, ToolIntent, ToolSelection, ToolSelectionError};

const EXECUTE: &str = "execute_code";
/// The name in the record of a call that names no tool.
const UNNAMED: &str = "unnamed";

const EXECUTE_DESCRIPTION: &str = "Runs TypeScript that calls tools as functions, in a sandbox without files, network, imports, `require` or \
`fetch`. The tool `list_commits` of the server `github` is `await mcp.github.listCommits({ … })`. A call returns the tool's \
structured result; without one, its text, parsed if it is JSON (numbers such as `1.10` stay text). `bascule.raw(call)` \
returns the whole MCP result with `content`. A failed call throws an MCPToolError with `code`, `message`, `data` and \
`retryable`. Run independent reads in parallel with Promise.all. Top-level `await` and `return` work. You get the returned \
value (JSON) and the console output: return only the data you need. `await mcp.search('open an issue', { k: 5, detail: \
'types' })` finds tools, and `await mcp.describe(['github:list_commits'])` describes them: both return arrays of objects \
with `id`, `call` and `signature`; `bascule.call(id, { … })` calls a tool by its id.";

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Execute {
    code: String,
    tools: Option<Vec<String>>,
    intent: Option<String>,
    k: Option<usize>,
    context: Option<Box<RawValue>>,
    timeout_ms: Option<NonZeroU64>,
    #[serde(default)]
    details: bool,
}

impl Gateway {
    /// Returns true if clients see the bridge's own tools alone.
    pub(super) fn shows_code(&self) -> bool {
        self.show == ToolView::Code
    }

    /// Returns the definitions of the bridge's own tools.
    pub(super) fn own_tools(&self, client: &Arc<ClientContext>) -> Vec<String> {
        let summary = if self.shows_code() { self.summary(client) } else { String::new() };
        own_definitions(self.show, &summary).iter().map(Value::to_string).collect()
    }

    /// Returns true if the bridge itself handles calls of this tool. In the view `code` it handles all of them.
    pub(super) fn is_own_tool(&self, name: &str) -> bool {
        name == EXECUTE || self.shows_code()
    }

    /// Handles a call of one of the bridge's own tools.
    pub(super) async fn call_own(&self, request: &ClientRequest<'_>, name: &str) -> Reply {
        let arguments = patch::find(request.params(), &["arguments"]).unwrap_or("{}");
        let invalid = |error| {
            failure_result(&format!("the arguments of `{name}` are wrong: {error}"), request.correlation_id())
        };
        match name {
            EXECUTE => match serde_json::from_str(arguments) {
                Ok(execute) => self.execute(request, execute).await,
                Err(error) => {
                    let message = format!("the arguments of `{name}` are wrong: {error}");
                    Ok(self.refuse_script(request, arguments, &message))
                }
            },
            SEARCH => match serde_json::from_str(arguments) {
                Ok(arguments) => Ok(self.search(request, arguments).await),
                Err(error) => Ok(invalid(error)),
            },
            DESCRIBE => match serde_json::from_str(arguments) {
                Ok(arguments) => Ok(self.describe(arguments).await),
                Err(error) => Ok(invalid(error)),
            },
            // A client can call only the tools that it sees.
            _ => {
                let message = format!("there is no tool `{name}`: call it from a script, with `{EXECUTE}`");
                self.record_unknown(request, name, &message);
                Err(ErrorReply::invalid_params(message))
            }
        }
    }

    /// Records the call of a tool that the client does not see.
    pub(super) fn record_unknown(&self, request: &ClientRequest<'_>, shown: &str, message: &str) {
        let (server, tool) = shown.split_once("__").unwrap_or(("", shown));
        self.record_refused(request, refused_tool(server, tool), ErrorCode::ToolNotFound, message);
    }

    /// Records a call whose parameters name no tool, or may be read in two ways.
    pub(super) fn record_invalid(
        &self,
        request: &ClientRequest<'_>,
        server: &str,
        tool: &str,
        message: &str,
    ) {
        let tool = if tool.is_empty() { UNNAMED } else { tool };
        self.record_refused(request, refused_tool(server, tool), ErrorCode::InvalidInput, message);
    }

    fn record_refused(&self, request: &ClientRequest<'_>, tool: ToolId, code: ErrorCode, message: &str) {
        let arguments = patch::find(request.params(), &["arguments"]).unwrap_or("{}");
        let Ok(arguments) = RawValue::from_string(arguments.to_owned()) else { return };
        let call = CallRequest { tool, arguments, timeout: None };
        let caller = Caller::of_client(request.client, request.trace());
        let error = BridgeError::new(code, Delivery::NotSent, message);
        self.bridge.record_refusal(&call, caller, request.correlation_id(), None, error);
    }

    /// Records a script that cannot start, and returns the answer. `code` is as much of it as is known.
    fn refuse_script(&self, request: &ClientRequest<'_>, code: &str, message: &str) -> String {
        let correlation_id = Some(request.correlation_id().clone());
        let script = ScriptRequest { correlation_id, ..ScriptRequest::new(code.to_owned()) };
        let caller = Caller::of_client(request.client, request.trace());
        self.bridge.record_refused_script(caller, &script, message);
        failure_result(message, request.correlation_id())
    }

    async fn execute(&self, request: &ClientRequest<'_>, execute: Execute) -> Reply {
        let tools = match execute.tools {
            None => ToolSelection::all(),
            Some(names) => match self.selection(&names) {
                Ok(tools) => tools,
                Err(error) => return Ok(self.refuse_script(request, &execute.code, &error.to_string())),
            },
        };
        if execute.context.as_ref().is_some_and(|context| !context.get().starts_with('{')) {
            let message = "the context must be a JSON object";
            return Ok(self.refuse_script(request, &execute.code, message));
        }
        let script = ScriptRequest {
            tools,
            intent: execute.intent.map(|text| tool_intent(text, execute.k)),
            context: execute.context,
            // A client can shorten the configured timeout, not extend it.
            timeout: execute.timeout_ms.map(|ms| Duration::from_millis(ms.get()).min(self.longest())),
            correlation_id: Some(request.correlation_id().clone()),
            ..ScriptRequest::new(execute.code)
        };
        let owner = ScriptOwner::Client(request.client.group.clone());
        let caller = |call| -> CallFuture<'_> { Box::pin(self.call_for_script(request, call)) };
        let session = request.client.serial;
        let kept_result = |id: &str| self.kept_results.get(session, id);
        let token = patch::find(request.params(), &["_meta", "progressToken"]);
        let progress = token.map(|token| request.progress_sink(token));
        let host = ScriptHost { caller: &caller, kept_result: &kept_result, progress };
        let caller = Caller::of_client(request.client, request.trace());
        match self.bridge.run_script_with(owner, caller, script, host).await {
            Ok(outcome) => Ok(self.answer(session, execute.details).build(&outcome)),
            Err(mut error) => {
                error.correlation_id.get_or_insert_with(|| request.correlation_id().clone());
                call_failure(error)
            }
        }
    }

    /// Selects tools by name, in any spelling that names one tool.
    fn selection(&self, names: &[String]) -> Result<ToolSelection, ToolSelectionError> {
        // Each name is compared with all tools.
        ToolSelection::check_count(names.len())?;
        let catalog = self.bridge.catalog();
        let spellings = ToolSpellings::new(&catalog);
        let id = |name: &String| match spellings.find(name).as_slice() {
            [tool] => tool.id().to_string(),
            _ => name.clone(),
        };
        let names: Vec<String> = names.iter().map(id).collect();
        ToolSelection::parse(names.iter().map(String::as_str))
    }

    fn answer(&self, session: u64, is_detailed: bool) -> AnswerFormat<'_> {
        AnswerFormat { results: &self.kept_results, session, budget: self.text_budget(), is_detailed }
    }

    /// Reads a page of a result that was kept for this client; `None` if the URI is none of a kept result.
    pub(super) fn read_kept_result(&self, request: &ClientRequest<'_>, uri: &str) -> Option<Reply> {
        let page = ResultPage::parse(uri)?;
        if let Some(text) = self.kept_results.get(request.client.serial, page.id) {
            return Some(Ok(page.read(uri, &text, self.text_budget())));
        }
        let is_server = self.bridge.fleet.snapshot.load().settings.server("results").is_some();
        let message =
            format!("there is no `{uri}`: results are kept for half an hour, for the session that made them");
        (!is_server).then(|| Err(ErrorReply::new(-32002, message)))
    }

    /// The longest text of an answer.
    pub(super) fn text_budget(&self) -> usize {
        self.bridge.fleet.snapshot.load().settings.bridge.scripts.max_text_bytes as usize
    }

    /// Makes a script's call for its client: the server's messages during the call go to that client.
    async fn call_for_script(
        &self,
        request: &ClientRequest<'_>,
        call: ScriptCall,
    ) -> BridgeResult<CallOutcome> {
        let upstream = self.upstream(request.client, call.request.tool.server());
        let context = CallContext {
            caller: call.caller,
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
}

/// Returns the definitions of the bridge's own tools in a view, for a client without a server of its own.
pub(crate) fn definitions_in_view(bridge: &McpBridgeAdapter, view: ToolView) -> Vec<Value> {
    own_definitions(view, &summarise(&bridge.fleet.snapshot.load_full(), |server| server.info()))
}

fn own_definitions(view: ToolView, summary: &str) -> Vec<Value> {
    match view {
        ToolView::Code => vec![search_definition(), describe_definition(), execute_definition(summary)],
        ToolView::All => vec![execute_definition("")],
    }
}

pub(super) fn failure_result(message: &str, id: &CorrelationId) -> String {
    failed_result(message, meta(id)).to_string()
}

/// Returns the `_meta` of a failure that has no normalised error.
fn meta(id: &CorrelationId) -> Value {
    json!({ correlation::MEMBER: id })
}

fn tool_intent(text: String, count: Option<usize>) -> ToolIntent {
    ToolIntent { text, count: count.unwrap_or(DEFAULT_COUNT).clamp(1, MAX_COUNT) }
}

/// Tells hosts that load tools on demand to load this one at once: it leads to the others.
pub(super) fn always_loaded() -> Value {
    json!({ "anthropic/alwaysLoad": true })
}

fn execute_definition(tools: &str) -> Value {
    let description = if tools.is_empty() {
        EXECUTE_DESCRIPTION.to_owned()
    } else {
        format!("{EXECUTE_DESCRIPTION}\n\nTools:{tools}")
    };
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
                "intent": {
                    "type": "string",
                    "description": "Purpose of the script: only the best tools for it are provided. Default: all tools.",
                },
                "k": { "type": "integer", "minimum": 1, "description": "Number of tools for the intent. Default: 5." },
                "context": { "type": "object", "description": "A JSON object that the script sees as `context`." },
                "timeoutMs": { "type": "integer", "minimum": 1, "description": "Time limit in milliseconds. Default and maximum: the bridge's own limit." },
                "details": { "type": "boolean", "description": "Also return all traces and the tools of the script, in `_meta`." },
            },
            "required": ["code"],
            "additionalProperties": false,
        },
        "_meta": always_loaded(),
    })
}
