//! Checks calls of functions that Node or browsers have, but scripts do not: they only throw.

use oxc::ast::ast::{Argument, Expression};
use oxc::semantic::NodeId;
use oxc::span::GetSpan;

use super::{Checker, Finding, FindingKind};

impl<'a> Checker<'a, '_> {
    pub(super) fn check_absent(&mut self, node: NodeId, callee: &Expression<'a>, arguments: &[Argument<'a>]) {
        let Some(path) = self.global_path(callee) else { return };
        let argument = match arguments.first() {
            Some(Argument::StringLiteral(text)) => Some(text.value.as_str()),
            _ => None,
        };
        let Some((class, message)) = self.tools.absence(&path, argument) else { return };
        let mut names = path.split('.');
        if names.next().is_some_and(|global| self.may_be_replaced(global))
            || names.any(|member| self.may_be_assigned(member))
        {
            return;
        }
        let is_certain = self.is_certain(node);
        let kind = FindingKind::Absent(class);
        self.findings.push(Finding::new(callee.span().start, message, is_certain, kind));
    }

    /// Returns the path of names that begins with a global: `crypto.subtle.sign`.
    fn global_path(&self, expression: &Expression<'a>) -> Option<String> {
        match expression.get_inner_expression() {
            Expression::Identifier(root) if self.symbol(root).is_none() => Some(root.name.to_string()),
            Expression::StaticMemberExpression(member) => {
                Some(format!("{}.{}", self.global_path(&member.object)?, member.property.name))
            }
            _ => None,
        }
    }
}
