//! Checks the members that a script reads from the results of tools whose type is known.

use oxc::ast::ast::Expression;
use oxc::semantic::{NodeId, SymbolId};
use oxc::span::GetSpan;
use serde_json::Value;

use super::Checker;
use super::arguments::resolved;
use super::members::{OF_OBJECTS, description, missing_member};
use super::targets::{Receiver, Target};

/// Variables and members are followed this far.
const MAX_DEPTH: usize = 6;
/// Methods of arrays that pass each element to a function.
const ELEMENT_CALLBACKS: [&str; 10] = [
    "map",
    "forEach",
    "filter",
    "find",
    "findIndex",
    "findLast",
    "flatMap",
    "some",
    "every",
    "findLastIndex",
];

/// The call that a value comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct CallOrigin {
    /// The tool, as `server:tool`.
    pub(crate) tool: String,
    pub(crate) is_awaited: bool,
    /// The members of the result that lead to the value.
    pub(crate) path: Vec<String>,
}

impl CallOrigin {
    fn member(mut self, name: String) -> Self {
        self.path.push(name);
        self
    }
}

/// A function that returns a promise.
#[derive(Clone, Copy)]
enum AsyncFunction {
    /// The tool of a server, by their indices.
    Tool((usize, usize)),
    /// A function of `mcp`.
    Query(&'static str),
}

/// The known type of an expression.
enum KnownType<'v> {
    /// A call of this function without `await`.
    Promise(AsyncFunction),
    /// The result of this tool, or a part of it.
    Schema(ResultSchema<'v>),
    /// A member that a result does not have.
    Missing { result: ResultSchema<'v>, name: String },
}

#[derive(Clone, Copy)]
struct ResultSchema<'v> {
    tool: (usize, usize),
    schema: &'v Value,
    root: &'v Value,
    /// The schema is that of earlier results: this one may differ.
    is_observed: bool,
}

impl<'a, 's> Checker<'a, 's> {
    fn type_of(&self, expression: &Expression<'a>, depth: usize) -> Option<KnownType<'s>> {
        let depth = depth.checked_sub(1)?;
        match expression.get_inner_expression() {
            Expression::CallExpression(call) => self.called(&call.callee).map(KnownType::Promise),
            Expression::AwaitExpression(awaited) => match self.type_of(&awaited.argument, depth)? {
                KnownType::Promise(AsyncFunction::Tool(tool)) => self.result_type(tool),
                KnownType::Promise(AsyncFunction::Query(_)) => None,
                known => Some(known),
            },
            Expression::Identifier(identifier) => {
                let symbol = self.symbol(identifier)?;
                let Some((init, key)) = self.initial_value(symbol) else {
                    return self.received_type(symbol, depth);
                };
                let known = self.type_of(init, depth)?;
                match key {
                    Some(key) => member_type(&known, &key).or_else(|| missing_type(&known, key)),
                    None => Some(known),
                }
            }
            Expression::StaticMemberExpression(member) if !member.optional => {
                member_type(&self.type_of(&member.object, depth)?, member.property.name.as_str())
            }
            Expression::ComputedMemberExpression(member) if !member.optional => match &member.expression {
                Expression::NumericLiteral(_) => element_type(&self.type_of(&member.object, depth)?),
                _ => None,
            },
            _ => None,
        }
    }

    /// Returns the type of a variable that a loop or the caller of a callback sets.
    fn received_type(&self, symbol: SymbolId, depth: usize) -> Option<KnownType<'s>> {
        match self.receiver(symbol)? {
            Receiver::Loop(list) => element_type(&self.type_of(list, depth)?),
            Receiver::Callback { object, method } if ELEMENT_CALLBACKS.contains(&method) => {
                element_type(&self.type_of(object, depth)?)
            }
            Receiver::Callback { object, method: "then" } => match self.type_of(object, depth)? {
                KnownType::Promise(AsyncFunction::Tool(tool)) => self.result_type(tool),
                _ => None,
            },
            Receiver::Callback { .. } => None,
        }
    }

    /// Returns the declared type of a tool's result, else the observed one.
    fn result_type(&self, tool: (usize, usize)) -> Option<KnownType<'s>> {
        let entry = &self.tools.servers()[tool.0].tools[tool.1];
        let (schema, is_observed) = match entry.output_schema() {
            Some(schema) => (schema, false),
            None => (entry.observed_schema()?, true),
        };
        Some(KnownType::Schema(ResultSchema { tool, schema, root: schema, is_observed }))
    }

    /// Begins the description of a tool's result.
    fn result_of(&self, ResultSchema { tool, is_observed, .. }: ResultSchema<'_>) -> String {
        let id = self.tool_id(tool);
        if is_observed { format!("earlier results of {id} were") } else { format!("the result of {id} is") }
    }

    /// Returns the function that a call runs, if it returns a promise of the bridge.
    fn called(&self, callee: &Expression<'a>) -> Option<AsyncFunction> {
        match self.resolve(callee, 0) {
            Target::Tool { server, tool } => Some(AsyncFunction::Tool((server, tool))),
            Target::Query(name) => Some(AsyncFunction::Query(name)),
            _ => None,
        }
    }

