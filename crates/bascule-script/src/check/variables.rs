//! Checks the use of variables: assignments to constants, and names that nothing declares.

use oxc::ast::AstKind;
use oxc::ast::ast::IdentifierReference;
use oxc::semantic::{NodeId, SymbolFlags};

use super::{Checker, Finding, FindingKind};
use crate::names;
use crate::tool_lookup::{LookupResult, similarity};

/// Names that are defined in every script, or in every function.
const ALWAYS_DEFINED: [&str; 4] = ["mcp", "context", "bascule", "arguments"];

impl<'a> Checker<'a, '_> {
    pub(super) fn check_variable(&mut self, node: NodeId, identifier: &IdentifierReference<'a>) {
        let scoping = self.semantic.scoping();
        let Some(reference) = identifier.reference_id.get().map(|id| scoping.get_reference(id)) else {
            return;
        };
        let name = identifier.name.as_str();
        let (kind, message) = match reference.symbol_id() {
            Some(symbol) if reference.is_write() => {
                if !scoping.symbol_flags(symbol).contains(SymbolFlags::ConstVariable) {
                    return;
                }
                (FindingKind::Constant, format!("`{name}` is a constant: declare it with `let` to change it"))
            }
            None if reference.is_value() && !self.is_defined(name) && !self.is_in_enum(node) => {
                (FindingKind::Undeclared, format!("`{name}` is not defined{}", self.advice(name)))
            }
            _ => return,
        };
        let is_certain = self.is_certain(node);
        self.findings.push(Finding::new(identifier.span.start, message, is_certain, kind));
    }

    /// Returns true inside an enum: the members of its earlier declarations have a value there.
    fn is_in_enum(&self, node: NodeId) -> bool {
        let mut outer = self.semantic.nodes().ancestor_kinds(node);
        outer.any(|kind| matches!(kind, AstKind::TSEnumDeclaration(_)))
    }

    /// Returns true if the name is, or may be, a global. Scripts can define globals as members of `globalThis`.
    fn is_defined(&self, name: &str) -> bool {
        ALWAYS_DEFINED.contains(&name)
            || (self.is_global)(name)
            || !matches!(self.tools.find_server(name), LookupResult::NotFound { .. })
            || self.uses_global_object()
    }

    /// Returns advice for a name that is not defined: the thing to use instead, or the nearest name.
    fn advice(&self, name: &str) -> String {
        if let Some(advice) = names::advice_for_global(name) {
            return format!(": {advice}");
        }
        if let Some(message) = self.tools.server_not_granted(name) {
            return format!(": {message}");
        }
        let lower = name.to_ascii_lowercase();
        let scoping = self.semantic.scoping();
        let variables = scoping.symbol_names().map(str::to_owned);
        let known = variables.chain(self.tools.server_names());
        let ranked = known.map(|known| (similarity(&lower, &known), known));
        match ranked.max_by(|a, b| a.0.total_cmp(&b.0)).filter(|(similarity, _)| *similarity > 0.8) {
            Some((_, known)) => format!("; did you mean `{known}`?"),
            None => String::new(),
        }
    }
}
