//! Finds mistakes in a script before its first call: tools that do not exist, wrong arguments, members that a result does not
//! have, names that nothing declares, and functions that scripts do not have.
//!
//! A mistake is *certain* if the script cannot get past it: then the script does not start. One that the script may avoid or
//! handle (inside `if`, a loop or `try`, say), and a wrong member of a result, is only reported if the script fails.

mod absent;
mod arguments;
mod assigned;
mod certainty;
mod members;
mod reads;
mod results;
mod targets;
mod variables;

use std::cell::{OnceCell, RefCell};
use std::collections::HashMap;

use oxc::ast::AstKind;
use oxc::ast::ast::{CallExpression, Expression};
use oxc::semantic::{NodeId, Semantic, SymbolId};
use oxc::span::{GetSpan, Span};

use crate::result_reads::ResultRead;
use crate::tool_lookup::ToolLookup;
use assigned::Assignments;
use certainty::JumpsAndAwaits;
pub(crate) use members::is_member_of_type;
pub(crate) use results::{CallOrigin, literal_key};
use targets::Target;

/// Number of certain mistakes, and of others, to report.
const MAX_FINDINGS: usize = 10;
/// Number of mistakes to find.
const MAX_FOUND: usize = 200;

/// A mistake in a script.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Finding {
    /// Offset in the source.
    pub(crate) offset: u32,
    pub(crate) message: String,
    /// True if every run of the script reaches the mistake and fails there.
    pub(crate) is_certain: bool,
    pub(crate) kind: FindingKind,
    /// The tool, as `server:tool`.
    pub(crate) tool: Option<String>,
    /// The tool's call, if the mistake is in its arguments.
    pub(crate) signature: Option<String>,
    /// The member that the result of the tool does not have, if the script does not expect that.
    pub(crate) missing_member: Option<String>,
}

impl Finding {
    fn new(offset: u32, message: String, is_certain: bool, kind: FindingKind) -> Self {
        Self { offset, message, is_certain, kind, tool: None, signature: None, missing_member: None }
    }
}

/// The error that a mistake leads to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FindingKind {
    /// A failed call, with its code.
    Call(&'static str),
    /// The use of a function that scripts do not have, with the class of its error.
    Absent(&'static str),
    /// An assignment to a constant.
    Constant,
    /// The use of a name that nothing declares.
    Undeclared,
}

impl FindingKind {
    /// The class of the error, and its code.
    pub(crate) fn error(self) -> (&'static str, Option<&'static str>) {
        match self {
            Self::Call(code) => ("MCPToolError", Some(code)),
            Self::Absent(class) => (class, None),
            Self::Constant => ("TypeError", None),
            Self::Undeclared => ("ReferenceError", None),
        }
    }
}

/// The findings in a script, and the members that it reads.
pub(crate) struct CheckedScript {
    pub(crate) findings: Vec<Finding>,
    pub(crate) reads: Vec<ResultRead>,
}

/// Checks a script. `is_global` tells the names of the engine's globals. `result_call` is the call whose value is that of a script
/// without a `return`.
pub(crate) fn check(
    semantic: &Semantic<'_>,
    tools: &ToolLookup,
    is_global: &dyn Fn(&str) -> bool,
    result_call: Option<Span>,
) -> CheckedScript {
    let flow = JumpsAndAwaits::of(semantic);
    let mut checker = Checker { is_global, result_call, flow, ..Checker::without_flow(semantic, tools) };
    for node in semantic.nodes().iter() {
        if checker.findings.len() >= MAX_FOUND {
            break;
        }
        match node.kind() {
            AstKind::CallExpression(call) => {
                checker.check_absent(node.id(), &call.callee, &call.arguments);
                checker.check_call(node.id(), call);
            }
            AstKind::NewExpression(new) => checker.check_absent(node.id(), &new.callee, &new.arguments),
            AstKind::StaticMemberExpression(member) => {
                let name = member.property.name.as_str();
                checker.check_name(node.id(), &member.object, name, member.property.span.start);
                checker.check_member(node.id(), &member.object, name, member.property.span.start);
                checker.add_read(node.id(), &member.object, name, member.property.span.start);
            }
            AstKind::ComputedMemberExpression(member) => {
                if let Expression::StringLiteral(name) = &member.expression {
                    checker.check_name(node.id(), &member.object, name.value.as_str(), name.span.start);
                }
                if let Some(key) = literal_key(&member.expression) {
                    checker.add_read(node.id(), &member.object, &key, member.expression.span().start);
                }
            }
            AstKind::ForOfStatement(statement) if !statement.r#await => {
                checker.check_iterated(node.id(), &statement.right);
            }
            AstKind::VariableDeclarator(declarator) => checker.check_pattern(declarator),
            AstKind::IdentifierReference(identifier) => checker.check_variable(node.id(), identifier),
            _ => {}
        }
    }
    checker.findings.sort_by_key(|finding| finding.offset);
    checker.findings.dedup();
    let (mut certain, mut others) = (0, 0);
    checker.findings.retain(|finding| {
        let count = if finding.is_certain { &mut certain } else { &mut others };
        *count += 1;
        *count <= MAX_FINDINGS
    });
    CheckedScript { findings: checker.findings, reads: checker.reads }
}

