//! Finds the value that the author of a script without a `return` meant to return, and calls a script that is one function.

use oxc::allocator::{Allocator, Vec as ArenaVec};
use oxc::ast::AstKind;
use oxc::ast::ast::{
    ArrowFunctionExpression, BindingIdentifier, BindingPattern, CallExpression, Expression, Function,
    Program, Statement,
};
use oxc::ast::builder::AstBuilder;
use oxc::semantic::{Semantic, SymbolId};
use oxc::span::{GetSpan, Span};

/// Functions that are probably the whole script.
const MAIN: [&str; 4] = ["main", "run", "execute", "script"];
/// Values with more characters are not quoted.
const MAX_QUOTED: usize = 60;

/// A value that a script does not return, though its author probably meant it.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Unreturned {
    /// The offset of a value that is not returned, or of a function that is not called, and what to write.
    pub(crate) value: Option<(u32, String)>,
    /// The last call of an asynchronous or main function of the script whose value is not returned.
    pub(crate) call: Option<DroppedCall>,
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) struct DroppedCall {
    pub(crate) offset: u32,
    /// The call of the function, without `await` and `.catch(…)`.
    span: Span,
    /// The text to write.
    pub(crate) advice: String,
    /// The call is the last statement of a script without a `return`, and has a value: the script returns it.
    pub(crate) is_result: bool,
    /// `main().then(…)`: the value of the function may end there.
    has_then: bool,
}

impl Unreturned {
    /// Returns the place of the call whose value is that of the script, unchanged.
    pub(crate) fn result_call(&self) -> Option<Span> {
        self.call.as_ref().filter(|call| call.is_result && !call.has_then).map(|call| call.span)
    }

    /// Returns true if the script returns the value of its last call.
    pub(crate) fn has_result(&self) -> bool {
        self.call.as_ref().is_some_and(|call| call.is_result)
    }
}

impl DroppedCall {
    /// Returns true if the script lost the value of the call, if its own is undefined.
    pub(crate) fn is_lost(&self) -> bool {
        !self.is_result || self.has_then
    }
}

/// A function at the top of the script.
struct DeclaredFunction<'a> {
    name: &'a str,
    symbol: SymbolId,
    offset: u32,
    value: FunctionValue<'a>,
}

/// A function as the script has it.
#[derive(Clone, Copy)]
enum FunctionValue<'a> {
    Function(&'a Function<'a>),
    Arrow(&'a ArrowFunctionExpression<'a>),
}

/// Makes a script that is one function, such as `async () => { … }`, return the value of its call.
pub(crate) fn call_sole_function<'a>(arena: &'a Allocator, program: &mut Program<'a>) {
    let is_code = |statement: &&mut Statement<'a>| {
        !matches!(
            statement,
            Statement::EmptyStatement(_)
                | Statement::TSInterfaceDeclaration(_)
                | Statement::TSTypeAliasDeclaration(_)
        )
    };
    let mut statements = program.body.iter_mut().filter(is_code);
    let (Some(statement), None) = (statements.next(), statements.next()) else { return };
    let Statement::ExpressionStatement(only) = &mut *statement else { return };
    if !only.expression.get_inner_expression().is_function() {
        return;
    }
    let (builder, span) = (AstBuilder::new(arena), only.span);
    let function = take(&mut only.expression, &builder);
    let arguments = ArenaVec::new_in(&builder);
    let call = Expression::new_call_expression(span, function, None, arguments, false, &builder);
    *statement = Statement::new_return_statement(span, Some(call), &builder);
}

/// Makes the last statement, a call such as `main()`, return its promise in a list: so the script does not wait for it.
pub(crate) fn return_last_call<'a>(arena: &'a Allocator, program: &mut Program<'a>) {
    let Some(statement) = program.body.iter_mut().rev().find(|statement| is_effective(statement)) else {
        return;
    };
    let Statement::ExpressionStatement(last) = &mut *statement else { return };
    let (builder, span) = (AstBuilder::new(arena), last.span);
    let mut value = take(&mut last.expression, &builder);
    // `!function () { … }()` is another spelling of a call.
    loop {
        value = match &mut value {
            Expression::UnaryExpression(unary) => take(&mut unary.argument, &builder),
            Expression::ParenthesizedExpression(inner) => take(&mut inner.expression, &builder),
            _ => break,
        }
    }
    let list = ArenaVec::from_array_in([value.into()], &builder);
    let list = Expression::new_array_expression(span, list, &builder);
    *statement = Statement::new_return_statement(span, Some(list), &builder);
}

fn take<'a>(expression: &mut Expression<'a>, builder: &AstBuilder<'a>) -> Expression<'a> {
    let nothing = Expression::new_null_literal(expression.span(), builder);
    std::mem::replace(expression, nothing)
}

