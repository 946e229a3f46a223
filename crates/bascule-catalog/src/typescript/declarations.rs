//! Declares the tools of servers as functions: interfaces of arguments and results, and the object `mcp`.

use std::collections::HashSet;

use super::names::{doc_comment, is_free_variable, pascal_case, property_key, take_name};
use super::render::Renderer;
use super::types::TypeDocument;
use super::{OBSERVED, ResultTypes, ToolTypes};
use crate::CatalogTool;

/// A server and its tools, under the names that scripts use.
pub struct DeclaredServer<'a> {
    pub name: String,
    pub tools: Vec<DeclaredTool<'a>>,
}

pub struct DeclaredTool<'a> {
    pub name: String,
    pub tool: &'a CatalogTool,
}

/// Writes the declarations of all tools. The file has no imports and needs no libraries beyond those of ECMAScript.
pub fn declarations(servers: &[DeclaredServer<'_>]) -> String {
    let mut namespaces = HashSet::new();
    let (mut types, mut members, mut variables) = (String::new(), String::new(), String::new());
    for server in servers {
        let namespace = take_name(&mut namespaces, &pascal_case(&server.name));
        let (interfaces, functions) = declare_server(server, &namespace);
        types.push_str(&format!("declare namespace {namespace} {{\n{interfaces}}}\n\n"));
        members.push_str(&format!("  readonly {}: {{\n{functions}  }};\n", property_key(&server.name)));
        if is_free_variable(&server.name) {
            variables.push_str(&format!("declare const {0}: typeof mcp.{0};\n", server.name));
        }
    }
    format!("{types}declare const mcp: {{\n{members}}};\n{variables}")
}

/// Returns the types of a server's tools and the members of the server's object.
fn declare_server(server: &DeclaredServer<'_>, namespace: &str) -> (String, String) {
    let mut taken = HashSet::new();
    let (mut interfaces, mut functions) = (String::new(), String::new());
    for DeclaredTool { name, tool } in &server.tools {
        let (types, result) = (tool.types(), tool.result_types());
        let names = ToolTypeNames::take(&mut taken, &tool.definition().name, result.as_deref());
        interfaces.push_str(&names.interfaces(types, result.as_deref(), &mut taken));
        let doc = tool
            .definition()
            .description
            .as_deref()
            .map_or_else(String::new, |text| doc_comment(text, "    "));
        let result = names.result.as_ref().map_or("unknown".into(), |result| format!("{namespace}.{result}"));
        functions.push_str(&format!(
            "{doc}    {}({}{namespace}.{}): Promise<{result}>;\n",
            property_key(name),
            types.parameter(),
            names.arguments
        ));
    }
    (interfaces, functions)
}

struct ToolTypeNames {
    stem: String,
    arguments: String,
    result: Option<String>,
}

impl ToolTypeNames {
    fn take(taken: &mut HashSet<String>, tool: &str, result: Option<&ResultTypes>) -> Self {
        let stem = pascal_case(tool);
        let arguments = take_name(taken, &format!("{stem}Args"));
        let result = result.map(|_| take_name(taken, &format!("{stem}Result")));
        Self { stem, arguments, result }
    }

    fn interfaces(
        &self,
        types: &ToolTypes,
        result: Option<&ResultTypes>,
        taken: &mut HashSet<String>,
    ) -> String {
        let mut text = declare_document(&types.arguments, &self.arguments, &self.stem, taken);
        if let (Some(result), Some(name)) = (result, &self.result) {
            if result.is_observed {
                text.push_str(&doc_comment(OBSERVED, "  "));
            }
            text.push_str(&declare_document(&result.document, name, &format!("{}Result", self.stem), taken));
        }
        text
    }
}

/// Declares a type and its definitions.
fn declare_document(document: &TypeDocument, name: &str, stem: &str, taken: &mut HashSet<String>) -> String {
    let prefix = free_prefix(document, stem, taken);
    let renderer = Renderer::full(document, &prefix);
    let declare = |name: &str, value| {
        let declared = match renderer.interface_body(value, "  ") {
            Some(members) => format!("  interface {name} {members}\n"),
            None => format!("  type {name} = {};\n", renderer.write_type(value, "  ", 0)),
        };
        match renderer.is_truncated() {
            true => format!("  type {name} = unknown /* too long */;\n"),
            false => declared,
        }
    };
    let mut text = declare(name, &document.root);
    for definition in &document.definitions {
        text.push_str(&declare(&format!("{prefix}{}", definition.name), &definition.value));
    }
    text
}

/// Returns a prefix with which no definition has the name of another type, and takes those names.
fn free_prefix(document: &TypeDocument, stem: &str, taken: &mut HashSet<String>) -> String {
    let names = |prefix: &str| -> Vec<String> {
        document.definitions.iter().map(|definition| format!("{prefix}{}", definition.name)).collect()
    };
    let candidates = std::iter::once(stem.to_owned()).chain((2..).map(|number| format!("{stem}{number}")));
    let is_free = |prefix: &String| names(prefix).iter().all(|name| !taken.contains(name));
    let prefix = { candidates }.find(is_free).expect("the numbers do not end");
    taken.extend(names(&prefix));
    prefix
}
