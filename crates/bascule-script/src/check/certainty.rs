//! Decides if every run of a script reaches a mistake and fails there.
//!
//! A good script must never be stopped, so a mistake is certain only where the order of statements alone leads to it.

use std::collections::HashMap;

use oxc::ast::AstKind;
use oxc::ast::ast::{BindingPattern, CallExpression, Expression};
use oxc::semantic::{AstNode, NodeId, Semantic, SymbolId};
use oxc::span::{GetSpan, Span};

use super::Checker;

/// Functions are followed through this many calls.
const MAX_CALLS: usize = 4;

/// The end of the first `return`, `throw`, `break` or `continue` of each function, and of the program.
#[derive(Default)]
pub(super) struct FirstJumps(HashMap<NodeId, u32>);

impl FirstJumps {
    pub(super) fn of(semantic: &Semantic<'_>) -> Self {
        let mut jumps = HashMap::new();
        for node in semantic.nodes().iter() {
            if is_jump(node.kind()) {
                let (function, end) = (function_of(semantic, node.id()), node.kind().span().end);
                jumps.entry(function).and_modify(|first: &mut u32| *first = end.min(*first)).or_insert(end);
            }
        }
        Self(jumps)
    }

    fn precede(&self, function: NodeId, start: u32) -> bool {
        self.0.get(&function).is_some_and(|end| *end <= start)
    }
}

impl<'a> Checker<'a, '_> {
    /// Returns true if every run reaches the node, and nothing handles an error that is thrown there.
    pub(super) fn is_certain(&self, node: NodeId) -> bool {
        self.is_reached(node, MAX_CALLS)
    }

    /// Returns true if every run makes the call, and its rejection fails the script.
    pub(super) fn is_certain_call(&self, call: NodeId) -> bool {
        self.is_awaited(call) && self.is_reached(call, MAX_CALLS)
    }

    fn is_reached(&self, node: NodeId, calls: usize) -> bool {
        let nodes = self.semantic.nodes();
        let mut inner = nodes.kind(node).span();
        if self.jumps.precede(function_of(self.semantic, node), inner.start) {
            return false;
        }
        for ancestor in nodes.ancestors(node) {
            match ancestor.kind() {
                AstKind::Function(function) if function.generator => return false,
                AstKind::Function(_) | AstKind::ArrowFunctionExpression(_) => {
                    return self.is_run(ancestor.id(), calls);
                }
                kind if is_avoidable(kind, inner) => return false,
                kind => inner = kind.span(),
            }
        }
        true
    }

    /// Returns true if the only use of a function is a call that every run makes.
    fn is_run(&self, function: NodeId, calls: usize) -> bool {
        let (Some(calls), Some(call)) = (calls.checked_sub(1), self.sole_call(function)) else {
            return false;
        };
        self.is_awaited(call) && self.is_reached(call, calls)
    }

    /// Returns the call of a function if nothing else refers to the function.
    fn sole_call(&self, function: NodeId) -> Option<NodeId> {
        let span = self.semantic.nodes().kind(function).span();
        let symbol = match self.declared_symbol(function) {
            Some(symbol) => symbol,
            None => return self.call_of(function, span),
        };
        let scoping = self.semantic.scoping();
        if !scoping.symbol_redeclarations(symbol).is_empty() {
            return None;
        }
        let [reference] = scoping.get_resolved_reference_ids(symbol) else { return None };
        let reference = scoping.get_reference(*reference).node_id();
        self.call_of(reference, self.semantic.nodes().kind(reference).span())
    }

    /// Returns the variable that a function is the value of.
    fn declared_symbol(&self, function: NodeId) -> Option<SymbolId> {
        let nodes = self.semantic.nodes();
        if let AstKind::Function(declared) = nodes.kind(function)
            && declared.is_declaration()
        {
            return declared.id.as_ref()?.symbol_id.get();
        }
        let AstKind::VariableDeclarator(declarator) = self.user_of(function)?.kind() else { return None };
        match &declarator.id {
            BindingPattern::BindingIdentifier(identifier) => identifier.symbol_id.get(),
            _ => None,
        }
    }

    /// Returns the call whose callee is this node.
    fn call_of(&self, callee: NodeId, span: Span) -> Option<NodeId> {
        let user = self.user_of(callee)?;
        match user.kind() {
            AstKind::CallExpression(call)
                if !call.optional && call.callee.get_inner_expression().span() == span =>
            {
                Some(user.id())
            }
            _ => None,
        }
    }

    /// Returns the node around an expression, without parentheses and types.
    pub(super) fn user_of(&self, node: NodeId) -> Option<&AstNode<'a>> {
        self.semantic.nodes().ancestors(node).find(|ancestor| !is_wrapper(ancestor.kind()))
    }

    /// Returns true if the rejection of a call goes on to its function: the call is awaited, returned or left alone, itself or
    /// in `Promise.all([…])`.
    fn is_awaited(&self, call: NodeId) -> bool {
        let mut is_in_list = false;
        for kind in self.semantic.nodes().ancestor_kinds(call) {
            match kind {
                AstKind::AwaitExpression(_)
                | AstKind::ReturnStatement(_)
                | AstKind::ExpressionStatement(_) => return !is_in_list,
                AstKind::ArrayExpression(_) if !is_in_list => is_in_list = true,
                AstKind::CallExpression(all) if is_in_list && self.is_promise_all(all) => is_in_list = false,
                kind if is_wrapper(kind) => {}
                _ => return false,
            }
        }
        false
    }

    pub(super) fn is_promise_all(&self, call: &CallExpression<'a>) -> bool {
        let Expression::StaticMemberExpression(callee) = &call.callee else { return false };
        let Expression::Identifier(object) = &callee.object else { return false };
        callee.property.name == "all" && object.name == "Promise" && self.symbol(object).is_none()
    }
}

