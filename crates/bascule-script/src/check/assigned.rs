//! Finds the globals and members that a script itself gives values: `call.tag = 'first'`.

use std::collections::HashSet;

use oxc::ast::AstKind;
use oxc::ast::ast::{CallExpression, Expression};
use oxc::semantic::{NodeId, Semantic};
use oxc::span::GetSpan;

use super::Checker;

/// Functions of `Object` and `Reflect` that give members to their first argument.
const WRITERS: [&str; 5] = ["assign", "defineProperty", "defineProperties", "set", "setPrototypeOf"];

/// The names that a script gives values. An object may have more than one name, so the names of members count for all objects.
pub(super) struct Assignments {
    globals: HashSet<String>,
    /// The script uses the object whose members are the globals.
    uses_global_object: bool,
    members: HashSet<String>,
    /// Some names of members are known only when the script runs.
    has_other_members: bool,
}

impl<'a> Checker<'a, '_> {
    /// Returns true if the script may have given this member to any object.
    pub(super) fn may_be_assigned(&self, name: &str) -> bool {
        let assigned = self.assignments();
        assigned.has_other_members || assigned.members.contains(name)
    }

    /// Returns true if the script may give a global another value.
    pub(super) fn may_be_replaced(&self, global: &str) -> bool {
        let assigned = self.assignments();
        assigned.globals.contains(global) || (assigned.uses_global_object && self.may_be_assigned(global))
    }

    /// Returns true if the script may define globals as members of an object.
    pub(super) fn uses_global_object(&self) -> bool {
        self.assignments().uses_global_object
    }

    fn assignments(&self) -> &Assignments {
        self.assigned.get_or_init(|| self.find_assignments())
    }

    fn find_assignments(&self) -> Assignments {
        let mut assigned = Assignments {
            globals: assigned_globals(self.semantic),
            uses_global_object: self.semantic.source_text().contains("globalThis"),
            members: HashSet::new(),
            has_other_members: false,
        };
        for node in self.semantic.nodes().iter() {
            match node.kind() {
                AstKind::StaticMemberExpression(member)
                    if self.is_shared_member(node.id(), &member.object) =>
                {
                    assigned.members.insert(member.property.name.to_string());
                }
                AstKind::ComputedMemberExpression(member)
                    if self.is_shared_member(node.id(), &member.object) =>
                {
                    match &member.expression {
                        Expression::StringLiteral(name) => {
                            assigned.members.insert(name.value.to_string());
                        }
                        Expression::NumericLiteral(_) => {}
                        _ => assigned.has_other_members = true,
                    }
                }
                AstKind::CallExpression(call) => assigned.has_other_members |= self.gives_members(call),
                AstKind::ThisExpression(_) => {
                    assigned.uses_global_object |= is_global_object(self.semantic, node.id());
                }
                _ => {}
            }
        }
        assigned.has_other_members |= assigned.members.contains("__proto__");
        assigned
    }

    /// Returns true if the script gives the member a value, and its object may be a result, a promise or a global.
    fn is_shared_member(&self, member: NodeId, object: &Expression<'a>) -> bool {
        is_written(self.semantic, member) && !self.is_literal_object(object)
    }

    /// Returns true for an object or array that the script itself has written.
    fn is_literal_object(&self, object: &Expression<'a>) -> bool {
        match object.get_inner_expression() {
            Expression::ObjectExpression(_) | Expression::ArrayExpression(_) => true,
            Expression::Identifier(name) => {
                let value = self.symbol(name).and_then(|symbol| self.initial_value(symbol));
                value.is_some_and(|(value, key)| {
                    let value = value.get_inner_expression();
                    key.is_none()
                        && matches!(value, Expression::ObjectExpression(_) | Expression::ArrayExpression(_))
                })
            }
            _ => false,
        }
    }

    /// Returns true for `Object.assign(call, …)` and the like.
    fn gives_members(&self, call: &CallExpression<'a>) -> bool {
        let Expression::StaticMemberExpression(callee) = &call.callee else { return false };
        let is_builtin = matches!(&callee.object, Expression::Identifier(name) if name.name == "Object" || name.name == "Reflect");
        let object = call.arguments.first().and_then(|argument| argument.as_expression());
        is_builtin
            && WRITERS.contains(&callee.property.name.as_str())
            && !object.is_some_and(|object| self.is_literal_object(object))
    }
}

/// Returns the names that the script gives values and does not declare.
fn assigned_globals(semantic: &Semantic<'_>) -> HashSet<String> {
    let scoping = semantic.scoping();
    let globals = scoping.root_unresolved_references().iter();
    let assigned = globals.filter(|(_, uses)| uses.iter().any(|id| scoping.get_reference(*id).is_write()));
    assigned.map(|(name, _)| name.to_string()).collect()
}

/// Returns true if a member expression is the target of an assignment, a pattern or a loop.
fn is_written(semantic: &Semantic<'_>, member: NodeId) -> bool {
    let nodes = semantic.nodes();
    let span = nodes.kind(member).span();
    match nodes.parent_kind(member) {
        AstKind::AssignmentExpression(assignment) => assignment.left.span() == span,
        AstKind::AssignmentTargetWithDefault(target) => target.binding.span() == span,
        AstKind::ForOfStatement(statement) => statement.left.span() == span,
        AstKind::ForInStatement(statement) => statement.left.span() == span,
        AstKind::ArrayAssignmentTarget(_)
        | AstKind::AssignmentTargetPropertyProperty(_)
        | AstKind::AssignmentTargetRest(_)
        | AstKind::UpdateExpression(_) => true,
        _ => false,
    }
}

/// Returns true for `this` outside of functions that have a `this` of their own.
fn is_global_object(semantic: &Semantic<'_>, this: NodeId) -> bool {
    !semantic.nodes().ancestor_kinds(this).any(|kind| matches!(kind, AstKind::Function(_)))
}