    /// Returns the call of a function as scripts write it.
    fn call_text(&self, function: AsyncFunction) -> String {
        match function {
            AsyncFunction::Tool(tool) => self.function_name(tool),
            AsyncFunction::Query(name) => format!("mcp.{name}"),
        }
    }

    /// Returns the call that an expression comes from.
    pub(super) fn origin_of(&self, expression: &Expression<'a>, depth: usize) -> Option<CallOrigin> {
        let depth = depth.checked_sub(1)?;
        match expression.get_inner_expression() {
            Expression::CallExpression(call) => self.called(&call.callee).map(|function| {
                let tool = match function {
                    AsyncFunction::Tool(tool) => self.tool_id(tool),
                    AsyncFunction::Query(name) => format!("mcp.{name}"),
                };
                CallOrigin { tool, is_awaited: false, path: Vec::new() }
            }),
            Expression::AwaitExpression(awaited) => self
                .origin_of(&awaited.argument, depth)
                .map(|origin| CallOrigin { is_awaited: true, ..origin }),
            Expression::Identifier(identifier) => {
                let (init, key) = self.initial_value(self.symbol(identifier)?)?;
                let origin = self.origin_of(init, depth)?;
                Some(key.into_iter().fold(origin, CallOrigin::member))
            }
            Expression::StaticMemberExpression(member) => self
                .origin_of(&member.object, depth)
                .map(|origin| origin.member(member.property.name.to_string())),
            _ => None,
        }
    }

    /// Checks `object.name`. A server may answer with text in spite of its declared type, so only the members of a promise are
    /// certain.
    pub(super) fn check_member(&mut self, node: NodeId, object: &Expression<'a>, name: &str, offset: u32) {
        let Some(known) = self.type_of(object, MAX_DEPTH) else { return };
        let text = self.text(object);
        let (message, fails) = match known {
            KnownType::Promise(function) => {
                if ["then", "catch", "finally"].contains(&name)
                    || OF_OBJECTS.contains(&name)
                    || self.is_assigned(node)
                {
                    return;
                }
                let call = self.call_text(function);
                (
                    format!("`{text}` is a promise, which has no `{name}`: write `await` before `{call}(…)`"),
                    true,
                )
            }
            KnownType::Schema(result) => {
                let Some(description) = missing_member(result.schema, name) else { return };
                (format!("`{text}` has no member `{name}`: {} {description}", self.result_of(result)), false)
            }
            KnownType::Missing { result, name } => {
                let Some(description) = missing_member(result.schema, &name) else { return };
                (format!("`{text}` is undefined: {} {description}", self.result_of(result)), false)
            }
        };
        let is_certain = fails && self.is_certain(node);
        self.add(offset, message, is_certain);
    }

    /// Checks the value of `for (… of value)`.
    pub(super) fn check_iterated(&mut self, node: NodeId, value: &Expression<'a>) {
        let Some(known) = self.type_of(value, MAX_DEPTH) else { return };
        let text = self.text(value);
        let (message, fails) = match known {
            KnownType::Promise(function) => {
                let call = self.call_text(function);
                (format!("`{text}` is a promise: write `await` before `{call}(…)`"), true)
            }
            KnownType::Schema(result) => match result.schema["type"].as_str() {
                Some("object" | "number" | "integer" | "boolean") => {
                    let (start, description) = (self.result_of(result), description(result.schema));
                    (format!("`{text}` is no list: {start} {description}"), false)
                }
                _ => return,
            },
            KnownType::Missing { .. } => return,
        };
        let is_certain = fails && self.is_certain(node);
        self.add(value.span().start, message, is_certain);
    }

    fn text(&self, expression: &Expression<'a>) -> String {
        let text = expression.span().source_text(self.semantic.source_text());
        let line = text.lines().next().unwrap_or_default();
        if line.len() == text.len() && text.chars().count() <= 60 {
            text.to_owned()
        } else {
            "the result".into()
        }
    }
}

/// Returns the type of a member that surely or perhaps does not exist.
fn missing_type<'v>(known: &KnownType<'v>, name: String) -> Option<KnownType<'v>> {
    let KnownType::Schema(result) = known else { return None };
    missing_member(result.schema, &name).map(|_| KnownType::Missing { result: *result, name })
}

fn element_type<'v>(known: &KnownType<'v>) -> Option<KnownType<'v>> {
    let KnownType::Schema(result) = known else { return None };
    let items = result.schema.get("items").filter(|items| items.is_object())?;
    Some(KnownType::Schema(ResultSchema { schema: resolved(items, result.root), ..*result }))
}

fn member_type<'v>(known: &KnownType<'v>, name: &str) -> Option<KnownType<'v>> {
    let KnownType::Schema(result) = known else { return None };
    let schema = resolved(result.schema["properties"].get(name)?, result.root);
    Some(KnownType::Schema(ResultSchema { schema, ..*result }))
}