/// Finds the value and the call that a script does not return.
pub(crate) fn find<'a>(source: &str, semantic: &Semantic<'a>) -> Unreturned {
    let body = &semantic.nodes().program().body;
    let functions: Vec<_> = body.iter().flat_map(declared_functions).collect();
    let function_of = |symbol: Option<SymbolId>| {
        functions.iter().find(|function| symbol.is_some_and(|symbol| symbol == function.symbol))
    };
    let symbol_of = |expression: &Expression<'_>| match expression.get_inner_expression() {
        Expression::Identifier(name) => {
            semantic.scoping().get_reference(name.reference_id.get()?).symbol_id()
        }
        _ => None,
    };
    let last = last_statement(body);
    let named = match last {
        Some(Statement::ExpressionStatement(last)) => function_of(symbol_of(&last.expression)),
        _ => None,
    };
    let uncalled = || {
        let is_unused = |symbol| semantic.scoping().get_resolved_reference_ids(symbol).is_empty();
        let unused = || functions.iter().filter(|function| is_unused(function.symbol));
        let found = unused().find(|function| MAIN.contains(&function.name)).or_else(|| unused().next_back());
        found.filter(|_| !returns(semantic))
    };
    let value = last.filter(|_| named.is_none()).and_then(value_span);
    let value = match (value, named.or_else(uncalled)) {
        (Some(span), _) => {
            Some((span.start, format!("the script returned nothing: {}", write_return(source, span))))
        }
        (None, Some(DeclaredFunction { name, offset, .. })) => {
            Some((*offset, format!("the function `{name}` is never called: write `return await {name}()`")))
        }
        (None, None) => None,
    };
    let call = body.iter().rev().find_map(|statement| {
        let Statement::ExpressionStatement(statement) = statement else { return None };
        let CalledFunction { call, is_awaited, is_void, has_then } = called(&statement.expression)?;
        let declared = function_of(symbol_of(&call.callee));
        let value = declared.map(|declared| declared.value).or_else(|| FunctionValue::of(&call.callee))?;
        let is_last = last.is_some_and(|last| last.span() == statement.span);
        let is_main = value.is_async() || declared.is_some_and(|declared| MAIN.contains(&declared.name));
        let is_result = is_last && !is_void && value.returns_value(semantic) && !returns(semantic);
        let advice = return_advice(source, call, declared.is_some());
        let (offset, span) = (statement.span.start, call.span);
        let dropped = DroppedCall { offset, span, advice, is_result, has_then };
        // Nothing is lost by a call that is awaited and has no value.
        (is_main && (is_result || !is_awaited)).then_some(dropped)
    });
    Unreturned { value, call }
}

/// Returns the last statement that does anything.
pub(crate) fn last_statement<'s, 'a>(body: &'s [Statement<'a>]) -> Option<&'s Statement<'a>> {
    body.iter().rev().find(|statement| is_effective(statement))
}

fn is_effective(statement: &Statement<'_>) -> bool {
    !matches!(statement, Statement::EmptyStatement(_) | Statement::FunctionDeclaration(_))
}

/// Returns the functions that a statement declares.
fn declared_functions<'a>(statement: &'a Statement<'a>) -> Vec<DeclaredFunction<'a>> {
    let named = |id: &'a BindingIdentifier<'a>, value| {
        let (name, symbol) = (id.name.as_str(), id.symbol_id.get()?);
        Some(DeclaredFunction { name, symbol, offset: id.span.start, value })
    };
    match statement {
        Statement::FunctionDeclaration(function) => {
            let id = function.id.as_ref();
            id.and_then(|id| named(id, FunctionValue::Function(function))).into_iter().collect()
        }
        Statement::VariableDeclaration(declaration) => {
            let functions = declaration.declarations.iter().filter_map(|declarator| {
                let BindingPattern::BindingIdentifier(id) = &declarator.id else { return None };
                named(id, FunctionValue::of(declarator.init.as_ref()?)?)
            });
            functions.collect()
        }
        _ => Vec::new(),
    }
}

impl<'a> FunctionValue<'a> {
    fn of(expression: &'a Expression<'a>) -> Option<Self> {
        match expression.get_inner_expression() {
            Expression::FunctionExpression(function) => Some(Self::Function(function)),
            Expression::ArrowFunctionExpression(arrow) => Some(Self::Arrow(arrow)),
            _ => None,
        }
    }

    fn span(self) -> Span {
        match self {
            Self::Function(function) => function.span,
            Self::Arrow(arrow) => arrow.span,
        }
    }

