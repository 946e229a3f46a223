//! Checks calls of functions that Node or browsers have, but scripts do not: they only throw.

use oxc::ast::ast::{Argument, Expression, IdentifierReference};
use oxc::semantic::NodeId;
use oxc::span::GetSpan;

use super::{Checker, Finding, FindingKind};
use crate::names;

impl<'a> Checker<'a, '_> {
    pub(super) fn check_absent(&mut self, node: NodeId, callee: &Expression<'a>, arguments: &[Argument<'a>]) {
        let Some((root, path)) = self.global_path(callee) else { return };
        let argument = match arguments.first() {
            Some(Argument::StringLiteral(text)) => Some(text.value.as_str()),
            _ => None,
        };
        let Some((class, message)) = names::absence(&path, argument) else { return };
        if self.may_be_defined(root) {
            return;
        }
        let is_certain = self.is_certain(node);
        let kind = FindingKind::Absent(class);
        self.findings.push(Finding::new(callee.span().start, message, is_certain, kind));
    }

    /// Returns a global, and the path of names that begins with it: `crypto.subtle.sign`.
    fn global_path<'e>(
        &self,
        expression: &'e Expression<'a>,
    ) -> Option<(&'e IdentifierReference<'a>, String)> {
        match expression.get_inner_expression() {
            Expression::Identifier(root) if self.symbol(root).is_none() => {
                Some((root, root.name.to_string()))
            }
            Expression::StaticMemberExpression(member) => {
                let (root, path) = self.global_path(&member.object)?;
                Some((root, format!("{path}.{}", member.property.name)))
            }
            _ => None,
        }
    }

    /// Returns true if the script may give a global another value.
    fn may_be_defined(&self, global: &IdentifierReference<'a>) -> bool {
        let scoping = self.semantic.scoping();
        let uses = scoping.root_unresolved_references().get(&global.name);
        uses.is_none_or(|uses| uses.iter().any(|id| scoping.get_reference(*id).is_write()))
            || self.semantic.source_text().contains("globalThis")
    }
}
