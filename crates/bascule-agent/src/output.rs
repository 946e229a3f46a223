//! The result of a call: untrusted text of a tool.

use std::fmt;

use bascule_bus::ContentTrust;
use serde_json::value::RawValue;

use crate::ToolResultBlock;

/// The result of a call.
///
/// A tool may return any text, also one that poses as an instruction of the user. So the output has no text form: it becomes
/// a [`ToolResultBlock`], and nothing else of a conversation can be made of it.
///
/// ```
/// # fn main() {}
/// # use bascule_agent::{ToolOutput, ToolResultBlock};
/// fn right(output: ToolOutput) -> ToolResultBlock {
///     output.into_block("toolu_1")
/// }
/// ```
///
/// It is no user text and no system text:
///
/// ```compile_fail,E0277
/// # use bascule_agent::{ToolOutput, UserText};
/// fn wrong(output: ToolOutput) -> UserText {
///     UserText::new(output)
/// }
/// ```
///
/// ```compile_fail,E0277
/// # use bascule_agent::{SystemText, ToolOutput};
/// fn wrong(output: ToolOutput) -> SystemText {
///     SystemText::new(output)
/// }
/// ```
///
/// It cannot be formatted into a text, nor borrowed as one:
///
/// ```compile_fail,E0277
/// # use bascule_agent::ToolOutput;
/// fn wrong(output: ToolOutput) -> String {
///     format!("The tool says: {output}")
/// }
/// ```
///
/// ```compile_fail,E0308
/// # use bascule_agent::ToolOutput;
/// fn wrong(output: &ToolOutput) -> &str {
///     output
/// }
/// ```
pub struct ToolOutput {
    tool: String,
    is_error: bool,
    result: Box<RawValue>,
}

impl ToolOutput {
    pub(crate) fn new(tool: String, is_error: bool, result: Box<RawValue>) -> Self {
        Self { tool, is_error, result }
    }

    /// The tool, `server:tool`, as it was called.
    pub fn tool(&self) -> &str {
        &self.tool
    }

    /// Returns true if the tool reports a failure.
    pub fn is_error(&self) -> bool {
        self.is_error
    }

    pub fn trust(&self) -> ContentTrust {
        ContentTrust::ToolOutput
    }

    /// Makes the block that shows the output to a model. `tool_use_id` is the model's own id of the call.
    pub fn into_block(self, tool_use_id: impl Into<String>) -> ToolResultBlock {
        ToolResultBlock::from_result(tool_use_id.into(), self.is_error, &self.result)
    }

    /// Returns the `CallToolResult` byte for byte, for a relay that passes it on as a tool result, such as an MCP server.
    /// It is still untrusted: it belongs into no prompt.
    pub fn into_relayed_result(self) -> Box<RawValue> {
        self.result
    }
}

/// Prints the size of the result, not its content.
impl fmt::Debug for ToolOutput {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ToolOutput")
            .field("tool", &self.tool)
            .field("is_error", &self.is_error)
            .field("bytes", &self.result.get().len())
            .finish()
    }
}
