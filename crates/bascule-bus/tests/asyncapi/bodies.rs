//! The bodies of all messages: descriptions, schemas, and examples that are values of the types.

use std::time::Duration;

use bascule_bus::{
    AgentName, ContentTrust, DeadLetter, Envelope, ErrorDetails, Headers, McpMetadataRefreshRequest,
    McpToolsAvailable, MessageBody, MessageId, MessageIdGenerator, ResultObject, ResultParts, ServerState,
    Timestamp, ToolCancelRequest, ToolError, ToolInvokeRequest, ToolInvokeResponse, ToolProgress,
    ToolResultPart, event_envelope,
};
use bascule_model::{
    BridgeError, CorrelationId, Delivery, ErrorCode, Event, ExpectedResult, Health, ServerName, ToolId,
};
use serde_json::value::RawValue;
use serde_json::{Value, json};

use crate::schema::*;

/// A kind of message.
pub(crate) struct MessageKind {
    pub(crate) name: String,
    pub(crate) summary: &'static str,
    pub(crate) headers: Headers,
    pub(crate) schema: Value,
    /// Examples of the body with their descriptions.
    pub(crate) examples: Vec<(&'static str, Value)>,
}

/// Panics if the type of the message does not read its body.
pub(crate) fn check_reads(envelope: &Envelope) {
    fn read<T: MessageBody>(body: &str) {
        serde_json::from_str::<T>(body).unwrap();
    }
    let body = envelope.body.get();
    match &*envelope.kind {
        ToolInvokeRequest::KIND => read::<ToolInvokeRequest>(body),
        ToolInvokeResponse::KIND => read::<ToolInvokeResponse>(body),
        ToolError::KIND => read::<ToolError>(body),
        ToolCancelRequest::KIND => read::<ToolCancelRequest>(body),
        ToolProgress::KIND => read::<ToolProgress>(body),
        ToolResultPart::KIND => read::<ToolResultPart>(body),
        McpToolsAvailable::KIND => read::<McpToolsAvailable>(body),
        McpMetadataRefreshRequest::KIND => read::<McpMetadataRefreshRequest>(body),
        DeadLetter::KIND => read::<DeadLetter>(body),
        event => assert!(event.starts_with("provider.mcp."), "`{event}` is described, but has no type"),
    }
}

pub(crate) fn messages() -> Vec<MessageKind> {
    vec![request(), response(), error(), cancel(), progress(), part(), available(), refresh(), dead_letter()]
}

fn raw(value: Value) -> Box<RawValue> {
    serde_json::value::to_raw_value(&value).unwrap()
}

fn message<T: MessageBody>(
    summary: &'static str,
    trust: ContentTrust,
    full: &T,
    fields: &[Field],
    examples: Vec<(&'static str, T)>,
) -> MessageKind {
    let value = |(text, body): (&'static str, T)| (text, serde_json::to_value(body).unwrap());
    MessageKind {
        name: T::KIND.to_owned(),
        summary,
        headers: trust.to_headers(),
        schema: of_type(summary, full, fields),
        examples: examples.into_iter().map(value).collect(),
    }
}

fn tool_name() -> Field {
    ("toolName", text("The tool as it was called: `server:tool`."))
}

fn call_id() -> Field {
    ("toolCallId", text("The agent's own id of the call, as the request had it."))
}

fn request() -> MessageKind {
    let full = ToolInvokeRequest {
        tool_call_id: "call-1".into(),
        tool_name: "notes:search_notes".into(),
        arguments: Some(raw(json!({"query": "drawbridge"}))),
        deadline: Some(Timestamp::parse("2026-03-01T12:00:58Z").unwrap()),
        progress: true,
    };
    let short = ToolInvokeRequest {
        tool_call_id: "call-2".into(),
        tool_name: "clock:now".into(),
        arguments: None,
        deadline: None,
        progress: false,
    };
    let fields = [
        ("toolCallId", text("The agent's own id of the call. Answers repeat it.")),
        tool_name(),
        ("arguments", any_object("The arguments. Default: `{}`.")),
        (
            "deadline",
            time(
                "The call must be answered by then: a later one is not run, and one that still runs is ended, with the error `timeout`. Default: 60 s after the broker stored the request (NATS), or after `timestamp` (RabbitMQ).",
            ),
        ),
        ("progress", boolean("The agent wants `ToolProgress` messages. Default: false.")),
    ];
    let examples = vec![("with every field", full.clone()), ("the least", short)];
    message("An agent's request to call a tool.", ContentTrust::ToolRequest, &full, &fields, examples)
}

fn response() -> MessageKind {
    let object = ResultObject { bucket: "BASCULE_RESULTS".into(), name: "b-1".into(), bytes: 3_145_728 };
    let parts = ResultParts { count: 24, bytes: 3_145_728 };
    let short = ToolInvokeResponse {
        tool_call_id: "call-1".into(),
        tool_name: "notes:search_notes".into(),
        is_error: false,
        result: Some(raw(json!({"content": [{"type": "text", "text": "What a bascule is"}]}))),
        result_object: None,
        result_parts: None,
    };
    let full = ToolInvokeResponse {
        result_object: Some(object.clone()),
        result_parts: Some(parts.clone()),
        ..short.clone()
    };
    let failed = ToolInvokeResponse {
        is_error: true,
        result: Some(raw(json!({"content": [{"type": "text", "text": "no such note"}], "isError": true}))),
        ..short.clone()
    };
    let with_object = ToolInvokeResponse { result: None, result_object: Some(object), ..short.clone() };
    let with_parts = ToolInvokeResponse { result: None, result_parts: Some(parts), ..short.clone() };
    let fields = [
        call_id(),
        tool_name(),
        ("isError", boolean("The tool reports a failure.")),
        (
            "result",
            any_object(
                "The `CallToolResult` of MCP, byte for byte. Absent if it is too long for one message.",
            ),
        ),
        ("resultObject", schema_ref("ResultObject")),
        ("resultParts", schema_ref("ResultParts")),
    ];
    let examples = vec![
        ("a result", short),
        ("a tool that reports a failure", failed),
        ("a long result in an object (NATS)", with_object),
        ("a long result that follows in parts (RabbitMQ)", with_parts),
    ];
    let summary = "The result of a call. Exactly one of `result`, `resultObject` and `resultParts` is there.";
    message(summary, ContentTrust::ToolOutput, &full, &fields, examples)
}

/// Schemas that bodies refer to.
pub(crate) fn shared_schemas() -> Value {
    let object = ResultObject { bucket: "b".into(), name: "n".into(), bytes: 1 };
    let object_fields = [
        ("bucket", text("The bucket of the object store.")),
        ("name", text("The name of the object.")),
        ("bytes", count("The length of the object.")),
    ];
    let parts_fields = [
        (
            "count",
            json!({"type": "integer", "minimum": 1, "maximum": u32::MAX, "description": "The number of parts."}),
        ),
        ("bytes", count("The length of all parts together, in UTF-8.")),
    ];
    let state = ServerState { name: ServerName::parse("notes").unwrap(), health: Health::Healthy };
    let state_fields =
        [("name", server_name("The name of the server in the configuration.")), ("health", health_schema())];
    json!({
        "ResultObject": of_type("A text in an object store of JetStream: the JSON of a result or of a list of tools.", &object, &object_fields),
        "ResultParts": of_type("A text that follows in messages of type `ToolResultPart` on the same topic.", &ResultParts { count: 1, bytes: 1 }, &parts_fields),
        "ServerState": of_type("A server behind the bridge.", &state, &state_fields),
        "AvailableTool": available_tool(),
    })
}

fn health_schema() -> Value {
    let all = [Health::Starting, Health::Healthy, Health::Degraded, Health::Unavailable, Health::Stopped];
    json!({"type": "string", "enum": all, "description": "The state of the server."})
}

/// The bridge prints it, so the field list is a contract of the bridge, not a type of the bus.
fn available_tool() -> Value {
    json!({
        "type": "object",
        "description": "A tool, as `bascule tools --json` prints it. Texts and schemas are those of its server: untrusted.",
        "required": ["id"],
        "properties": {
            "id": tool_id("The name for requests: `server:tool`."),
            "server": server_name("The server."),
            "name": text("The server's own name of the tool."),
            "description": {"type": ["string", "null"], "description": "The server's description."},
            "inputSchema": {"description": "The JSON Schema of the arguments."},
            "outputSchema": {"description": "The JSON Schema of `structuredContent`; null if there is none."},
        },
    })
}

fn codes() -> Vec<String> {
    use ErrorCode::*;
    let all = [
        ProviderInitFailed,
        ProviderTimeout,
        ProviderCrashed,
        ProviderUnavailable,
        ProviderError,
        ToolNotFound,
        InvalidInput,
        InvalidOutput,
        PolicyDenied,
        RateLimited,
        Cancelled,
        OutcomeUnknown,
    ];
    // `PROVIDER_TIMEOUT` is `timeout` on the bus.
    let others = all.into_iter().filter(|code| *code != ProviderTimeout);
    std::iter::once("timeout".to_owned()).chain(others.map(|code| code.to_string().to_lowercase())).collect()
}

fn bridge_error() -> BridgeError {
    serde_json::from_value(json!({
        "code": "RATE_LIMITED", "message": "`notes` has too many calls", "retryable": true, "correlationId": "c-1",
        "delivery": "not_sent", "server": "notes", "tool": "notes:search_notes", "retryAfterMs": 200,
    }))
    .unwrap()
}

fn error() -> MessageKind {
    let details = raw(serde_json::to_value(bridge_error()).unwrap());
    let full = ToolError {
        tool_call_id: "call-1".into(),
        tool_name: "notes:search_notes".into(),
        code: "rate_limited".into(),
        message: "`notes` has too many calls".into(),
        is_retryable: true,
        correlation_id: Some(CorrelationId::parse("c-1").unwrap()),
        retry_after_ms: Some(200),
        details: Some(ErrorDetails(details)),
    };
    let timeout = ToolError {
        code: "timeout".into(),
        message: "no answer within 30000 ms".into(),
        retry_after_ms: None,
        details: None,
        ..full.clone()
    };
    let unknown = ToolError {
        code: "outcome_unknown".into(),
        message: "a bridge ended while it handled the call: it may have run".into(),
        is_retryable: false,
        ..timeout.clone()
    };
    let delivery = [Delivery::NotSent, Delivery::Unknown, Delivery::Answered];
    let fields = [
        call_id(),
        tool_name(),
        (
            "code",
            json!({"type": "string", "examples": codes(), "description": "`timeout`, or the bridge's error code in lower case."}),
        ),
        ("message", text("One sentence. It may quote a server: untrusted.")),
        ("isRetryable", boolean("Repeating the same call may succeed.")),
        ("correlationId", id("The correlation id of the call.")),
        ("retryAfterMs", count("The delay before a repetition makes sense.")),
        (
            "details",
            json!({
                "type": "object",
                "description": "The normalised error of the bridge with all its fields.",
                "properties": {"delivery": {"type": "string", "enum": delivery, "description": "How far the request got."}},
            }),
        ),
    ];
    let examples = vec![
        ("with every field", full.clone()),
        ("a call that took too long", timeout),
        ("a bridge that died", unknown),
    ];
    message("The error of a call that has no result.", ContentTrust::ToolOutput, &full, &fields, examples)
}

fn cancel() -> MessageKind {
    let request_message_id = Some(MessageId::parse("a-1").unwrap());
    let full = ToolCancelRequest { tool_call_id: "call-1".into(), request_message_id };
    let meant = "The `messageId` of the request. Without it the next request with this `toolCallId` is meant, if none is there now.";
    let fields = [("toolCallId", text("The id of the call to end.")), ("requestMessageId", id(meant))];
    let summary = "An agent's request to end a call, which is then answered with the error `cancelled`.";
    message(summary, ContentTrust::ToolRequest, &full, &fields, vec![("a cancellation", full.clone())])
}

fn progress() -> MessageKind {
    let full = ToolProgress {
        tool_call_id: "call-1".into(),
        progress: raw(json!({"progress": 3, "total": 10, "message": "reading"})),
    };
    let progress = json!({
        "type": "object",
        "description": "The parameters of the server's `notifications/progress`, without the token.",
        "required": ["progress"],
        "properties": {
            "progress": {"type": "number", "description": "Increases with every message."},
            "total": {"type": "number", "description": "The value of `progress` at the end."},
            "message": text("The server's own text: untrusted."),
        },
    });
    let fields = [call_id(), ("progress", progress)];
    let summary = "The progress of a call whose request asked for it.";
    message(summary, ContentTrust::ToolOutput, &full, &fields, vec![("a third is done", full.clone())])
}

fn part() -> MessageKind {
    let full = ToolResultPart {
        tool_call_id: "call-1".into(),
        index: 0,
        text: r#"{"content":[{"type":"text","text":"What a bas"#.into(),
    };
    let fields = [
        (
            "toolCallId",
            text("The id of the call; for a list of tools, the id of the message that announced it."),
        ),
        ("index", count("The place of the part; the first is 0.")),
        (
            "text",
            json!({"type": "string", "minLength": 1, "description": "All texts in the order of `index` are the JSON of the whole."}),
        ),
    ];
    let summary = "A part of a long result, or of a long list of tools. Parts may come in any order.";
    message(summary, ContentTrust::ToolOutput, &full, &fields, vec![("the first part", full.clone())])
}

fn available() -> MessageKind {
    let tool = json!({
        "id": "clock:now", "server": "clock", "name": "now", "description": "The time in a time zone",
        "inputSchema": {"type": "object", "properties": {"timezone": {"type": "string"}}}, "outputSchema": null,
    });
    let state = |name: &str, health| ServerState { name: ServerName::parse(name).unwrap(), health };
    let short = McpToolsAvailable {
        agent: AgentName::parse("research").unwrap(),
        tools: vec![raw(tool)],
        servers: vec![state("clock", Health::Healthy), state("notes", Health::Degraded)],
        tools_object: None,
        tools_parts: None,
    };
    let object = ResultObject { bucket: "BASCULE_RESULTS".into(), name: "b-2".into(), bytes: 2_097_152 };
    let parts = ResultParts { count: 16, bytes: 2_097_152 };
    let full = McpToolsAvailable {
        tools_object: Some(object.clone()),
        tools_parts: Some(parts.clone()),
        ..short.clone()
    };
    let with_object = McpToolsAvailable { tools: vec![], tools_object: Some(object), ..short.clone() };
    let with_parts = McpToolsAvailable { tools: vec![], tools_parts: Some(parts), ..short.clone() };
    let fields = [
        ("agent", agent_name("The agent that may use the tools.")),
        (
            "tools",
            list(
                schema_ref("AvailableTool"),
                "All tools, not a difference. Empty if they are too long for one message: then one of `toolsObject` and `toolsParts` is there.",
            ),
        ),
        ("servers", list(schema_ref("ServerState"), "The servers behind the bridge.")),
        ("toolsObject", schema_ref("ResultObject")),
        ("toolsParts", schema_ref("ResultParts")),
    ];
    let examples = vec![
        ("one tool", short),
        ("a long list in an object (NATS)", with_object),
        ("a long list that follows in parts (RabbitMQ)", with_parts),
    ];
    message("The tools of an agent.", ContentTrust::ToolOutput, &full, &fields, examples)
}

fn refresh() -> MessageKind {
    let full = McpMetadataRefreshRequest {
        agent: Some(AgentName::parse("research").unwrap()),
        server: Some(ServerName::parse("notes").unwrap()),
    };
    let all = McpMetadataRefreshRequest { agent: None, server: None };
    let fields = [
        ("agent", or_null(agent_name("The agent whose bridges list again. Null: all bridges."))),
        ("server", or_null(server_name("The server to list again. Null: all servers."))),
    ];
    let examples = vec![("one server of one agent", full.clone()), ("everything", all)];
    let summary = "A request to list tools again and to publish them.";
    message(summary, ContentTrust::ToolRequest, &full, &fields, examples)
}

fn dead_letter() -> MessageKind {
    let full = DeadLetter {
        reason: "the message has envelope version 2; this program reads version 1".into(),
        topic: "tool.invoke.mcp.research".into(),
        message: "eyJ2ZXJzaW9uIjoy".into(),
        base64: true,
        original_bytes: Some(4_000_000),
    };
    let short = DeadLetter {
        message: r#"{"version":2}"#.into(),
        base64: false,
        original_bytes: None,
        ..full.clone()
    };
    let fields = [
        ("reason", text("Why the message could not be handled.")),
        ("topic", text("The topic of the message.")),
        ("message", text("The message as it came, if it is UTF-8, else in base64.")),
        ("base64", boolean("`message` is base64. Default: false.")),
        ("originalBytes", count("The length of a message that was too long to be kept whole.")),
    ];
    let examples = vec![("a message of another version", short), ("with every field", full.clone())];
    message("A message that could not be handled.", ContentTrust::ToolOutput, &full, &fields, examples)
}

/// Every event, with every field set, and with no optional field set.
fn events() -> Vec<(&'static str, Event, Event)> {
    let server = || ServerName::parse("notes").unwrap();
    let tool = || ToolId::parse("notes:search_notes").unwrap();
    let correlation_id = || CorrelationId::parse("c-1").unwrap();
    let same = |summary: &'static str, event: Event| (summary, event.clone(), event);
    let completed = |hint: Option<&str>| Event::ToolCompleted {
        correlation_id: correlation_id(),
        tool: tool(),
        is_error: false,
        summary: r#"{"content":[{"type":"text","text":"What a bas"#.into(),
        duration: Duration::from_micros(1_500),
        hint: hint.map(Into::into),
        span: None,
    };
    let refused = |server: Option<ServerName>| Event::ReloadRefused {
        server,
        cause: "line 3, column 5: a value is missing".into(),
    };
    let health = |cause: Option<&str>| Event::HealthChanged {
        server: server(),
        from: Health::Healthy,
        to: Health::Degraded,
        cause: cause.map(Into::into),
    };
    vec![
        same(
            "The tools of a server were listed.",
            Event::ToolsDiscovered { server: server(), count: 1, names: vec!["search_notes".into()] },
        ),
        (
            "A call returned a result, which may report a failure of the tool.",
            completed(Some("`~/notes` is not readable: add it to `sandbox.read`")),
            completed(None),
        ),
        same(
            "A call ended with a normalised error.",
            Event::ToolFailed {
                correlation_id: correlation_id(),
                tool: tool(),
                code: ErrorCode::ProviderTimeout,
                retryable: true,
                message: "`notes:search_notes` did not answer within 30000 ms".into(),
                span: None,
            },
        ),
        same(
            "The answer of a tool differs from the type of its earlier answers, or from its output schema.",
            Event::ResultDrifted {
                correlation_id: correlation_id(),
                tool: tool(),
                expected: ExpectedResult::Declared,
                pointers: vec!["/notes/*/id".into()],
            },
        ),
        same(
            "The tools of a server were listed again.",
            Event::ToolsRefreshed {
                server: server(),
                added: vec!["delete_note".into()],
                removed: vec!["old".into()],
                unchanged: 3,
            },
        ),
        same("The configuration was reloaded.", Event::ToolsAvailable { count: 1, tools: vec![tool()] }),
        (
            "A changed configuration file, or one server of it, was not applied.",
            refused(Some(server())),
            refused(None),
        ),
        same(
            "The connection to a server was lost.",
            Event::Disconnected { server: server(), cause: "it exited with code 1".into() },
        ),
        same(
            "The connection to a server was restored.",
            Event::Reconnected { server: server(), attempts: 2 },
        ),
        same(
            "All attempts to restore a connection failed.",
            Event::ReconnectExhausted { server: server(), attempts: 10, cause: "connection refused".into() },
        ),
        ("The state of a server changed.", health(Some("it exited with code 1")), health(None)),
    ]
}

pub(crate) fn event_messages() -> Vec<MessageKind> {
    events().into_iter().map(|(summary, full, short)| event_message(summary, &full, &short)).collect()
}

fn event_message(summary: &'static str, full: &Event, short: &Event) -> MessageKind {
    let (value, least) = (serde_json::to_value(full).unwrap(), serde_json::to_value(short).unwrap());
    let fields: Vec<Field> =
        event_fields(full.name()).into_iter().filter(|(name, _)| value.get(name).is_some()).collect();
    let mut examples = vec![("with every field", value.clone())];
    if value != least {
        examples.push(("the least", least.clone()));
    }
    MessageKind {
        name: full.name().to_owned(),
        summary,
        headers: headers(full),
        schema: of_written(summary, &value, &least, &fields),
        examples,
    }
}

/// The headers that the bus gives an event.
fn headers(event: &Event) -> Headers {
    let id = MessageIdGenerator::new(0).generate();
    event_envelope(event, id, "bascule", Timestamp::from_unix_millis(0)).headers
}

/// The fields of all events. Each name means the same in all of them.
fn event_fields(name: &str) -> Vec<Field> {
    let names = |description: &str| list(json!({"type": "string"}), description);
    let code: Vec<_> =
        codes().into_iter().map(|code| code.to_uppercase().replace("TIMEOUT", "PROVIDER_TIMEOUT")).collect();
    vec![
        ("type", json!({"const": name})),
        ("server", server_name("The server.")),
        ("count", count("The number of tools.")),
        ("names", names("The server's own names of its tools.")),
        ("correlationId", id("The correlation id of the call.")),
        ("tool", tool_id("The tool.")),
        ("isError", boolean("The tool reports a failure.")),
        ("summary", text("The first bytes of the result: untrusted.")),
        ("durationMs", json!({"type": "number", "minimum": 0, "description": "The duration of the call."})),
        ("hint", text("The likely refusal by the sandbox, and the setting that would allow it.")),
        ("code", json!({"type": "string", "enum": code, "description": "The bridge's error code."})),
        ("retryable", boolean("Repeating the same call may succeed.")),
        ("message", text("One sentence. It may quote a server: untrusted.")),
        (
            "expected",
            json!({"type": "string", "enum": [ExpectedResult::Observed, ExpectedResult::Declared], "description": "The type that the answer was compared with."}),
        ),
        ("pointers", names("JSON pointers to the differing places.")),
        ("added", names("New tools.")),
        ("removed", names("Tools that are gone.")),
        ("unchanged", count("The number of tools that did not change.")),
        ("tools", names("All tools: `server:tool`.")),
        ("cause", text("The reason.")),
        ("attempts", count("The number of attempts.")),
        ("from", health_schema()),
        ("to", health_schema()),
    ]
}
