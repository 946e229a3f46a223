//! Parses and edits JSON with comments.

use jsonc_parser::ast;
use jsonc_parser::common::Ranged;
use serde_json::Value;

use super::DocumentError;
use super::node::{Content, MemberNode, Node, Tree};
use super::splice::{Splice, indentation, line_break, line_end, line_start, remove_between_commas};
use crate::config::parse_syntax;

/// Returns `None` for a text without a value.
pub(super) fn parse(text: &str) -> Result<Option<Node>, DocumentError> {
    let tree = parse_syntax(text);
    let tree =
        tree.map_err(|(at, message)| DocumentError::syntax(text, at, format!("not JSON: {message}")))?;
    Ok(tree.as_ref().map(to_node))
}

fn to_node(value: &ast::Value) -> Node {
    let content = match value {
        ast::Value::StringLit(text) => Content::Scalar(text.value.clone().into()),
        ast::Value::NumberLit(number) => Content::Scalar(
            // An unusual spelling stays text.
            serde_json::from_str(number.value).unwrap_or_else(|_| number.value.into()),
        ),
        ast::Value::BooleanLit(flag) => Content::Scalar(flag.value.into()),
        ast::Value::NullKeyword(_) => Content::Scalar(Value::Null),
        ast::Value::Array(array) => Content::List(array.elements.iter().map(to_node).collect()),
        ast::Value::Object(object) => Content::Map(object.properties.iter().map(to_member).collect()),
    };
    Node { span: value.start()..value.end(), content }
}

fn to_member(property: &ast::ObjectProp) -> MemberNode {
    let key_span = property.name.start()..property.name.end();
    MemberNode { key: property.name.as_str().to_owned(), key_span, node: to_node(&property.value) }
}

/// The text of a new file.
pub(super) fn render_file(root: &Tree) -> String {
    format!("{}\n", Layout { line_break: "\n", unit: "  ", indent: String::new() }.render(root))
}

/// Inserts a member at the end of an object.
pub(super) fn insert_member(text: &str, root: &Node, object: &Node, key: &str, value: &Tree) -> Vec<Splice> {
    let Some(last) = object.members().and_then(|members| members.last()) else {
        return insert_first_member(text, root, object, key, value);
    };
    let end = last.node.span.end;
    let comma = Some(skip_trivia(text, end)).filter(|at| text[*at..].starts_with(','));
    let (member, separator) = match indentation(text, last.key_span.start) {
        Some(indent) => {
            let layout =
                Layout { line_break: line_break(text), unit: unit(text, root), indent: indent.into() };
            (format!("{}{indent}{}", layout.line_break, layout.member(key, value)), "")
        }
        None => (member_in_line(key, value), " "),
    };
    match comma {
        Some(comma) => {
            vec![Splice::insert(end_with_comment(text, comma + 1), format!("{separator}{member},"))]
        }
        None => {
            vec![
                Splice::insert(end, ","),
                Splice::insert(end_with_comment(text, end), format!("{separator}{member}")),
            ]
        }
    }
}

fn insert_first_member(text: &str, root: &Node, object: &Node, key: &str, value: &Tree) -> Vec<Splice> {
    let (start, end) = (object.span.start + 1, object.span.end - 1);
    let inside = &text[start..end];
    let line = line_start(text, object.span.start);
    let own: String = text[line..].chars().take_while(|c| *c == ' ' || *c == '\t').collect();
    let (line_break, unit) = (line_break(text), unit(text, root));
    // The file is one line.
    if root.span != object.span && !text[root.span.clone()].contains('\n') {
        return vec![Splice::replace(start..end, member_in_line(key, value))];
    }
    let layout = Layout { line_break, unit, indent: format!("{own}{unit}") };
    let member = format!("{line_break}{}{}", layout.indent, layout.member(key, value));
    match inside.contains('\n') {
        true => vec![Splice::insert(start + inside.trim_end().len(), member)],
        false if inside.trim().is_empty() => {
            vec![Splice::replace(start..end, format!("{member}{line_break}{own}"))]
        }
        false => vec![Splice::insert(end, format!("{member}{line_break}{own}"))],
    }
}

