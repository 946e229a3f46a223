//! Parses and edits TOML.

use std::ops::Range;

use ::toml::Spanned;
use ::toml::de::{DeTable, DeValue};
use serde_json::Value;

use super::DocumentError;
use super::json::{quote, render_in_line};
use super::node::{Content, MemberNode, Node, Tree};
use super::splice::{
    Splice, line_break, line_end, line_start, next_line, remove_between_commas, skip_trivia,
};

pub(super) fn parse(text: &str) -> Result<Node, DocumentError> {
    let table = DeTable::parse(text).map_err(|error| {
        let at = error.span().map_or(0, |span| span.start);
        DocumentError::syntax(text, at, format!("not TOML: {}", error.message()))
    })?;
    Ok(Node { span: 0..0, content: table_content(table.get_ref()) })
}

fn table_content(table: &DeTable) -> Content {
    let member = |(key, value): (&Spanned<_>, &Spanned<DeValue>)| MemberNode {
        key: AsRef::<str>::as_ref(key.get_ref() as &std::borrow::Cow<str>).to_owned(),
        key_span: key.span(),
        node: to_node(value),
    };
    let mut members: Vec<MemberNode> = table.iter().map(member).collect();
    // The parser sorts by key.
    members.sort_by_key(|member| member.key_span.start);
    Content::Map(members)
}

fn to_node(value: &Spanned<DeValue>) -> Node {
    let content = match value.get_ref() {
        DeValue::String(text) => Content::Scalar(text.as_ref().into()),
        DeValue::Integer(number) => Content::Scalar(
            i64::from_str_radix(number.as_str(), number.radix())
                .map_or_else(|_| number.as_str().into(), Value::from),
        ),
        DeValue::Float(number) => {
            Content::Scalar(serde_json::from_str(number.as_str()).unwrap_or_else(|_| number.as_str().into()))
        }
        DeValue::Boolean(flag) => Content::Scalar((*flag).into()),
        DeValue::Datetime(time) => Content::Scalar(time.to_string().into()),
        DeValue::Array(items) => Content::List(items.iter().map(to_node).collect()),
        DeValue::Table(table) => table_content(table),
    };
    Node { span: value.span(), content }
}

/// Adds a server. `servers` is the map that it belongs to, if the file has one.
pub(super) fn insert_server(
    text: &str,
    key: &str,
    servers: Option<&Node>,
    name: &str,
    entry: &Tree,
) -> Vec<Splice> {
    match servers {
        Some(servers) if is_inline(text, servers) => insert_inline(text, servers, name, entry),
        _ => vec![Splice::insert(text.len(), render_table(text, key, name, entry))],
    }
}

/// A table at the end of the file, after an empty line.
fn render_table(text: &str, key: &str, name: &str, entry: &Tree) -> String {
    let line_break = line_break(text);
    let mut table = String::new();
    if !text.is_empty() {
        table.push_str(&line_break.repeat(if text.ends_with('\n') { 1 } else { 2 }));
    }
    table.push_str(&format!("[{key}.{}]{line_break}", render_key(name)));
    let Tree::Map(members) = entry else { return table };
    for (key, value) in members {
        table.push_str(&format!("{} = {}{line_break}", render_key(key), render(value)));
    }
    table
}

fn insert_inline(text: &str, map: &Node, key: &str, value: &Tree) -> Vec<Splice> {
    let member = format!("{} = {}", render_key(key), render(value));
    match map.members().and_then(|members| members.last()) {
        Some(last) => vec![Splice::insert(last.node.content_end(), format!(", {member}"))],
        None => {
            let inside = map.span.start + 1..map.span.end - 1;
            let padding = if text[inside.clone()].is_empty() { " " } else { "" };
            vec![Splice::insert(inside.start, format!(" {member}{padding}"))]
        }
    }
}

