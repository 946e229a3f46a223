//! Resolves an expression of a script to the server or tool that it means.

use oxc::ast::AstKind;
use oxc::ast::ast::{BindingPattern, Expression, IdentifierReference, VariableDeclarator};
use oxc::semantic::SymbolId;
use oxc::span::GetSpan;

use super::Checker;
use crate::names;
use crate::tool_lookup::{LookupResult, TOOL_NOT_FOUND, split_id};

/// Variables are followed through this many others.
const MAX_DEPTH: usize = 4;

/// Globals of scripts that a server's name does not replace.
const GLOBALS: [&str; 24] = [
    "console",
    "Math",
    "JSON",
    "Object",
    "Array",
    "Promise",
    "Date",
    "Number",
    "String",
    "Boolean",
    "Symbol",
    "Map",
    "Set",
    "Intl",
    "crypto",
    "performance",
    "Reflect",
    "Error",
    "URL",
    "Buffer",
    "globalThis",
    "RegExp",
    "BigInt",
    "Proxy",
];

/// Functions of `mcp`.
const QUERIES: [&str; 2] = ["search", "describe"];

/// The server or tool that an expression means.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Target {
    /// `mcp`
    Servers,
    /// `context`, which has the servers and the author's own values.
    Context,
    /// `bascule`
    Helpers,
    /// `bascule.call` or `bascule.raw` with an id
    CallById,
    /// `mcp.search` or `mcp.describe`
    Query(&'static str),
    Server(usize),
    Tool {
        server: usize,
        tool: usize,
    },
    /// A server or tool that does not exist.
    Unknown {
        message: String,
        id: Option<String>,
        code: &'static str,
    },
    /// Anything else.
    Other,
}

/// The source of a variable that is set again and again.
pub(super) enum Receiver<'a> {
    /// The value of `for (const x of value)`.
    Loop(&'a Expression<'a>),
    /// `object.method((x) => …)`
    Callback { object: &'a Expression<'a>, method: &'a str },
}

