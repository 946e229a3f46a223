//! TypeScript types of tools, made from their JSON Schemas.
//!
//! Every schema has a type: a schema that TypeScript cannot express becomes a wider type, with the reason in a comment.
//! An object without a statement about further properties is closed, so that the compiler finds misspelt keys.

mod circles;
mod combine;
mod declarations;
mod json;
mod names;
mod render;
mod translate;
mod types;
mod work;

pub use declarations::{DeclaredServer, DeclaredTool, declarations};

use std::sync::Arc;

use crate::CatalogTool;
use names::comment_text;
use render::Renderer;
use translate::translate_text;
use types::TypeDocument;

/// The longest call in an error message.
const MAX_CALL: usize = 800;
/// The longest type of a result that many tools share, and the longest schema of one.
const MAX_SHORT: usize = 60;
const MAX_SHORT_SCHEMA: usize = 2_000;
/// A type that is too long for one line.
const TOO_LONG: &str = "object /* too long: see the declaration */";
/// The comment of a type that was learned from answers.
const OBSERVED: &str = "Observed result, not declared by the server.";

/// The types of a tool's arguments and declared result.
#[derive(Debug)]
pub(crate) struct ToolTypes {
    arguments: TypeDocument,
    /// The type of the arguments on one line; `None` if it is too long.
    arguments_line: Option<String>,
    /// `None` if the server declares no output schema.
    result: Option<Arc<ResultTypes>>,
}

/// The type of a result.
#[derive(Debug)]
pub(crate) struct ResultTypes {
    document: TypeDocument,
    /// The type on one line.
    compact: String,
    /// Learned from answers, not declared by the server.
    is_observed: bool,
}

impl ResultTypes {
    pub(crate) fn new(schema: &str, is_observed: bool) -> Self {
        let document = translate_text(schema);
        let compact = inline(&document, "Result");
        Self { document, compact, is_observed }
    }

    pub(crate) fn compact(&self) -> &str {
        &self.compact
    }

    pub(crate) fn with_compact(self, compact: String) -> Self {
        Self { compact, ..self }
    }

    fn signature(&self) -> String {
        match self.is_observed {
            true => format!("/* {} */ {}", comment_text(OBSERVED), self.compact),
            false => self.compact.clone(),
        }
    }
}

impl ToolTypes {
    pub(crate) fn new(tool: &CatalogTool) -> Self {
        let definition = tool.definition();
        let result = definition.output_schema.as_ref();
        let arguments = translate_text(definition.input_schema.get()).into_arguments();
        Self {
            arguments_line: Renderer::compact(&arguments, "Args").one_line(),
            arguments,
            result: result.map(|schema| Arc::new(ResultTypes::new(schema.get(), false))),
        }
    }

    pub(crate) fn result(&self) -> Option<&Arc<ResultTypes>> {
        self.result.as_ref()
    }

    /// One line: the call, the type of its arguments and of its result. `call` is the expression that scripts use.
    pub(crate) fn signature(&self, call: &str, result: Option<&ResultTypes>) -> String {
        let result = result.map_or_else(|| "unknown".to_owned(), ResultTypes::signature);
        let arguments = self.arguments_line.as_deref().unwrap_or(TOO_LONG);
        format!("{call}({}{arguments}): Promise<{result}>", self.parameter())
    }

    /// The call and the type of its arguments. Arguments with a long type are named only.
    pub(crate) fn call_signature(&self, call: &str) -> String {
        match &self.arguments_line {
            Some(arguments) if call.len() + arguments.len() <= MAX_CALL => {
                format!("{call}({}{arguments})", self.parameter())
            }
            _ => format!("{call}({}{})", self.parameter(), self.arguments.property_list(MAX_CALL)),
        }
    }

    /// The parameter's name, with a question mark if a call needs no arguments.
    fn parameter(&self) -> &'static str {
        if self.arguments.accepts_empty_object() { "args?: " } else { "args: " }
    }
}

/// Returns the type of a result schema if it is short.
pub(crate) fn short_result_type(schema: &str) -> Option<Box<str>> {
    let is_short = schema.len() <= MAX_SHORT_SCHEMA;
    short_type(ResultTypes::new(is_short.then_some(schema)?, false).compact())
}

/// Returns the type if it is short and says something about the value.
pub(crate) fn short_type(compact: &str) -> Option<Box<str>> {
    (compact.len() <= MAX_SHORT && !compact.contains("unknown")).then(|| compact.into())
}

fn inline(document: &TypeDocument, prefix: &str) -> String {
    Renderer::compact(document, prefix).one_line().unwrap_or_else(|| TOO_LONG.into())
}

#[cfg(test)]
mod tests;
