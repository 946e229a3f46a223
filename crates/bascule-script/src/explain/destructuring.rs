//! Finds the destructuring pattern that an error of the engine is about.
//!
//! The engine has no positions for patterns: it reports the last call or member before one, or nothing.

use oxc::ast::AstKind;
use oxc::ast::ast::{AssignmentTarget, BindingPattern, Expression, ForStatementLeft};
use oxc::semantic::Semantic;
use oxc::span::{GetSpan, Span};

/// A pattern such as `{ a, b }` or `[a, b]`, and the value that it takes apart.
pub(super) struct Destructuring<'a> {
    pub(super) pattern: Span,
    pub(super) value: DestructuredValue<'a>,
    is_list: bool,
    /// A part of the pattern is a pattern.
    pub(super) is_nested: bool,
}

pub(super) enum DestructuredValue<'a> {
    Expression(&'a Expression<'a>),
    /// An element of the value of a `for … of` loop.
    ElementOf(&'a Expression<'a>),
    /// An argument of a function.
    Argument,
}

impl Destructuring<'_> {
    /// The end of the code after which the value is taken apart.
    fn end(&self) -> u32 {
        match self.value {
            DestructuredValue::Expression(value) | DestructuredValue::ElementOf(value) => {
                value.span().end.max(self.pattern.end)
            }
            DestructuredValue::Argument => self.pattern.end,
        }
    }
}

/// Returns the first pattern after a position: in the same function, or in one that begins there, because the engine
/// reports the call that a function is an argument of. `is_list` is true for patterns of lists.
pub(super) fn find<'a>(semantic: &Semantic<'a>, at: Option<u32>, is_list: bool) -> Option<Destructuring<'a>> {
    let all = semantic.nodes().iter().filter_map(|node| pattern_of(node.kind()));
    let after: Vec<_> = all
        .filter(|found| found.is_list == is_list || found.is_nested)
        .filter(|found| found.end() >= at.unwrap_or(0))
        .collect();
    let function = at.map(|at| enclosing_function(semantic, at));
    let is_near = |found: &Destructuring<'_>| {
        function.is_none_or(|function| function == enclosing_function(semantic, found.pattern.start))
    };
    let (near, inner): (Vec<_>, Vec<_>) = after.into_iter().partition(is_near);
    near.into_iter()
        .min_by_key(Destructuring::end)
        .or_else(|| inner.into_iter().min_by_key(Destructuring::end))
}

/// Returns the innermost function at an offset.
fn enclosing_function(semantic: &Semantic<'_>, at: u32) -> Option<Span> {
    let spans = semantic.nodes().iter().filter_map(|node| match node.kind() {
        AstKind::Function(function) => Some(function.span),
        AstKind::ArrowFunctionExpression(function) => Some(function.span),
        _ => None,
    });
    spans.filter(|span| span.start <= at && at < span.end).min_by_key(|span| span.size())
}

fn pattern_of<'a>(kind: AstKind<'a>) -> Option<Destructuring<'a>> {
    match kind {
        AstKind::VariableDeclarator(declarator) => {
            bound(&declarator.id, DestructuredValue::Expression(declarator.init.as_ref()?))
        }
        AstKind::FormalParameter(parameter) => bound(&parameter.pattern, DestructuredValue::Argument),
        AstKind::ForOfStatement(statement) => {
            let ForStatementLeft::VariableDeclaration(declaration) = &statement.left else { return None };
            bound(&declaration.declarations.first()?.id, DestructuredValue::ElementOf(&statement.right))
        }
        AstKind::AssignmentExpression(assignment) => {
            let is_list = match &assignment.left {
                AssignmentTarget::ArrayAssignmentTarget(_) => true,
                AssignmentTarget::ObjectAssignmentTarget(_) => false,
                _ => return None,
            };
            let value = DestructuredValue::Expression(&assignment.right);
            Some(Destructuring { pattern: assignment.left.span(), value, is_list, is_nested: false })
        }
        _ => None,
    }
}

fn bound<'a>(pattern: &BindingPattern<'a>, value: DestructuredValue<'a>) -> Option<Destructuring<'a>> {
    let (is_list, is_nested) = match pattern {
        BindingPattern::ObjectPattern(object) => {
            (false, object.properties.iter().any(|property| is_pattern(&property.value)))
        }
        BindingPattern::ArrayPattern(array) => (true, array.elements.iter().flatten().any(is_pattern)),
        BindingPattern::AssignmentPattern(with_default) => return bound(&with_default.left, value),
        BindingPattern::BindingIdentifier(_) => return None,
    };
    Some(Destructuring { pattern: pattern.span(), value, is_list, is_nested })
}

fn is_pattern(pattern: &BindingPattern<'_>) -> bool {
    match pattern {
        BindingPattern::ObjectPattern(_) | BindingPattern::ArrayPattern(_) => true,
        BindingPattern::AssignmentPattern(with_default) => is_pattern(&with_default.left),
        BindingPattern::BindingIdentifier(_) => false,
    }
}
