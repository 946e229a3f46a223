//! Checks the members that a script reads from the results of tools whose type is known.

use oxc::ast::AstKind;
use oxc::ast::ast::{BindingPattern, CallExpression, Expression, VariableDeclarator};
use oxc::semantic::{NodeId, SymbolId};
use oxc::span::GetSpan;
use serde_json::Value;

use super::arguments::resolved;
use super::members::{OF_OBJECTS, description, missing_member};
use super::targets::{Receiver, Target};
use super::{Checker, Finding, FindingKind};

/// Variables and members are followed this far.
pub(super) const MAX_DEPTH: usize = 6;
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
    /// `JSON.parse` was called with the value: it returns data of a result as it is.
    pub(crate) is_parsed: bool,
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
pub(super) enum AsyncFunction {
    /// The tool of a server, by their indices.
    Tool((usize, usize)),
    /// A function of `mcp`.
    Query(&'static str),
}

/// The known type of an expression.
pub(super) enum KnownType<'v> {
    /// A call of this function without `await`.
    Promise(AsyncFunction),
    /// The result of this tool, or a part of it.
    Schema(ResultSchema<'v>),
    /// A member that a result does not have.
    Missing { result: ResultSchema<'v>, name: String },
}

#[derive(Clone, Copy)]
pub(super) struct ResultSchema<'v> {
    tool: (usize, usize),
    pub(super) schema: &'v Value,
    root: &'v Value,
    /// The schema is that of earlier results: this one may differ.
    is_observed: bool,
}

impl KnownType<'_> {
    /// Returns true for objects and lists.
    fn is_data(&self) -> bool {
        matches!(self, Self::Schema(result) if result.schema["type"] == "object" || result.schema["type"] == "array")
    }

    /// Returns true if both are the same part of the result of a tool, and data.
    fn is_same_data(&self, other: &Self) -> bool {
        let (Self::Schema(one), Self::Schema(other)) = (self, other) else { return false };
        self.is_data() && one.tool == other.tool && std::ptr::eq(one.schema, other.schema)
    }
}