impl<'a> Checker<'a, '_> {
    /// Follows members and variables. `depth` counts the variables.
    pub(super) fn resolve(&self, expression: &Expression<'a>, depth: usize) -> Target {
        if depth > MAX_DEPTH {
            return Target::Other;
        }
        match expression.get_inner_expression() {
            Expression::Identifier(identifier) => self.identifier_target(identifier, depth),
            Expression::StaticMemberExpression(member) => {
                self.member_target(&self.resolve(&member.object, depth), member.property.name.as_str())
            }
            Expression::ComputedMemberExpression(member) => match &member.expression {
                Expression::StringLiteral(name) => {
                    self.member_target(&self.resolve(&member.object, depth), name.value.as_str())
                }
                _ => Target::Other,
            },
            _ => Target::Other,
        }
    }

    fn identifier_target(&self, identifier: &IdentifierReference<'a>, depth: usize) -> Target {
        if let Some(symbol) = self.symbol(identifier) {
            let Some((value, key)) = self.initial_value(symbol) else { return Target::Other };
            let target = self.resolve(value, depth + 1);
            return match key {
                Some(key) => self.member_target(&target, &key),
                None => target,
            };
        }
        match identifier.name.as_str() {
            name if self.may_be_replaced(name) => Target::Other,
            "mcp" => Target::Servers,
            "context" => Target::Context,
            "bascule" => Target::Helpers,
            name if GLOBALS.contains(&name) => Target::Other,
            name => match self.tools.find_server(name) {
                LookupResult::Found(server) => Target::Server(server),
                _ => Target::Other,
            },
        }
    }

    /// Returns the variable of the script that an identifier means; `None` for a global.
    pub(super) fn symbol(&self, identifier: &IdentifierReference<'a>) -> Option<SymbolId> {
        let scoping = self.semantic.scoping();
        scoping.get_reference(identifier.reference_id.get()?).symbol_id()
    }

    /// Returns true if a variable has one declaration and never changes.
    pub(super) fn is_set_once(&self, symbol: SymbolId) -> bool {
        let scoping = self.semantic.scoping();
        !scoping.symbol_is_mutated(symbol) && scoping.symbol_redeclarations(symbol).is_empty()
    }

    /// Returns the initial value of a variable that never changes, and the key if the variable is one field of the value
    /// (`const { key } = value`).
    pub(super) fn initial_value(&self, symbol: SymbolId) -> Option<(&'a Expression<'a>, Option<String>)> {
        if !self.is_set_once(symbol) {
            return None;
        }
        let declaration = self.semantic.scoping().symbol_declaration(symbol);
        let AstKind::VariableDeclarator(declarator) = self.semantic.nodes().kind(declaration) else {
            return None;
        };
        let declarator: &'a VariableDeclarator<'a> = declarator;
        let init = declarator.init.as_ref()?;
        let is_symbol = |pattern: &BindingPattern<'a>| match pattern {
            BindingPattern::BindingIdentifier(identifier) => identifier.symbol_id.get() == Some(symbol),
            _ => false,
        };
        if is_symbol(&declarator.id) {
            return Some((init, None));
        }
        let BindingPattern::ObjectPattern(pattern) = &declarator.id else { return None };
        let property = pattern.properties.iter().find(|property| is_symbol(&property.value))?;
        Some((init, Some(property.key.static_name()?.into_owned())))
    }

    /// Returns the call whose result a variable gets by `const [a, b] = await Promise.all([…])`.
    pub(super) fn awaited_together(&self, symbol: SymbolId) -> Option<&'a Expression<'a>> {
        if !self.is_set_once(symbol) {
            return None;
        }
        let declaration = self.semantic.scoping().symbol_declaration(symbol);
        let AstKind::VariableDeclarator(declarator) = self.semantic.nodes().kind(declaration) else {
            return None;
        };
        let declarator: &'a VariableDeclarator<'a> = declarator;
        let BindingPattern::ArrayPattern(pattern) = &declarator.id else { return None };
        let is_symbol = |element: &Option<BindingPattern<'a>>| matches!(element, Some(BindingPattern::BindingIdentifier(name)) if name.symbol_id.get() == Some(symbol));
        let index = pattern.elements.iter().position(is_symbol)?;
        let Expression::AwaitExpression(awaited) = declarator.init.as_ref()?.get_inner_expression() else {
            return None;
        };
        let Expression::CallExpression(call) = awaited.argument.get_inner_expression() else { return None };
        let list = call.arguments.first().filter(|_| self.is_promise_all(call))?.as_expression()?;
        let Expression::ArrayExpression(list) = list.get_inner_expression() else { return None };
        let has_spread = list.elements.iter().any(|element| element.is_spread());
        list.elements.get(index).filter(|_| !has_spread)?.as_expression()
    }

    /// Returns the source of the variable of a loop, or of the first parameter of a callback.
    pub(super) fn receiver(&self, symbol: SymbolId) -> Option<Receiver<'a>> {
        if !self.is_set_once(symbol) {
            return None;
        }
        let nodes = self.semantic.nodes();
        let declaration = self.semantic.scoping().symbol_declaration(symbol);
        match nodes.kind(declaration) {
            AstKind::VariableDeclarator(declarator) if declarator.id.is_binding_identifier() => {
                match nodes.ancestor_kinds(declaration).nth(1)? {
                    AstKind::ForOfStatement(statement) => Some(Receiver::Loop(&statement.right)),
                    _ => None,
                }
            }
            AstKind::FormalParameter(parameter) if parameter.pattern.is_binding_identifier() => {
                let mut outer = nodes.ancestor_kinds(declaration);
                let is_first = matches!(outer.next()?, AstKind::FormalParameters(all) if all.items.first().is_some_and(|first| first.span == parameter.span));
                let AstKind::ArrowFunctionExpression(function) = outer.next()? else { return None };
                let AstKind::CallExpression(call) = outer.next()? else { return None };
                let Expression::StaticMemberExpression(callee) = &call.callee else { return None };
                let is_callback = call.arguments.first()?.span() == function.span;
                (is_first && is_callback).then(|| Receiver::Callback {
                    object: &callee.object,
                    method: callee.property.name.as_str(),
                })
            }
            _ => None,
        }
    }

    /// Resolves `object.name`.
    pub(super) fn member_target(&self, object: &Target, name: &str) -> Target {
        match object {
            Target::Servers => self.server_target(name),
            Target::Context if self.tools.is_in_context(name) || self.may_be_assigned(name) => Target::Other,
            Target::Context => match self.tools.find_server(name) {
                LookupResult::Found(server) => Target::Server(server),
                _ => Target::Other,
            },
            Target::Helpers if name == "call" || name == "raw" => Target::CallById,
            Target::Server(server) => self.tool_target(*server, name),
            _ => Target::Other,
        }
    }

    fn server_target(&self, name: &str) -> Target {
        match self.tools.find_server(name) {
            LookupResult::Found(server) => Target::Server(server),
            LookupResult::NotFound { nearest } if !names::is_probe(name) => {
                if let Some(query) = QUERIES.iter().find(|query| **query == name) {
                    return Target::Query(query);
                }
                if let Some(advice) = names::advice_for_member(name) {
                    return Target::Unknown { message: advice, id: None, code: TOOL_NOT_FOUND };
                }
                let unknown = || format!("no server is named `{name}`{}", suggestion(&nearest));
                let message = self.tools.server_not_granted(name).unwrap_or_else(unknown);
                Target::Unknown { message, id: Some(format!("{name}:*")), code: TOOL_NOT_FOUND }
            }
            _ => Target::Other,
        }
    }

    fn tool_target(&self, server: usize, name: &str) -> Target {
        let entry = &self.tools.servers()[server];
        if entry.is_absent {
            return Target::Other;
        }
        match self.tools.find_tool(server, name) {
            LookupResult::Found(tool) => Target::Tool { server, tool },
            LookupResult::NotFound { nearest } if !names::is_probe(name) => {
                let is_denied = self.tools.denied(&entry.name, name);
                let denied = is_denied.map(|id| format!("`{id}` is denied by the configuration"));
                let unknown =
                    || format!("server `{}` has no tool `{name}`{}", entry.name, suggestion(&nearest));
                let withheld = || self.tools.tool_not_granted(&entry.name, name);
                let message = denied.or_else(withheld).unwrap_or_else(unknown);
                let code = self.tools.refusal_code(&entry.name, name);
                Target::Unknown { message, id: Some(format!("{}:{name}", entry.name)), code }
            }
            _ => Target::Other,
        }
    }

    /// Resolves `server:tool`, and other spellings of it.
    pub(super) fn target_of_id(&self, id: &str) -> Target {
        match split_id(id) {
            Some((server, tool)) => self.member_target(&self.member_target(&Target::Servers, server), tool),
            None => Target::Other,
        }
    }

    /// Returns the id of a tool.
    pub(super) fn tool_id(&self, (server, tool): (usize, usize)) -> String {
        let entry = &self.tools.servers()[server];
        format!("{}:{}", entry.name, entry.tools[tool].name)
    }

    /// Returns the function of a tool as scripts write it, for example `mcp.github.listCommits`.
    pub(super) fn function_name(&self, (server, tool): (usize, usize)) -> String {
        let entry = &self.tools.servers()[server];
        format!("mcp.{}.{}", names::to_camel_case(&entry.name), names::to_camel_case(&entry.tools[tool].name))
    }
}

fn suggestion(nearest: &[String]) -> String {
    match nearest {
        [] => String::new(),
        names => format!("; did you mean `{}`?", names.join("`, `")),
    }
}