    fn is_async(self) -> bool {
        match self {
            Self::Function(function) => function.r#async,
            Self::Arrow(arrow) => arrow.r#async,
        }
    }

    /// Returns true if the function has a `return` with a value, or is an asynchronous expression that does more than to print.
    fn returns_value(self, semantic: &Semantic<'_>) -> bool {
        if let Self::Arrow(arrow) = self
            && let Some(value) = arrow.get_expression()
        {
            return arrow.r#async && !is_console_call(value);
        }
        let nodes = semantic.nodes();
        let around = |node| nodes.ancestor_kinds(node).find(|kind| is_function(*kind));
        nodes.iter().any(|node| match node.kind() {
            AstKind::ReturnStatement(statement) => {
                statement.argument.as_ref().is_some_and(|value| !is_console_call(value))
                    && around(node.id()).is_some_and(|kind| kind.span() == self.span())
            }
            _ => false,
        })
    }
}

/// Returns true for `console.log(…)` and the like.
fn is_console_call(expression: &Expression<'_>) -> bool {
    let Expression::CallExpression(call) = expression.get_inner_expression() else { return false };
    let Expression::StaticMemberExpression(callee) = &call.callee else { return false };
    matches!(&callee.object, Expression::Identifier(name) if name.name == "console")
}

fn is_function(kind: AstKind<'_>) -> bool {
    matches!(kind, AstKind::Function(_) | AstKind::ArrowFunctionExpression(_))
}

/// Returns true if the script has a `return` outside of functions.
fn returns(semantic: &Semantic<'_>) -> bool {
    let nodes = semantic.nodes();
    let is_outside = |node| !nodes.ancestor_kinds(node).any(is_function);
    nodes.iter().any(|node| matches!(node.kind(), AstKind::ReturnStatement(_)) && is_outside(node.id()))
}

/// Returns the place of the value that a statement has and drops.
fn value_span(statement: &Statement<'_>) -> Option<Span> {
    match statement {
        Statement::ExpressionStatement(statement) => {
            is_value(&statement.expression).then(|| statement.expression.span())
        }
        // `{ a, b }` and `{ a: b }` are blocks here.
        Statement::BlockStatement(block) => match block.body.as_slice() {
            [Statement::LabeledStatement(labelled)] => value_span(&labelled.body).map(|_| block.span),
            [only] => value_span(only).map(|_| block.span),
            _ => None,
        },
        _ => None,
    }
}

fn is_value(expression: &Expression<'_>) -> bool {
    match expression.get_inner_expression() {
        Expression::Identifier(_)
        | Expression::ObjectExpression(_)
        | Expression::ArrayExpression(_)
        | Expression::StaticMemberExpression(_)
        | Expression::ComputedMemberExpression(_) => true,
        Expression::SequenceExpression(sequence) => sequence.expressions.iter().all(is_value),
        _ => false,
    }
}

fn write_return(source: &str, span: Span) -> String {
    let text = span.source_text(source);
    match is_short(text) {
        true => format!("write `return {text}`"),
        false => "write `return` before its last value".into(),
    }
}

/// Returns what to write to return the value of a call.
fn return_advice(source: &str, call: &CallExpression<'_>, has_name: bool) -> String {
    let text = call.span.source_text(source);
    match has_name && is_short(text) {
        true => format!("write `return await {text}`"),
        false => "write `return await` before the call of the function".into(),
    }
}

fn is_short(text: &str) -> bool {
    !text.contains('\n') && text.chars().count() <= MAX_QUOTED
}

struct CalledFunction<'a> {
    call: &'a CallExpression<'a>,
    is_awaited: bool,
    /// `void main()`: its author drops the value.
    is_void: bool,
    has_then: bool,
}

/// Returns the call of a function in an expression, also in `main().catch(…)`, `void main()` and `await main()`.
fn called<'a>(expression: &'a Expression<'a>) -> Option<CalledFunction<'a>> {
    match expression.get_inner_expression() {
        Expression::UnaryExpression(unary) => {
            let called = called(&unary.argument)?;
            Some(CalledFunction { is_void: called.is_void || unary.operator.is_void(), ..called })
        }
        Expression::AwaitExpression(awaited) => {
            Some(CalledFunction { is_awaited: true, ..called(&awaited.argument)? })
        }
        Expression::CallExpression(call) => match call.callee.get_inner_expression() {
            Expression::StaticMemberExpression(member)
                if ["then", "catch", "finally"].contains(&member.property.name.as_str()) =>
            {
                let called = called(&member.object)?;
                let has_then = called.has_then || member.property.name == "then";
                Some(CalledFunction { has_then, ..called })
            }
            _ => Some(CalledFunction { call, is_awaited: false, is_void: false, has_then: false }),
        },
        _ => None,
    }
}
