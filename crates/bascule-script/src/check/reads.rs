//! Finds the members that a script reads from results, where `undefined` would end in its value or in an argument unnoticed.

use oxc::ast::AstKind;
use oxc::ast::ast::{BindingPattern, CallExpression, Expression};
use oxc::semantic::{NodeId, SymbolId};
use oxc::span::GetSpan;

use super::certainty::function_of;
use super::results::{KnownType, MAX_DEPTH};
use super::targets::Target;
use super::{Checker, MAX_FOUND};
use crate::result_reads::ResultRead;

/// Variables, and calls of functions, are followed this far.
const MAX_VARIABLES: usize = 3;

impl<'a> Checker<'a, '_> {
    /// Keeps the reading of `object.name` if `undefined` would end in the value of the script or in an argument.
    pub(super) fn add_read(&mut self, node: NodeId, object: &Expression<'a>, name: &str, offset: u32) {
        if self.reads.len() >= MAX_FOUND
            || !self.is_passed_on(node, MAX_VARIABLES)
            || !self.is_unconditional(node)
        {
            return;
        }
        let [origin] = &self.origins_of(object, 8)[..] else { return };
        // The list of tools that `mcp.search` returns is also its own member.
        if !origin.is_awaited || origin.tool.starts_with("mcp.") || self.may_be_assigned(name) {
            return;
        }
        if self.type_of(object, MAX_DEPTH).is_some_and(|known| known.declares(name)) {
            return;
        }
        self.reads.push(ResultRead {
            offset,
            owner: self.text(object),
            name: name.to_owned(),
            tool: origin.tool.clone(),
            path: origin.path.clone(),
            is_parsed: origin.is_parsed,
        });
    }

    /// Returns true if the script returns the value of the node, or passes it to a tool, without a test for `undefined`.
    fn is_passed_on(&self, node: NodeId, variables: usize) -> bool {
        let nodes = self.semantic.nodes();
        let mut inner = nodes.kind(node).span();
        for ancestor in nodes.ancestor_kinds(node) {
            match ancestor {
                AstKind::ReturnStatement(_) => return self.is_result_passed_on(node, variables),
                AstKind::VariableDeclarator(declarator) => {
                    let BindingPattern::BindingIdentifier(name) = &declarator.id else { return false };
                    let symbol = name.symbol_id.get().zip(variables.checked_sub(1));
                    return symbol.is_some_and(|(symbol, left)| self.is_variable_passed_on(symbol, left));
                }
                AstKind::CallExpression(call) if !call.callee.span().contains_inclusive(inner) => {
                    if self.is_tool_call(call) {
                        return true;
                    }
                    if !is_json_text(call) {
                        return false;
                    }
                }
                // `object?.method()` is undefined if the object is.
                AstKind::CallExpression(call) if inner == call.callee.span() && is_in_chain(&call.callee) => {
                }
                AstKind::StaticMemberExpression(member) if member.optional || is_in_chain(&member.object) => {
                }
                AstKind::ComputedMemberExpression(member)
                    if member.object.span().contains_inclusive(inner)
                        && (member.optional || is_in_chain(&member.object)) => {}
                AstKind::ConditionalExpression(choice) if !choice.test.span().contains_inclusive(inner) => {}
                kind if is_transparent(kind) => {}
                _ => return false,
            }
            inner = ancestor.span();
        }
        false
    }

    /// Returns true if what the function around the node returns is passed on: that of its only call, which every run makes.
    fn is_result_passed_on(&self, node: NodeId, functions: usize) -> bool {
        let function = function_of(self.semantic, node);
        if function == NodeId::ROOT {
            return true;
        }
        let (Some(call), Some(left)) = (self.sole_call(function), functions.checked_sub(1)) else {
            return false;
        };
        let is_result = self.result_call == Some(self.semantic.nodes().kind(call).span());
        self.is_unconditional(call) && (is_result || self.is_passed_on(call, left))
    }

    /// Returns true if a variable is passed on, and nowhere tested. Looks at the uses of a variable once.
    fn is_variable_passed_on(&self, symbol: SymbolId, variables: usize) -> bool {
        let key = (symbol, variables);
        if let Some(known) = self.passed_on.borrow().get(&key) {
            return *known;
        }
        let found = self.has_passed_on_use(symbol, variables);
        self.passed_on.borrow_mut().insert(key, found);
        found
    }

    fn has_passed_on_use(&self, symbol: SymbolId, variables: usize) -> bool {
        let scoping = self.semantic.scoping();
        if !self.is_set_once(symbol) {
            return false;
        }
        let uses = scoping.get_resolved_reference_ids(symbol).iter();
        let (passed_on, others): (Vec<_>, Vec<_>) = uses
            .map(|reference| scoping.get_reference(*reference).node_id())
            .partition(|user| self.is_passed_on(*user, variables));
        !passed_on.is_empty() && !others.into_iter().any(|user| self.is_tested(user))
    }

    fn is_tool_call(&self, call: &CallExpression<'a>) -> bool {
        matches!(self.resolve(&call.callee, 0), Target::Tool { .. } | Target::CallById)
    }
}

impl KnownType<'_> {
    /// Returns true if the type names the member, so that it may be absent by right.
    fn declares(&self, name: &str) -> bool {
        let Self::Schema(result) = self else { return false };
        result.schema["properties"].get(name).is_some()
    }
}

/// Returns true for `JSON.stringify(value)`.
fn is_json_text(call: &CallExpression<'_>) -> bool {
    let Expression::StaticMemberExpression(callee) = &call.callee else { return false };
    let is_json = matches!(&callee.object, Expression::Identifier(object) if object.name == "JSON");
    is_json && callee.property.name == "stringify"
}

/// Returns true for the rest of an optional chain: `a?.b` in `a?.b.c`.
fn is_in_chain(expression: &Expression<'_>) -> bool {
    match expression {
        Expression::StaticMemberExpression(member) => member.optional || is_in_chain(&member.object),
        Expression::ComputedMemberExpression(member) => member.optional || is_in_chain(&member.object),
        Expression::CallExpression(call) => call.optional || is_in_chain(&call.callee),
        _ => false,
    }
}

/// Returns true for nodes that keep the value of a part of them.
fn is_transparent(kind: AstKind<'_>) -> bool {
    matches!(
        kind,
        AstKind::ParenthesizedExpression(_)
            | AstKind::TSAsExpression(_)
            | AstKind::TSSatisfiesExpression(_)
            | AstKind::TSNonNullExpression(_)
            | AstKind::ChainExpression(_)
            | AstKind::ObjectProperty(_)
            | AstKind::ObjectExpression(_)
            | AstKind::ArrayExpression(_)
            | AstKind::TemplateLiteral(_)
            | AstKind::AwaitExpression(_)
    )
}
