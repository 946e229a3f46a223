//! Makes the engine's short errors clear: names the expression that failed, and tells the value that it had as far as the
//! results of calls tell it.

mod destructuring;

use oxc::allocator::Allocator;
use oxc::ast::AstKind;
use oxc::ast::ast::{Argument, BindingPattern, Expression, ForOfStatement, ForStatementLeft};
use oxc::parser::{ParseOptions, Parser};
use oxc::semantic::{Semantic, SemanticBuilder, SymbolId};
use oxc::span::{GetSpan, SourceType, Span};

use crate::check::{CallOrigin, call_origins, is_tool, literal_key};
use crate::last_results::LastResults;
use crate::names::advice_for_global;
use crate::tool_lookup::ToolLookup;
use crate::typescript::{SourcePosition, offset_of, position_of, without_fence};
use destructuring::{DestructuredValue, Destructuring};

/// Objects of the language whose functions scripts call.
const LANGUAGE: [&str; 10] =
    ["Array", "Boolean", "Date", "JSON", "Math", "Number", "Object", "Promise", "String", "console"];

const STACK_OVERFLOW: &str = "Maximum call stack size exceeded";

/// A clearer message, and the place of the error if the engine's is not the right one.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Explanation {
    pub(crate) message: String,
    pub(crate) position: Option<SourcePosition>,
}

/// The calls of a script until its error.
pub(crate) struct CallHistory<'s> {
    pub(crate) results: &'s LastResults,
    /// Tools whose calls had not ended.
    pub(crate) in_flight: Vec<String>,
}

/// Tells if a global of the engine, or a member of it, is a function.
pub(crate) type IsFunction<'f> = dyn Fn(&str, Option<&str>) -> bool + 'f;

/// Explains an error of the engine. The position is the engine's, if it has one.
pub(crate) fn explain(
    source: &str,
    tools: &ToolLookup,
    message: &str,
    position: Option<SourcePosition>,
    calls: &CallHistory<'_>,
    is_function: &IsFunction<'_>,
) -> Option<Explanation> {
    if let Some(name) = message.strip_suffix(" is not defined") {
        let advice = advice_for_global(name)?;
        return Some(Explanation::in_place(format!("`{name}` is not defined: {advice}")));
    }
    let source = &*without_fence(source);
    let arena = Allocator::default();
    let options = ParseOptions { allow_return_outside_function: true, ..ParseOptions::default() };
    let parsed =
        Parser::new(&arena, source, SourceType::ts().with_module(true)).with_options(options).parse();
    let semantic = SemanticBuilder::new().with_build_nodes(true).build(&parsed.program).semantic;
    let at = position.and_then(|position| offset_of(source, position));
    let explainer = Explainer { source, semantic: &semantic, tools, calls, is_function };
    if let Some(name) = message.strip_suffix("' is read-only").and_then(|rest| rest.strip_prefix('\'')) {
        return explainer.constant(name, at.unwrap_or(0));
    }
    if message == STACK_OVERFLOW {
        return explainer.recursion();
    }
    if message == "Cannot convert undefined or null to object" {
        return explainer.destructured(at, false, "undefined or null");
    }
    let not_iterable = match message {
        "value is not iterable" => Some("not iterable"),
        _ => message.strip_prefix("cannot read property 'Symbol.iterator' of "),
    };
    if let Some(value) = not_iterable {
        let iterated = at.and_then(|at| explainer.iterated(at)).map(Explanation::in_place);
        return iterated.or_else(|| explainer.destructured(at, true, value));
    }
    let explained = match message {
        "not a function" => explainer.call(at?),
        "JSON.parse takes text, and was given undefined" => explainer.parsed(at?),
        _ => {
            let rest = message.strip_prefix("cannot read property '")?;
            let (name, value) = rest.split_once("' of ")?;
            explainer.read(at?, name, value)
        }
    };
    explained.map(Explanation::in_place)
}

impl Explanation {
    /// The engine's position is right.
    fn in_place(message: String) -> Self {
        Self { message, position: None }
    }
}

struct Explainer<'a, 's> {
    source: &'s str,
    semantic: &'s Semantic<'a>,
    tools: &'s ToolLookup,
    calls: &'s CallHistory<'s>,
    is_function: &'s IsFunction<'s>,
}