/// Removes a member of an object.
pub(super) fn remove_member(text: &str, object: &Node, index: usize) -> Vec<Splice> {
    let members = object.members().unwrap_or_default();
    let member = &members[index];
    let before = index.checked_sub(1).map(|index| members[index].node.span.end);
    let inside = object.span.start + 1..object.span.end - 1;
    let range = member.key_span.start..member.node.span.end;
    let rest = text[range.end..inside.end].trim_start();
    let rest = rest.strip_prefix(',').unwrap_or(rest);
    let is_alone = members.len() == 1
        && [rest, &text[inside.start..range.start]].iter().all(|text| text.trim().is_empty());
    match is_alone {
        true => vec![Splice::remove(inside)],
        false => remove_between_commas(text, before, range, skip_trivia),
    }
}

/// Replaces the value of a member.
pub(super) fn replace_value(text: &str, root: &Node, member: &MemberNode, value: &Tree) -> Vec<Splice> {
    let rendered = match indentation(text, member.key_span.start) {
        Some(indent) => {
            let layout =
                Layout { line_break: line_break(text), unit: unit(text, root), indent: indent.into() };
            layout.render(value)
        }
        None => render_in_line(value),
    };
    vec![Splice::replace(member.node.span.clone(), rendered)]
}

/// Returns the end of the line if only white space or comments are left on it, else `at`.
fn end_with_comment(text: &str, at: usize) -> usize {
    let end = line_end(text, at);
    if skip_trivia(text, at) >= end { end } else { at }
}

/// Returns the position after white space and comments.
fn skip_trivia(text: &str, mut at: usize) -> usize {
    loop {
        at = text.len() - text[at..].trim_start().len();
        let rest = &text[at..];
        let end = match rest.get(..2) {
            Some("//") => rest.find('\n'),
            Some("/*") => rest[2..].find("*/").map(|end| end + 4),
            _ => return at,
        };
        at = end.map_or(text.len(), |end| at + end);
    }
}

/// Returns the indentation of the first member that has one.
fn unit<'t>(text: &'t str, root: &Node) -> &'t str {
    let first = root.members().and_then(|members| members.first());
    let unit = first.and_then(|first| indentation(text, first.key_span.start));
    unit.filter(|unit| !unit.is_empty()).unwrap_or("  ")
}

/// The form of a value that is spread over lines.
struct Layout<'t> {
    line_break: &'static str,
    unit: &'t str,
    /// The indentation of the line on which the value begins.
    indent: String,
}

impl Layout<'_> {
    fn member(&self, key: &str, value: &Tree) -> String {
        format!("{}: {}", quote(key), self.render(value))
    }

    fn render(&self, value: &Tree) -> String {
        let indent = format!("{}{}", self.indent, self.unit);
        let inner = Self { indent, ..*self };
        let lines: Vec<String> = match value {
            Tree::Map(members) if !members.is_empty() => {
                members.iter().map(|(key, value)| inner.member(key, value)).collect()
            }
            Tree::List(items) if items.iter().any(|item| !matches!(item, Tree::Scalar(_))) => {
                items.iter().map(|item| inner.render(item)).collect()
            }
            short => return render_in_line(short),
        };
        let separator = format!(",{}{}", self.line_break, inner.indent);
        let (open, close) = if matches!(value, Tree::Map(_)) { ("{", "}") } else { ("[", "]") };
        let (line_break, indent) = (self.line_break, &self.indent);
        format!("{open}{line_break}{}{}{line_break}{indent}{close}", inner.indent, lines.join(&separator))
    }
}

fn member_in_line(key: &str, value: &Tree) -> String {
    format!("{}: {}", quote(key), render_in_line(value))
}

/// Renders a value on one line. YAML and, except for maps, TOML understand it too.
pub(super) fn render_in_line(value: &Tree) -> String {
    match value {
        Tree::Scalar(value) => value.to_string(),
        Tree::List(items) => format!("[{}]", items.iter().map(render_in_line).collect::<Vec<_>>().join(", ")),
        Tree::Map(members) => {
            let members: Vec<String> =
                members.iter().map(|(key, value)| member_in_line(key, value)).collect();
            format!("{{{}}}", members.join(", "))
        }
    }
}

pub(super) fn quote(text: &str) -> String {
    Value::from(text).to_string()
}