/// Returns the function around a node, or the program.
fn function_of(semantic: &Semantic<'_>, node: NodeId) -> NodeId {
    let is_function = |node: &&AstNode<'_>| {
        matches!(node.kind(), AstKind::Function(_) | AstKind::ArrowFunctionExpression(_))
    };
    semantic.nodes().ancestors(node).find(is_function).map_or(NodeId::ROOT, AstNode::id)
}

fn is_jump(kind: AstKind<'_>) -> bool {
    matches!(
        kind,
        AstKind::ReturnStatement(_)
            | AstKind::ThrowStatement(_)
            | AstKind::BreakStatement(_)
            | AstKind::ContinueStatement(_)
    )
}

/// Returns true for nodes that have the value of the expression in them.
fn is_wrapper(kind: AstKind<'_>) -> bool {
    matches!(
        kind,
        AstKind::ParenthesizedExpression(_)
            | AstKind::TSAsExpression(_)
            | AstKind::TSSatisfiesExpression(_)
            | AstKind::TSNonNullExpression(_)
    )
}

/// Returns true if a run may reach the node without the part of it at `inner`, or handles the errors of that part.
fn is_avoidable(kind: AstKind<'_>, inner: Span) -> bool {
    let is_outside = |part: Span| !part.contains_inclusive(inner);
    match kind {
        AstKind::TryStatement(_)
        | AstKind::CatchClause(_)
        | AstKind::SwitchCase(_)
        | AstKind::ChainExpression(_)
        | AstKind::WhileStatement(_)
        | AstKind::DoWhileStatement(_)
        | AstKind::Class(_)
        | AstKind::AssignmentPattern(_)
        | AstKind::AssignmentTargetWithDefault(_)
        | AstKind::AssignmentTargetPropertyIdentifier(_)
        | AstKind::FormalParameter(_) => true,
        AstKind::IfStatement(statement) => is_outside(statement.test.span()),
        AstKind::ConditionalExpression(choice) => is_outside(choice.test.span()),
        AstKind::LogicalExpression(logical) => is_outside(logical.left.span()),
        AstKind::ForStatement(statement) => {
            statement.init.as_ref().is_none_or(|init| is_outside(init.span()))
        }
        AstKind::ForInStatement(statement) => is_outside(statement.right.span()),
        AstKind::ForOfStatement(statement) => is_outside(statement.right.span()),
        AstKind::AssignmentExpression(assignment) => assignment.operator.is_logical(),
        AstKind::UnaryExpression(unary) => unary.operator.is_keyword(),
        _ => false,
    }
}