impl<'a, 's> Checker<'a, 's> {
    pub(super) fn type_of(&self, expression: &Expression<'a>, depth: usize) -> Option<KnownType<'s>> {
        let depth = depth.checked_sub(1)?;
        match expression.get_inner_expression() {
            Expression::CallExpression(call) => match self.parsed_text(call) {
                Some(text) => self.type_of(text, depth).filter(KnownType::is_data),
                None => self.called(&call.callee).map(KnownType::Promise),
            },
            // `typeof raw === 'string' ? JSON.parse(raw) : raw`
            Expression::ConditionalExpression(choice) => {
                let other = self.type_of(&choice.alternate, depth)?;
                let known = self.type_of(&choice.consequent, depth)?;
                known.is_same_data(&other).then_some(known)
            }
            Expression::AwaitExpression(awaited) => match self.type_of(&awaited.argument, depth)? {
                KnownType::Promise(AsyncFunction::Tool(tool)) => self.result_type(tool),
                KnownType::Promise(AsyncFunction::Query(_)) => None,
                known => Some(known),
            },
            Expression::Identifier(identifier) => self.variable_type(self.symbol(identifier)?, depth),
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

    fn variable_type(&self, symbol: SymbolId, depth: usize) -> Option<KnownType<'s>> {
        if let Some(call) = self.awaited_together(symbol) {
            return match self.type_of(call, depth)? {
                KnownType::Promise(AsyncFunction::Tool(tool)) => self.result_type(tool),
                _ => None,
            };
        }
        let Some((init, key)) = self.initial_value(symbol) else {
            return self.received_type(symbol, depth);
        };
        let known = self.type_of(init, depth)?;
        match key {
            Some(key) => member_type(&known, &key).or_else(|| missing_type(&known, key)),
            None => Some(known),
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

    /// Returns the argument of `JSON.parse(text)`.
    fn parsed_text<'e>(&self, call: &'e CallExpression<'a>) -> Option<&'e Expression<'a>> {
        let Expression::StaticMemberExpression(callee) = &call.callee else { return None };
        let Expression::Identifier(object) = &callee.object else { return None };
        let is_parse =
            callee.property.name == "parse" && object.name == "JSON" && self.symbol(object).is_none();
        call.arguments.first().filter(|_| is_parse)?.as_expression()
    }

    /// Returns the call of a function as scripts write it.
    fn call_text(&self, function: AsyncFunction) -> String {
        match function {
            AsyncFunction::Tool(tool) => self.function_name(tool),
            AsyncFunction::Query(name) => format!("mcp.{name}"),
        }
    }

    /// Returns the calls that an expression may come from: more than one if it has alternatives, as `a ?? b` has.
    pub(super) fn origins_of(&self, expression: &Expression<'a>, depth: usize) -> Vec<CallOrigin> {
        let Some(depth) = depth.checked_sub(1) else { return Vec::new() };
        let origins = |expression| self.origins_of(expression, depth);
        match expression.get_inner_expression() {
            Expression::CallExpression(call) => {
                let called = self.called(&call.callee).map(|function| match function {
                    AsyncFunction::Tool(tool) => self.tool_id(tool),
                    AsyncFunction::Query(name) => format!("mcp.{name}"),
                });
                if let Some(text) = self.parsed_text(call) {
                    let parsed = origins(text).into_iter();
                    return parsed.map(|origin| CallOrigin { is_parsed: true, ..origin }).collect();
                }
                let origin =
                    |tool| CallOrigin { tool, is_awaited: false, is_parsed: false, path: Vec::new() };
                called.map(origin).into_iter().collect()
            }
            Expression::AwaitExpression(awaited) => {
                let awaited = origins(&awaited.argument).into_iter();
                awaited.map(|origin| CallOrigin { is_awaited: true, ..origin }).collect()
            }
            Expression::Identifier(identifier) => {
                let origins = |symbol| self.variable_origins(symbol, depth);
                self.symbol(identifier).map(origins).unwrap_or_default()
            }
            Expression::StaticMemberExpression(member) => {
                let name = &member.property.name;
                origins(&member.object).into_iter().map(|origin| origin.member(name.to_string())).collect()
            }
            Expression::ComputedMemberExpression(member) => {
                let Some(key) = literal_key(&member.expression) else { return Vec::new() };
                origins(&member.object).into_iter().map(|origin| origin.member(key.clone())).collect()
            }
            Expression::ConditionalExpression(choice) => {
                [origins(&choice.consequent), origins(&choice.alternate)].concat()
            }
            Expression::LogicalExpression(choice) => [origins(&choice.left), origins(&choice.right)].concat(),
            _ => Vec::new(),
        }
    }

    fn variable_origins(&self, symbol: SymbolId, depth: usize) -> Vec<CallOrigin> {
        if let Some(call) = self.awaited_together(symbol) {
            let awaited = self.origins_of(call, depth).into_iter();
            return awaited.map(|origin| CallOrigin { is_awaited: true, ..origin }).collect();
        }
        let Some((init, key)) = self.initial_value(symbol) else { return Vec::new() };
        let found = self.origins_of(init, depth).into_iter();
        found.map(|origin| key.clone().into_iter().fold(origin, CallOrigin::member)).collect()
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
                    || self.may_be_assigned(name)
                {
                    return;
                }
                let call = self.call_text(function);
                (
                    format!("{text} is a promise, which has no `{name}`: write `await` before `{call}(…)`"),
                    true,
                )
            }
            KnownType::Schema(result) => {
                let is_expected = self.is_assigned(node) || self.is_tested(node);
                return self.add_missing_member(result, &text, name, offset, is_expected);
            }
            KnownType::Missing { result, name } => {
                let Some(description) = missing_member(result.schema, &name) else { return };
                (format!("{text} is undefined: {} {description}", self.result_of(result)), false)
            }
        };
        let is_certain = fails && self.is_certain(node);
        self.add(offset, message, is_certain);
    }

    /// Checks the keys of `const { key } = value`.
    pub(super) fn check_pattern(&mut self, declarator: &VariableDeclarator<'a>) {
        let (BindingPattern::ObjectPattern(pattern), Some(value)) = (&declarator.id, &declarator.init) else {
            return;
        };
        let Some(KnownType::Schema(result)) = self.type_of(value, MAX_DEPTH) else { return };
        let text = self.text(value);
        for property in &pattern.properties {
            let Some(name) = property.key.static_name() else { continue };
            let has_default = property.value.is_assignment_pattern();
            self.add_missing_member(result, &text, &name, property.span.start, has_default);
        }
    }

    /// Reports a member that a result does not have. `is_expected` is true if the script allows for that.
    fn add_missing_member(
        &mut self,
        result: ResultSchema<'_>,
        text: &str,
        name: &str,
        offset: u32,
        is_expected: bool,
    ) {
        let Some(description) = missing_member(result.schema, name) else { return };
        if self.may_be_assigned(name) {
            return;
        }
        let message = format!("{text} has no member `{name}`: {} {description}", self.result_of(result));
        let finding = Finding::new(offset, message, false, FindingKind::Call("INVALID_INPUT"));
        let is_object = result.schema["type"] == "object";
        let missing_member = (is_object && !is_expected).then(|| name.to_owned());
        self.findings.push(Finding { tool: Some(self.tool_id(result.tool)), missing_member, ..finding });
    }

    /// Returns true if the script tests the value of an expression: then it may be undefined.
    pub(super) fn is_tested(&self, node: NodeId) -> bool {
        let span = self.semantic.nodes().kind(node).span();
        let Some(user) = self.user_of(node) else { return false };
        match user.kind() {
            AstKind::LogicalExpression(logical) => logical.left.span().contains_inclusive(span),
            AstKind::ConditionalExpression(choice) => choice.test.span().contains_inclusive(span),
            AstKind::BinaryExpression(binary) => binary.operator.is_equality(),
            AstKind::StaticMemberExpression(member) => member.optional,
            AstKind::ComputedMemberExpression(member) => member.optional,
            AstKind::CallExpression(call) => call.optional,
            AstKind::IfStatement(_) | AstKind::WhileStatement(_) | AstKind::UnaryExpression(_) => true,
            _ => false,
        }
    }

    /// Checks the value of `for (… of value)`.
    pub(super) fn check_iterated(&mut self, node: NodeId, value: &Expression<'a>) {
        let Some(known) = self.type_of(value, MAX_DEPTH) else { return };
        let text = self.text(value);
        let (message, fails) = match known {
            KnownType::Promise(function) => {
                let call = self.call_text(function);
                (format!("{text} is a promise: write `await` before `{call}(…)`"), true)
            }
            KnownType::Schema(result) => match result.schema["type"].as_str() {
                Some("object" | "number" | "integer" | "boolean") => {
                    let (start, description) = (self.result_of(result), description(result.schema));
                    (format!("{text} is no list: {start} {description}"), false)
                }
                _ => return,
            },
            KnownType::Missing { .. } => return,
        };
        let is_certain = fails && self.is_certain(node);
        self.add(value.span().start, message, is_certain);
    }

    pub(super) fn text(&self, expression: &Expression<'a>) -> String {
        let text = expression.span().source_text(self.semantic.source_text());
        let line = text.lines().next().unwrap_or_default();
        if line.len() == text.len() && text.chars().count() <= 60 {
            format!("`{text}`")
        } else {
            "the result".into()
        }
    }
}

/// Returns the key of `object[key]` if it is a literal.
pub(crate) fn literal_key(key: &Expression<'_>) -> Option<String> {
    match key {
        Expression::NumericLiteral(number) => Some(number.value.to_string()),
        Expression::StringLiteral(text) => Some(text.value.to_string()),
        _ => None,
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
