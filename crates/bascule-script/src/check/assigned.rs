//! Finds the members that a script itself gives to results and promises: `call.tag = 'first'`.

use std::collections::HashSet;

use oxc::ast::AstKind;
use oxc::ast::ast::{AssignmentTarget, CallExpression, Expression};

use super::Checker;

/// The names of members that a script assigns.
#[derive(Default)]
pub(super) struct AssignedMembers {
    names: HashSet<String>,
    /// Some names are known only when the script runs.
    has_others: bool,
}

impl<'a> Checker<'a, '_> {
    /// Returns true if the script may have given the member to a result or a promise.
    pub(super) fn may_be_assigned(&self, name: &str) -> bool {
        let assigned = self.assigned.get_or_init(|| self.assigned_members());
        assigned.has_others || assigned.names.contains(name)
    }

    fn assigned_members(&self) -> AssignedMembers {
        let mut assigned = AssignedMembers::default();
        for node in self.semantic.nodes().iter() {
            match node.kind() {
                AstKind::AssignmentExpression(assignment) => {
                    let (object, name) = match &assignment.left {
                        AssignmentTarget::StaticMemberExpression(member) => {
                            (&member.object, Some(member.property.name.as_str()))
                        }
                        AssignmentTarget::ComputedMemberExpression(member) => match &member.expression {
                            Expression::StringLiteral(name) => (&member.object, Some(name.value.as_str())),
                            Expression::NumericLiteral(_) => continue,
                            _ => (&member.object, None),
                        },
                        _ => continue,
                    };
                    if self.may_be_result(object) {
                        assigned.names.extend(name.map(str::to_owned));
                        assigned.has_others |= name.is_none();
                    }
                }
                AstKind::CallExpression(call) => assigned.has_others |= self.extends_result(call),
                _ => {}
            }
        }
        assigned
    }

    /// Returns true for a result, a promise, and a parameter, which may be either.
    fn may_be_result(&self, object: &Expression<'a>) -> bool {
        let is_parameter = match object.get_inner_expression() {
            Expression::Identifier(identifier) => self.symbol(identifier).is_some_and(|symbol| {
                let declaration = self.semantic.scoping().symbol_declaration(symbol);
                matches!(self.semantic.nodes().kind(declaration), AstKind::FormalParameter(_))
            }),
            _ => false,
        };
        is_parameter || self.has_known_type(object)
    }

    /// Returns true for `Object.assign(call, …)` and the like.
    fn extends_result(&self, call: &CallExpression<'a>) -> bool {
        let Expression::StaticMemberExpression(callee) = &call.callee else { return false };
        let is_builtin = matches!(&callee.object, Expression::Identifier(name) if name.name == "Object" || name.name == "Reflect");
        let is_writing =
            ["assign", "defineProperty", "defineProperties", "set"].contains(&callee.property.name.as_str());
        let object = call.arguments.first().and_then(|argument| argument.as_expression());
        is_builtin && is_writing && object.is_some_and(|object| self.may_be_result(object))
    }
}