/// Inserts a member into a server's entry. Returns `None` where the entry has a form that this does not know.
pub(super) fn insert_member(text: &str, entry: &Node, key: &str, value: &Tree) -> Option<Vec<Splice>> {
    if is_inline(text, entry) {
        return Some(insert_inline(text, entry, key, value));
    }
    let last = direct_end(text, entry).filter(|_| is_headed(text, entry))?;
    let line = format!("{}{} = {}", line_break(text), render_key(key), render(value));
    Some(vec![Splice::insert(line_end(text, last), line)])
}

/// Removes a member of a map, with all tables below it.
pub(super) fn remove_member(text: &str, map: &Node, index: usize) -> Vec<Splice> {
    let members = map.members().unwrap_or_default();
    let member = &members[index];
    if is_inline(text, map) {
        let before = index.checked_sub(1).map(|index| members[index].node.content_end());
        return remove_between_commas(text, before, member.key_span.start..member.node.span.end, skip_trivia);
    }
    let mut splices = Vec::new();
    collect_lines(text, member, &mut splices);
    splices
}

/// Replaces the value of a member. Returns `None` for a table.
pub(super) fn replace_value(text: &str, member: &MemberNode, value: &Tree) -> Option<Vec<Splice>> {
    let is_table = matches!(member.node.content, Content::Map(_)) && !is_inline(text, &member.node);
    (!is_table).then(|| vec![Splice::replace(member.node.span.clone(), render(value))])
}

/// Removes the lines of a member: a table with its heading, or a key with its value.
fn collect_lines(text: &str, member: &MemberNode, splices: &mut Vec<Splice>) {
    let node = &member.node;
    match &node.content {
        Content::Map(members) if !is_inline(text, node) => {
            if is_headed(text, node) {
                let end = direct_end(text, node).unwrap_or(node.span.end);
                splices.push(remove_table(text, node.span.start..end));
            }
            for member in members.iter().filter(|member| is_table(text, member) || !is_headed(text, node)) {
                collect_lines(text, member, splices);
            }
        }
        _ => splices
            .push(Splice::remove(line_start(text, member.key_span.start)..next_line(text, node.span.end))),
    }
}

/// Removes the lines of a table, and the empty line before it.
fn remove_table(text: &str, range: Range<usize>) -> Splice {
    let (start, end) = (line_start(text, range.start), next_line(text, range.end));
    let line_before = line_start(text, start.saturating_sub(1));
    let is_empty = start > 0 && text[line_before..start].trim().is_empty();
    Splice::remove(if is_empty { line_before } else { start }..end)
}

/// Returns the end of the last line of a table that is not a table of its own.
fn direct_end(text: &str, table: &Node) -> Option<usize> {
    let direct = table.members()?.iter().filter(|member| !is_table(text, member));
    Some(direct.map(|member| member.node.content_end()).fold(table.span.end, usize::max))
}

fn is_table(text: &str, member: &MemberNode) -> bool {
    matches!(member.node.content, Content::Map(_)) && is_headed(text, &member.node)
}

fn is_headed(text: &str, node: &Node) -> bool {
    text[node.span.clone()].starts_with('[')
}

fn is_inline(text: &str, node: &Node) -> bool {
    text[node.span.clone()].starts_with('{')
}

fn render(value: &Tree) -> String {
    match value {
        Tree::Map(members) if members.is_empty() => "{}".into(),
        Tree::Map(members) => {
            let members: Vec<String> = members
                .iter()
                .map(|(key, value)| format!("{} = {}", render_key(key), render(value)))
                .collect();
            format!("{{ {} }}", members.join(", "))
        }
        // The one character that JSON does not escape and TOML does not allow.
        scalar_or_list => render_in_line(scalar_or_list).replace('\u{7f}', "\\u007f"),
    }
}

fn render_key(key: &str) -> String {
    let is_bare = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    if !key.is_empty() && key.chars().all(is_bare) { key.to_owned() } else { quote(key) }
}
