//! Decides if every run of a script reaches a mistake and fails there.
//!
//! A good script must never be stopped, so a mistake is certain only where the order of statements alone leads to it.

use std::collections::HashMap;

use oxc::ast::AstKind;
use oxc::ast::ast::{BindingPattern, CallExpression, Expression};
use oxc::semantic::{AstNode, NodeId, Semantic, SymbolId};
use oxc::span::{GetSpan, Span};

use super::Checker;
use crate::unreturned::last_statement;

/// Functions are followed through this many calls.
const MAX_CALLS: usize = 4;

/// The places after which the code of each function, and of the program, may not run, or not at once.
#[derive(Default)]
pub(super) struct JumpsAndAwaits {
    /// `return`, `throw`, `break` and `continue`
    jumps: FirstEnds,
    /// `await` and `for await`
    awaits: FirstEnds,
}

/// The end of the first node of a kind in each function, and in the program.
#[derive(Default)]
struct FirstEnds(HashMap<NodeId, u32>);

/// The fate of the promise that a call returns.
enum PromiseUse {
    /// It is awaited or returned, so its rejection goes on to the function of the call.
    Awaited,
    /// The call is this statement, and nothing waits for it: its rejection fails the script.
    LeftAlone(NodeId),
    Other,
}

impl JumpsAndAwaits {
    pub(super) fn of(semantic: &Semantic<'_>) -> Self {
        let mut flow = Self::default();
        for node in semantic.nodes().iter() {
            let ends = match node.kind() {
                kind if is_jump(kind) => &mut flow.jumps,
                kind if is_await(kind) => &mut flow.awaits,
                _ => continue,
            };
            ends.add(function_of(semantic, node.id()), node.kind().span().end);
        }
        flow
    }
}

impl FirstEnds {
    fn add(&mut self, function: NodeId, end: u32) {
        self.0.entry(function).and_modify(|first| *first = end.min(*first)).or_insert(end);
    }

    fn precede(&self, function: NodeId, start: u32) -> bool {
        self.0.get(&function).is_some_and(|end| *end <= start)
    }
}

impl<'a> Checker<'a, '_> {
    /// Returns true if every run reaches the node, and nothing handles an error that is thrown there.
    pub(super) fn is_certain(&self, node: NodeId) -> bool {
        self.is_reached(node, MAX_CALLS, true)
    }

    /// Returns true if every run makes the call, and its rejection fails the script.
    pub(super) fn is_certain_call(&self, call: NodeId) -> bool {
        !matches!(self.promise_use(call), PromiseUse::Other) && self.is_reached(call, MAX_CALLS, true)
    }

    /// Returns true if no condition of the script decides if the node runs, as far as its functions run.
    pub(super) fn is_unconditional(&self, node: NodeId) -> bool {
        let nodes = self.semantic.nodes();
        let mut inner = nodes.kind(node).span();
        if self.flow.jumps.precede(function_of(self.semantic, node), inner.start) {
            return false;
        }
        for ancestor in nodes.ancestor_kinds(node) {
            let is_choice = !matches!(ancestor, AstKind::TryStatement(_) | AstKind::ChainExpression(_));
            if is_choice && is_avoidable(ancestor, inner) {
                return false;
            }
            inner = ancestor.span();
        }
        true
    }

    /// `is_at_once`: the functions that were followed so far await nothing before the mistake.
    fn is_reached(&self, node: NodeId, calls: usize, is_at_once: bool) -> bool {
        let nodes = self.semantic.nodes();
        let mut inner = nodes.kind(node).span();
        let function = function_of(self.semantic, node);
        if self.flow.jumps.precede(function, inner.start) {
            return false;
        }
        // An `await` in the arguments of a call comes before the call; one around it comes after.
        let is_at_once = is_at_once && !self.flow.awaits.precede(function, inner.end - 1);
        for ancestor in nodes.ancestors(node) {
            match ancestor.kind() {
                AstKind::Function(function) if function.generator => return false,
                AstKind::Function(_) | AstKind::ArrowFunctionExpression(_) => {
                    return self.is_run(ancestor.id(), calls, is_at_once);
                }
                kind if is_avoidable(kind, inner) => return false,
                kind => inner = kind.span(),
            }
        }
        true
    }

    /// Returns true if the only use of a function is a call that every run makes, and that goes on to the mistake: a script may
    /// end before a call that it left alone, because late timers are dropped.
    fn is_run(&self, function: NodeId, calls: usize, is_at_once: bool) -> bool {
        let (Some(calls), Some(call)) = (calls.checked_sub(1), self.sole_call(function)) else {
            return false;
        };
        let goes_on = match self.promise_use(call) {
            PromiseUse::Awaited => true,
            PromiseUse::LeftAlone(statement) => is_at_once || self.is_last_statement(statement),
            PromiseUse::Other => false,
        };
        goes_on && self.is_reached(call, calls, is_at_once)
    }

    fn is_last_statement(&self, statement: NodeId) -> bool {
        let nodes = self.semantic.nodes();
        let AstKind::Program(program) = nodes.parent_kind(statement) else { return false };
        last_statement(&program.body).is_some_and(|last| last.span() == nodes.kind(statement).span())
    }

    /// Returns the call of a function if nothing else refers to the function.
    pub(super) fn sole_call(&self, function: NodeId) -> Option<NodeId> {
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

    /// Returns the use of the promise of a call, which may be in `Promise.all([…])`.
    fn promise_use(&self, call: NodeId) -> PromiseUse {
        let mut is_in_list = false;
        for ancestor in self.semantic.nodes().ancestors(call) {
            match ancestor.kind() {
                _ if is_in_list => match ancestor.kind() {
                    AstKind::CallExpression(all) if self.is_promise_all(all) => is_in_list = false,
                    kind if is_wrapper(kind) => {}
                    _ => break,
                },
                AstKind::AwaitExpression(_) | AstKind::ReturnStatement(_) => return PromiseUse::Awaited,
                AstKind::ExpressionStatement(_) => return PromiseUse::LeftAlone(ancestor.id()),
                AstKind::ArrayExpression(_) => is_in_list = true,
                kind if is_wrapper(kind) => {}
                _ => break,
            }
        }
        PromiseUse::Other
    }

    pub(super) fn is_promise_all(&self, call: &CallExpression<'a>) -> bool {
        let Expression::StaticMemberExpression(callee) = &call.callee else { return false };
        let Expression::Identifier(object) = &callee.object else { return false };
        callee.property.name == "all" && object.name == "Promise" && self.symbol(object).is_none()
    }
}

/// Returns the function around a node, or the program.
pub(super) fn function_of(semantic: &Semantic<'_>, node: NodeId) -> NodeId {
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

fn is_await(kind: AstKind<'_>) -> bool {
    match kind {
        AstKind::AwaitExpression(_) => true,
        AstKind::ForOfStatement(statement) => statement.r#await,
        _ => false,
    }
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
