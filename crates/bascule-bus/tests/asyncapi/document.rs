//! The whole document: channels, operations and components.

use bascule_bus::{AgentName, SharedTopics};
use serde_json::{Map, Value, json};

use crate::bodies::{self, MessageKind};
use crate::envelopes;

const DESCRIPTION: &str = "Agents call MCP tools through a bridge, over NATS or RabbitMQ. Subjects (NATS) and routing keys (RabbitMQ, \
topic exchange `bascule`) are the addresses below. Every message is one envelope in JSON. docs/bus.md explains the flows.";

pub(crate) fn document() -> Value {
    let (messages, events) = (bodies::messages(), bodies::event_messages());
    let all: Vec<_> = messages.iter().chain(&events).collect();
    json!({
        "asyncapi": "3.0.0",
        "info": {
            "title": "Bascule on the bus",
            "version": "1.0.0",
            "description": DESCRIPTION,
            "license": {"name": "MIT OR Apache-2.0"},
        },
        "defaultContentType": "application/json",
        "servers": {
            "nats": {"host": "localhost:4222", "protocol": "nats", "description": "NATS with JetStream. Requests are kept in the stream `BASCULE_REQUESTS`; a plain publish reaches it."},
            "rabbitmq": {"host": "localhost:5672", "protocol": "amqp", "description": "RabbitMQ, with the topic exchange `bascule`."},
        },
        "channels": channels(&events),
        "operations": operations(&events),
        "components": {
            "messages": all.iter().map(|kind| (kind.name.clone(), message(kind))).collect::<Map<_, _>>(),
            "schemas": schemas(&all),
            "parameters": {"agent": envelopes::agent_parameter(), "instance": {"description": "A name of the agent's own choice, so that several of its processes get their own answers."}},
            "correlationIds": {"call": {"location": "$message.payload#/correlationId", "description": "The call that the message belongs to."}},
            "channelBindings": {"topicExchange": {"amqp": {
                "is": "routingKey",
                "exchange": {"name": "bascule", "type": "topic", "durable": true, "autoDelete": false},
                "bindingVersion": "0.3.0",
            }}},
        },
    })
}

fn message(kind: &MessageKind) -> Value {
    let example = |(number, (summary, body)): (usize, &(&str, Value))| {
        let envelope = envelopes::example(kind, number, body);
        json!({"summary": summary, "headers": envelope.headers, "payload": envelope})
    };
    json!({
        "name": kind.name,
        "title": kind.name,
        "summary": kind.summary,
        "contentType": "application/json",
        "correlationId": {"$ref": "#/components/correlationIds/call"},
        "headers": {"$ref": "#/components/schemas/Headers"},
        "payload": {"allOf": [
            {"$ref": "#/components/schemas/Envelope"},
            {"type": "object", "properties": {
                "type": {"const": kind.name},
                "body": {"$ref": format!("#/components/schemas/{}", schema_name(&kind.name))},
            }},
        ]},
        "examples": kind.examples.iter().enumerate().map(example).collect::<Vec<_>>(),
    })
}

fn schema_name(message: &str) -> String {
    format!("{message}.body")
}

fn schemas(kinds: &[&MessageKind]) -> Value {
    let mut schemas = bodies::shared_schemas();
    schemas["Envelope"] = envelopes::schema();
    schemas["Headers"] = envelopes::headers_schema();
    for kind in kinds {
        schemas[schema_name(&kind.name)] = kind.schema.clone();
    }
    schemas
}

/// A topic of an agent, with its parameter instead of the name.
fn of_agent(topic: fn(&AgentName) -> bascule_bus::Topic) -> String {
    topic(&AgentName::parse("AGENT").unwrap()).as_str().replace("AGENT", "{agent}")
}