impl<'a> Explainer<'a, '_> {
    /// Explains a call of a value that is no function.
    fn call(&self, at: u32) -> Option<String> {
        let callee = self.callee(at)?;
        let object = match callee.get_inner_expression() {
            Expression::StaticMemberExpression(member) => Some(&member.object),
            Expression::ComputedMemberExpression(member) => Some(&member.object),
            _ => None,
        };
        let value = object.map(|object| self.value(object)).unwrap_or_default();
        let envelope = object.and_then(|object| self.envelope(object)).unwrap_or_default();
        Some(format!("{} is not a function{value}{envelope}", self.text(callee)))
    }

    /// Returns the callee that is no function. The engine reports the last position before the call, which may be that of a
    /// function among its arguments, or of a call there that succeeded.
    fn callee(&self, at: u32) -> Option<&'a Expression<'a>> {
        let nodes = self.semantic.nodes();
        let exact = nodes.iter().find_map(|node| match node.kind() {
            AstKind::CallExpression(call) if called_at(&call.callee) == at => Some((&call.callee, call.span)),
            AstKind::NewExpression(new) if new.callee.span().start == at => Some((&new.callee, new.span)),
            _ => None,
        });
        let inner = match exact {
            Some((callee, span)) if self.is_known_function(callee) => span,
            Some((callee, _)) => return Some(callee),
            None => Span::sized(at, 0),
        };
        // An error inside a callback never belongs to the call outside.
        let bodies = nodes.iter().filter_map(|node| match node.kind() {
            AstKind::Function(function) => function.body.as_ref().map(|body| body.span),
            AstKind::ArrowFunctionExpression(arrow) => Some(arrow.body.span()),
            _ => None,
        });
        let bodies = bodies.filter(|body| body.contains_inclusive(inner));
        let function = bodies.min_by_key(|body| body.size()).unwrap_or(nodes.program().span);
        let around = nodes.iter().filter_map(|node| match node.kind() {
            AstKind::CallExpression(call) => {
                let is_argument = |argument: &Argument<'_>| argument.span().contains_inclusive(inner);
                let is_around =
                    function.contains_inclusive(call.span) && call.arguments.iter().any(is_argument);
                (is_around && !self.is_known_function(&call.callee)).then_some((&call.callee, call.span))
            }
            _ => None,
        });
        around.min_by_key(|(_, span)| span.size()).map(|(callee, _)| callee)
    }

    /// Returns true for tools, and for functions that the language has, such as `Math.max`.
    fn is_known_function(&self, callee: &Expression<'a>) -> bool {
        if is_tool(self.semantic, self.tools, callee) {
            return true;
        }
        let (root, member) = match callee.get_inner_expression() {
            Expression::StaticMemberExpression(member) => {
                (member.object.get_inner_expression(), Some(member.property.name.as_str()))
            }
            callee => (callee, None),
        };
        let Expression::Identifier(root) = root else { return false };
        let is_global = root
            .reference_id
            .get()
            .is_some_and(|id| self.semantic.scoping().get_reference(id).symbol_id().is_none());
        is_global && LANGUAGE.contains(&root.name.as_str()) && (self.is_function)(&root.name, member)
    }

    /// Explains `JSON.parse(undefined)`.
    fn parsed(&self, at: u32) -> Option<String> {
        let calls = self.semantic.nodes().iter().filter_map(|node| match node.kind() {
            AstKind::CallExpression(call) if self.quoted(call.callee.span()) == "`JSON.parse`" => Some(call),
            _ => None,
        });
        // The engine's position is in the call.
        let call = calls.min_by_key(|call| {
            (!(call.span.start..call.span.end).contains(&at), call.span.start.abs_diff(at))
        })?;
        let argument = call.arguments.first()?.as_expression()?;
        let envelope = self.envelope(argument)?;
        Some(format!("JSON.parse takes text, and {} is undefined{envelope}", self.text(argument)))
    }

    /// Explains `value.content[0].text`, which scripts write as if a call returned the whole result of MCP.
    fn envelope(&self, expression: &Expression<'a>) -> Option<String> {
        let value = match expression.get_inner_expression() {
            Expression::StaticMemberExpression(member) if member.property.name == "content" => &member.object,
            Expression::StaticMemberExpression(member) => return self.envelope(&member.object),
            Expression::ComputedMemberExpression(member) => return self.envelope(&member.object),
            Expression::CallExpression(call) => return self.envelope(&call.callee),
            _ => return None,
        };
        let [origin] = &call_origins(self.semantic, self.tools, value)[..] else { return None };
        let whole = self.calls.results.describe(&origin.tool, &origin.path)?;
        let content =
            self.calls.results.describe(&origin.tool, &[&origin.path[..], &["content".into()]].concat());
        if !origin.is_awaited || content.is_some_and(|content| content == "an array") {
            return None;
        }
        let text = self.text(value);
        Some(format!(
            "; {text} is the value itself ({whole}): `bascule.raw` gives the MCP result with `content`"
        ))
    }

    /// Explains the reading of a member of `undefined` or `null`.
    fn read(&self, at: u32, name: &str, value: &str) -> Option<String> {
        let readings = self.semantic.nodes().iter().filter_map(|node| match node.kind() {
            AstKind::StaticMemberExpression(member)
                if member.property.name == name && (member.span.start..member.span.end).contains(&at) =>
            {
                Some((member.span, &member.object))
            }
            _ => None,
        });
        let indexed = self.semantic.nodes().iter().filter_map(|node| match node.kind() {
            AstKind::ComputedMemberExpression(member)
                if literal_key(&member.expression).is_some_and(|key| key == name)
                    && (member.span.start..member.span.end).contains(&at) =>
            {
                Some((member.span, &member.object))
            }
            _ => None,
        });
        // The engine's position is the start of the expression, or a call in it.
        let readings = readings.chain(indexed);
        let (_, object) = readings.min_by_key(|(span, _)| (span.start != at, span.size()))?;
        let text = self.text(object);
        let owner = match object.get_inner_expression() {
            Expression::StaticMemberExpression(member) => self.value(&member.object),
            Expression::ComputedMemberExpression(member) => self.value(&member.object),
            object => self.value(object),
        };
        let envelope = self.envelope(object).unwrap_or_default();
        Some(format!("cannot read `{name}` of {value}: {text} is {value}{owner}{envelope}"))
    }

    /// Names the function that calls itself, if there is one alone. The engine has no stack left to tell its own.
    fn recursion(&self) -> Option<Explanation> {
        let nodes = self.semantic.nodes();
        let calls: Vec<_> = nodes
            .iter()
            .filter_map(|node| {
                let AstKind::CallExpression(call) = node.kind() else { return None };
                let Expression::Identifier(name) = call.callee.get_inner_expression() else { return None };
                let symbol = self.semantic.scoping().get_reference(name.reference_id.get()?).symbol_id()?;
                let is_inside =
                    nodes.ancestor_kinds(node.id()).any(|kind| declared_function(kind) == Some(symbol));
                is_inside.then_some((symbol, name))
            })
            .collect();
        let (symbol, name) = calls.first()?;
        if calls.iter().any(|(other, _)| other != symbol) {
            return None;
        }
        let position = position_of(self.source, name.span.start as usize);
        let message = format!("{STACK_OVERFLOW}: `{}` calls itself in line {}", name.name, position.line);
        Some(Explanation { message, position: Some(position) })
    }

    fn iterated(&self, at: u32) -> Option<String> {
        let (value, has_pattern) = self.semantic.nodes().iter().find_map(|node| {
            match node.kind() {
                AstKind::ForOfStatement(statement) => Some((&statement.right, has_list_pattern(statement))),
                AstKind::SpreadElement(spread) => Some((&spread.argument, false)),
                AstKind::VariableDeclarator(declarator) => Some((declarator.init.as_ref()?, false)),
                _ => None,
            }
            .filter(|(value, _)| value.span().start == at)
        })?;
        // The engine does not tell the list from its elements, which the pattern takes apart.
        let element = if has_pattern { ", or an element of it," } else { "" };
        Some(format!("{}{element} is not iterable{}", self.text(value), self.value(value)))
    }

    /// Explains a pattern whose value cannot be taken apart. `state` is what the value is.
    fn destructured(&self, at: Option<u32>, is_list: bool, state: &str) -> Option<Explanation> {
        let Destructuring { pattern, value, is_nested, .. } =
            destructuring::find(self.semantic, at, is_list)?;
        let target = self.quoted(pattern);
        let (subject, origin) = match value {
            DestructuredValue::Expression(value) => (self.text(value), self.value(value)),
            DestructuredValue::ElementOf(list) => {
                (format!("an element of {}", self.text(list)), self.value(list))
            }
            DestructuredValue::Argument => ("the argument".into(), self.latest()),
        };
        let subject = if is_nested { format!("{subject}, or a part of it,") } else { subject };
        let message = format!("cannot destructure {target}: {subject} is {state}{origin}");
        Some(Explanation { message, position: Some(position_of(self.source, pattern.start as usize)) })
    }

    /// Explains an assignment to a constant. The engine's position may be that of an earlier line.
    fn constant(&self, name: &str, at: u32) -> Option<Explanation> {
        let scoping = self.semantic.scoping();
        let assignments = self.semantic.nodes().iter().filter_map(|node| match node.kind() {
            AstKind::IdentifierReference(identifier) if identifier.name == name => {
                let reference = scoping.get_reference(identifier.reference_id.get()?);
                reference.is_write().then_some(identifier.span)
            }
            _ => None,
        });
        let span = assignments.min_by_key(|span| (span.end < at, span.start.abs_diff(at)))?;
        let message = format!("`{name}` is a constant: declare it with `let` to change it");
        Some(Explanation { message, position: Some(position_of(self.source, span.start as usize)) })
    }

    /// Describes the value of an expression: by the call that it comes from, else by the latest calls of the script.
    fn value(&self, expression: &Expression<'a>) -> String {
        let origins = call_origins(self.semantic, self.tools, expression);
        let is_same = |other: &CallOrigin| (&other.tool, &other.path) == (&origins[0].tool, &origins[0].path);
        let is_parsed = origins.iter().any(|origin| origin.is_parsed && self.is_text(origin));
        match origins.as_slice() {
            [origin, others @ ..] if !is_parsed && others.iter().all(is_same) => {
                self.value_of(expression, origin)
            }
            origins => origins.iter().find_map(|origin| self.whole_result(origin)),
        }
        .unwrap_or_else(|| self.latest())
    }

    /// Describes the value of an expression that comes from one call.
    fn value_of(&self, expression: &Expression<'a>, origin: &CallOrigin) -> Option<String> {
        let (text, tool) = (self.text(expression), &origin.tool);
        if !origin.is_awaited {
            return Some(format!(" ({text} is a promise: write `await` before the call of {tool})"));
        }
        let is_named = !matches!(expression.get_inner_expression(), Expression::AwaitExpression(_));
        if let Some(value) = self.calls.results.describe(tool, &origin.path).filter(|_| is_named) {
            let part = if origin.path.is_empty() { "the" } else { "of the" };
            return Some(format!(" ({text} is {value}, {part} result of {tool})"));
        }
        self.whole_result(origin)
    }

    /// Returns true if the value at an origin is text: `JSON.parse` returns another value then.
    fn is_text(&self, CallOrigin { tool, path, .. }: &CallOrigin) -> bool {
        self.calls.results.describe(tool, path).is_some_and(|value| value.starts_with("a string"))
    }

    fn whole_result(&self, CallOrigin { tool, .. }: &CallOrigin) -> Option<String> {
        let whole = self.calls.results.describe(tool, &[])?;
        Some(format!(" (the result of {tool} is {whole})"))
    }

    /// Describes the latest calls: a value of unknown origin is probably a result of one of them, or its promise.
    fn latest(&self) -> String {
        if let [tool, ..] = self.calls.in_flight.as_slice() {
            return format!(" (the call of {tool} had not ended: is an `await` missing?)");
        }
        let results = self.calls.results.describe_latest();
        match results
            .iter()
            .map(|(tool, value)| format!("of {tool} is {value}"))
            .reduce(|all, one| all + "; " + &one)
        {
            Some(all) => format!(" (the last result {all})"),
            None => String::new(),
        }
    }

    /// Quotes an expression, without the types around it.
    fn text(&self, expression: &Expression<'a>) -> String {
        self.quoted(expression.get_inner_expression().span())
    }

    fn quoted(&self, span: Span) -> String {
        let text = span.source_text(self.source);
        match text.char_indices().nth(60) {
            None if !text.contains('\n') => format!("`{text}`"),
            _ => "the value".into(),
        }
    }
}

/// Returns the variable of a function at its declaration.
fn declared_function(kind: AstKind<'_>) -> Option<SymbolId> {
    let name = match kind {
        AstKind::Function(function) => function.id.as_ref(),
        AstKind::VariableDeclarator(declarator) => match &declarator.id {
            BindingPattern::BindingIdentifier(name) => Some(&**name),
            _ => None,
        },
        _ => None,
    };
    name?.symbol_id.get()
}

/// Returns true for `for (const [a, b] of list)`.
fn has_list_pattern(statement: &ForOfStatement<'_>) -> bool {
    let ForStatementLeft::VariableDeclaration(declaration) = &statement.left else { return false };
    declaration.declarations.iter().any(|declared| declared.id.is_array_pattern())
}

/// The engine's position of a call: the member's name, or the start of the callee.
fn called_at(callee: &Expression<'_>) -> u32 {
    match callee.get_inner_expression() {
        Expression::StaticMemberExpression(member) => member.property.span.start,
        callee => callee.span().start,
    }
}
