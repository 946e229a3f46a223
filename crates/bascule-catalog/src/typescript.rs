//! TypeScript types of tools, made from their JSON Schemas.
//!
//! Every schema has a type: a schema that TypeScript cannot express becomes a wider type, with the reason in a comment.
//! An object without a statement about further properties is closed, so that the compiler finds misspelt keys.

mod declarations;
mod json;
mod names;
mod render;
mod translate;
mod types;

pub use declarations::{DeclaredServer, DeclaredTool, declarations};

use std::sync::Arc;

use crate::CatalogTool;
use names::comment_text;
use render::Renderer;
use translate::translate_text;
use types::TypeDocument;

/// The longest call in an error message.
const MAX_CALL: usize = 800;
/// The comment of a type that was learned from answers.
const OBSERVED: &str = "Observed result, not declared by the server.";

/// The types of a tool's arguments and declared result.
#[derive(Debug)]
pub(crate) struct ToolTypes {
    arguments: TypeDocument,
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
        Self {
            arguments: translate_text(definition.input_schema.get()).into_arguments(),
            result: result.map(|schema| Arc::new(ResultTypes::new(schema.get(), false))),
        }
    }

    pub(crate) fn result(&self) -> Option<&Arc<ResultTypes>> {
        self.result.as_ref()
    }

    /// One line: the call, the type of its arguments and of its result. `call` is the expression that scripts use.
    pub(crate) fn signature(&self, call: &str, result: Option<&ResultTypes>) -> String {
        let result = result.map_or_else(|| "unknown".to_owned(), ResultTypes::signature);
        format!("{call}({}{}): Promise<{result}>", self.parameter(), inline(&self.arguments, "Args"))
    }

    /// The call and the type of its arguments. Arguments with a long type are named only.
    pub(crate) fn call_signature(&self, call: &str) -> String {
        let arguments = Renderer::compact(&self.arguments, "Args").union(&self.arguments.root, "", 0);
        match call.len() + arguments.len() > MAX_CALL {
            true => format!("{call}({}{})", self.parameter(), self.arguments.named_properties(MAX_CALL)),
            false => format!("{call}({}{arguments})", self.parameter()),
        }
    }

    /// The parameter's name, with a question mark if a call needs no arguments.
    fn parameter(&self) -> &'static str {
        if self.arguments.is_optional_argument() { "args?: " } else { "args: " }
    }
}

fn inline(document: &TypeDocument, prefix: &str) -> String {
    Renderer::compact(document, prefix).root()
}

#[cfg(test)]
mod tests;