/// Returns the calls whose results an expression may be, or be a part of.
pub(crate) fn call_origins<'a>(
    semantic: &Semantic<'a>,
    tools: &ToolLookup,
    expression: &Expression<'a>,
) -> Vec<CallOrigin> {
    Checker::without_flow(semantic, tools).origins_of(expression, 8)
}

/// Returns true if an expression is the function of a tool.
pub(crate) fn is_tool<'a>(semantic: &Semantic<'a>, tools: &ToolLookup, expression: &Expression<'a>) -> bool {
    let target = Checker::without_flow(semantic, tools).resolve(expression, 0);
    matches!(target, Target::Tool { .. } | Target::Query(_) | Target::CallById)
}

struct Checker<'a, 's> {
    semantic: &'s Semantic<'a>,
    tools: &'s ToolLookup,
    is_global: &'s dyn Fn(&str) -> bool,
    result_call: Option<Span>,
    flow: JumpsAndAwaits,
    assigned: OnceCell<Assignments>,
    findings: Vec<Finding>,
    reads: Vec<ResultRead>,
    /// The variables that are passed on, by the number of variables to follow from there.
    passed_on: RefCell<HashMap<(SymbolId, usize), bool>>,
}

impl<'a, 's> Checker<'a, 's> {
    /// Makes a checker for questions that do not depend on the order of statements.
    fn without_flow(semantic: &'s Semantic<'a>, tools: &'s ToolLookup) -> Self {
        let (flow, assigned) = (JumpsAndAwaits::default(), OnceCell::new());
        let (findings, reads, passed_on) = (Vec::new(), Vec::new(), RefCell::default());
        let (is_global, result_call) = (&|_: &str| true, None);
        Self { semantic, tools, is_global, result_call, flow, assigned, findings, reads, passed_on }
    }
}

impl<'a> Checker<'a, '_> {
    fn add(&mut self, offset: u32, message: String, is_certain: bool) {
        let kind = FindingKind::Call("INVALID_INPUT");
        self.findings.push(Finding::new(offset, message, is_certain, kind));
    }

    fn add_unknown(
        &mut self,
        offset: u32,
        message: String,
        is_certain: bool,
        (tool, code): (Option<String>, &'static str),
    ) {
        let finding = Finding::new(offset, message, is_certain, FindingKind::Call(code));
        self.findings.push(Finding { tool, ..finding });
    }

    /// Reports a server or tool that does not exist where it is named.
    fn check_name(&mut self, node: NodeId, object: &Expression<'a>, name: &str, offset: u32) {
        let target = self.resolve(object, 0);
        let Target::Unknown { message, id, code } = self.member_target(&target, name) else { return };
        if self.is_assigned(node) {
            return;
        }
        let is_certain = self.is_certain(node);
        self.add_unknown(offset, message, is_certain, (id, code));
    }

    /// Returns true for the left side of an assignment.
    fn is_assigned(&self, node: NodeId) -> bool {
        let nodes = self.semantic.nodes();
        matches!(nodes.parent_kind(node), AstKind::AssignmentExpression(assignment) if assignment.left.span() == nodes.kind(node).span())
    }

    fn check_call(&mut self, node: NodeId, call: &CallExpression<'a>) {
        let (target, arguments) = match self.resolve(&call.callee, 0) {
            Target::CallById => {
                let Some(Expression::StringLiteral(id)) =
                    call.arguments.first().and_then(|argument| argument.as_expression())
                else {
                    return;
                };
                let target = self.target_of_id(id.value.as_str());
                if let Target::Unknown { message, id: tool, code } = target {
                    let is_certain = self.is_certain(node);
                    return self.add_unknown(id.span.start, message, is_certain, (tool, code));
                }
                (target, call.arguments.get(1..).unwrap_or_default())
            }
            target => (target, call.arguments.as_slice()),
        };
        if let Target::Tool { server, tool } = target {
            let is_certain = self.is_certain_call(node);
            self.check_arguments((server, tool), call.span.start, arguments, is_certain);
        }
    }
}