fn channel(address: Value, description: &str, messages: &[&str]) -> Value {
    let references = messages
        .iter()
        .map(|name| ((*name).to_owned(), json!({"$ref": format!("#/components/messages/{name}")})));
    let mut channel = json!({
        "address": address,
        "description": description,
        "messages": references.collect::<Map<_, _>>(),
        "bindings": {"$ref": "#/components/channelBindings/topicExchange"},
    });
    let address = channel["address"].as_str().unwrap_or_default();
    let parameters =
        ["agent", "instance"].into_iter().filter(|name| address.contains(&format!("{{{name}}}")));
    let parameters: Map<_, _> = parameters
        .map(|name| (name.to_owned(), json!({"$ref": format!("#/components/parameters/{name}")})))
        .collect();
    if !parameters.is_empty() {
        channel["parameters"] = json!(parameters);
    }
    channel
}

const ANSWERS: [&str; 4] = ["ToolInvokeResponse", "ToolError", "ToolProgress", "ToolResultPart"];

fn channels(events: &[MessageKind]) -> Value {
    let result = of_agent(AgentName::result_topic);
    let mut channels = json!({
        "requests": channel(json!(of_agent(AgentName::request_topic)), "Requests of one agent. A broker can permit it to this agent alone.", &["ToolInvokeRequest"]),
        "sharedRequests": channel(json!(SharedTopics::REQUESTS), "Requests that name their agent in `source`.", &["ToolInvokeRequest"]),
        "results": channel(json!(result), "Answers to requests without `replyTo`.", &ANSWERS),
        "instanceResults": channel(json!(format!("{result}.{{instance}}")), "Answers to requests with this `replyTo`.", &ANSWERS),
        "replies": channel(Value::Null, "The topic of `replyTo`; `results` without one.", &ANSWERS),
        "cancellations": channel(json!(of_agent(AgentName::cancel_topic)), "Cancellations of one agent's calls.", &["ToolCancelRequest"]),
        "availability": channel(json!(of_agent(AgentName::availability_topic)), "The tools of one agent: at the start of a bridge, after refreshes, reloads and changed lists.", &["McpToolsAvailable", "ToolResultPart"]),
        "refreshes": channel(json!(SharedTopics::REFRESH), "Requests to publish tools again.", &["McpMetadataRefreshRequest"]),
        "deadLetters": channel(json!(SharedTopics::DEAD_LETTERS), "Messages that no bridge could handle.", &["DeadLetter"]),
    });
    for event in events {
        channels[&event.name] = channel(json!(event.name), event.summary, &[&event.name]);
    }
    channels
}

fn operation(action: &str, channel: &str, summary: &str) -> Value {
    json!({"action": action, "channel": {"$ref": format!("#/channels/{channel}")}, "summary": summary})
}

/// The operations of a bridge. An agent does the opposite.
fn operations(events: &[MessageKind]) -> Value {
    let reply = json!({
        "channel": {"$ref": "#/channels/replies"},
        "address": {"location": "$message.payload#/replyTo", "description": "`tool.result.{agent}` if the request has none."},
    });
    let mut operations = json!({
        "callTool": operation("receive", "requests", "Calls a tool and answers, exactly once for each message id."),
        "callToolOfSource": operation("receive", "sharedRequests", "The same for the agent in `source`. Requests for other agents are left alone."),
        "answer": operation("send", "results", "Answers a request without `replyTo`."),
        "answerInstance": operation("send", "instanceResults", "Answers a request with `replyTo`."),
        "cancelCall": operation("receive", "cancellations", "Ends a call."),
        "publishTools": operation("send", "availability", "Publishes all tools."),
        "refreshTools": operation("receive", "refreshes", "Lists tools again and publishes them."),
        "buryMessage": operation("send", "deadLetters", "Keeps a message that could not be handled."),
    });
    operations["callTool"]["reply"] = reply.clone();
    operations["callToolOfSource"]["reply"] = reply;
    for event in events {
        let name = event.name.trim_start_matches("provider.mcp.").replace('.', "-");
        operations[format!("event-{name}")] = operation("send", &event.name, event.summary);
    }
    operations
}
