//! Answers the calls of a script to the bridge itself: `bascule.result`, `mcp.search` and `mcp.describe`.
//!
//! These calls arrive like calls of tools, without a server. They reach no tool.

use std::future::Future;

use bascule_model::{BridgeError, BridgeResult, Delivery, ErrorCode};
use bascule_script::wire::RpcCall;
use serde::Deserialize;
use serde_json::json;
use serde_json::value::{RawValue, to_raw_value};

use super::ScriptHost;
use super::selection::ToolSelection;
use super::traces::clipped;
use crate::McpBridgeAdapter;

/// Returns true if the bridge has such a function.
pub(super) fn is_host_function(name: &str) -> bool {
    ["result", "search", "describe"].contains(&name)
}

/// Returns the answer to a call, in the form of a tool's result. `granted` are the tools that the script may call.
pub(super) fn answer<'a>(
    (bridge, host): (&'a McpBridgeAdapter, &ScriptHost<'a>),
    call: RpcCall,
    granted: ToolSelection,
) -> impl Future<Output = BridgeResult<Box<RawValue>>> + Send + use<'a> {
    let kept_result = host.kept_result;
    async move {
        let args = call.args.get();
        match call.tool.as_str() {
            "search" => {
                let found = bridge.answer_search(parsed("mcp.search", args)?, &granted).await;
                found.map(|found| structured(&found.tools)).map_err(|error| invalid("mcp.search", &error))
            }
            "describe" => {
                let query = parsed("mcp.describe", args)?;
                Ok(structured(&bridge.answer_describe(query, &granted).await.tools))
            }
            _ => {
                let KeptResultId { id } = parsed("bascule.result", args)?;
                kept_result(&id).and_then(|text| json_of(&text)).ok_or_else(|| no_result(&id))
            }
        }
    }
}

#[derive(Deserialize)]
struct KeptResultId {
    id: String,
}

fn parsed<'de, T: Deserialize<'de>>(function: &str, args: &'de str) -> BridgeResult<T> {
    serde_json::from_str(args).map_err(|error| {
        // The position is one in the JSON, which the script does not see.
        let text = error.to_string();
        invalid(function, text.split(" at line ").next().unwrap_or_default())
    })
}

fn invalid(function: &str, message: &str) -> Box<BridgeError> {
    BridgeError::new(ErrorCode::InvalidInput, Delivery::NotSent, format!("{function}: {message}"))
}

fn no_result(id: &str) -> Box<BridgeError> {
    let message = format!(
        "there is no result `{}`: results are kept for half an hour, for the session that made them",
        clipped(id)
    );
    BridgeError::new(ErrorCode::InvalidInput, Delivery::NotSent, message)
}

fn structured(entries: &[serde_json::Value]) -> Box<RawValue> {
    to_raw_value(&json!({ "structuredContent": entries })).expect("entries have text keys alone")
}

/// Wraps a kept text as a tool result: as data if it is JSON, else as text.
fn json_of(text: &str) -> Option<Box<RawValue>> {
    let value = match serde_json::from_str::<&RawValue>(text) {
        Ok(value) => format!(r#"{{"structuredContent":{value}}}"#),
        Err(_) => json!({ "content": [{ "type": "text", "text": text }] }).to_string(),
    };
    RawValue::from_string(value).ok()
}
