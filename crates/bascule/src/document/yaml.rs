//! Parses YAML, and edits single blocks of its text.
//!
//! Knows the usual forms only. The caller verifies every edit, and refuses one that changes anything else.

use std::collections::HashMap;

use saphyr_parser::{Event, Parser, ScalarStyle, Span};
use serde_json::Value;

use super::DocumentError;
use super::json::{quote, render_in_line};
use super::node::{Content, MemberNode, Node, Tree};
use super::splice::{
    Splice, indentation, line_break, line_end, line_start, remove_between_commas, remove_lines, skip_trivia,
};

/// Deeper files are refused.
const MAX_DEPTH: usize = 100;
/// An alias repeats a value, which may contain aliases: a small file could have billions of values.
const MAX_NODES: usize = 200_000;

/// Returns `None` for a text without a value.
pub(super) fn parse(text: &str) -> Result<Option<Node>, DocumentError> {
    Builder::new(text).build()
}

struct Builder<'t> {
    text: &'t str,
    /// The byte offset of each character: the parser counts characters.
    offsets: Vec<usize>,
    events: Parser<'t, saphyr_parser::StrInput<'t>>,
    anchors: HashMap<usize, Node>,
    nodes: usize,
}

impl<'t> Builder<'t> {
    fn new(text: &'t str) -> Self {
        let offsets = text.char_indices().map(|(at, _)| at).chain([text.len()]).collect();
        Self { text, offsets, events: Parser::new_from_str(text), anchors: HashMap::new(), nodes: 0 }
    }

    fn build(mut self) -> Result<Option<Node>, DocumentError> {
        let mut root = None;
        loop {
            match self.next()? {
                (Event::StreamEnd, _) => return Ok(root),
                (Event::DocumentStart(_), span) if root.is_some() => {
                    return Err(self.error(span, "it holds several documents"));
                }
                (Event::StreamStart | Event::DocumentStart(_) | Event::DocumentEnd, _) => {}
                event => root = Some(self.node(event, 0)?),
            }
        }
    }

    fn next(&mut self) -> Result<(Event<'t>, Span), DocumentError> {
        match self.events.next_event() {
            Some(Ok(event)) => Ok(event),
            Some(Err(error)) => {
                let at = self.offset(error.marker().index());
                Err(DocumentError::syntax(self.text, at, format!("not YAML: {}", error.info())))
            }
            None => Ok((Event::StreamEnd, Span::default())),
        }
    }

    fn node(&mut self, (event, span): (Event<'t>, Span), depth: usize) -> Result<Node, DocumentError> {
        self.nodes += 1;
        if depth > MAX_DEPTH || self.nodes > MAX_NODES {
            return Err(self.error(span, "it is nested too deeply, or too large"));
        }
        let start = self.offset(span.start.index());
        let (content, end, anchor) = match event {
            Event::Scalar(text, style, anchor, tag) => {
                let value =
                    if tag.is_some() { Value::String(text.into_owned()) } else { resolve(&text, style) };
                let end = self.scalar_end(start, self.offset(span.end.index()), style);
                (Content::Scalar(value), end, anchor)
            }
            Event::SequenceStart(anchor, _) => {
                let (items, end) = self.items(depth)?;
                (Content::List(items), end, anchor)
            }
            Event::MappingStart(anchor, _) => {
                let (members, end) = self.members(depth)?;
                (Content::Map(members), end, anchor)
            }
            Event::Alias(anchor) => {
                let node = self.anchors.get(&anchor).cloned();
                let node = node.ok_or_else(|| self.error(span, "this alias names nothing"))?;
                self.nodes += count(&node);
                (flatten(node.content), self.offset(span.end.index()), 0)
            }
            _ => return Err(self.error(span, "unexpected end of a value")),
        };
        let node = Node { span: start..end.max(start), content };
        if anchor != 0 {
            self.anchors.insert(anchor, node.clone());
        }
        Ok(node)
    }

    fn items(&mut self, depth: usize) -> Result<(Vec<Node>, usize), DocumentError> {
        let mut items = Vec::new();
        loop {
            match self.next()? {
                (Event::SequenceEnd, span) => return Ok((items, self.bracket_end(span))),
                event => items.push(self.node(event, depth + 1)?),
            }
        }
    }

    fn members(&mut self, depth: usize) -> Result<(Vec<MemberNode>, usize), DocumentError> {
        let mut members = Vec::new();
        loop {
            let key = match self.next()? {
                (Event::MappingEnd, span) => return Ok((members, self.bracket_end(span))),
                event => self.node(event, depth + 1)?,
            };
            let event = self.next()?;
            let node = self.node(event, depth + 1)?;
            let text = match key.to_json() {
                Value::String(text) => text,
                other => other.to_string(),
            };
            members.push(MemberNode { key: text, key_span: key.span, node });
        }
    }

    /// The end of a value with brackets. Without brackets it is unknown: 0. The parser may count a comment to the bracket.
    fn bracket_end(&self, span: Span) -> usize {
        if span.is_empty() { 0 } else { self.offset(span.start.index() + 1) }
    }

    /// The parser counts a comment after a quoted text, and the white space after a block, to the scalar.
    fn scalar_end(&self, start: usize, end: usize, style: ScalarStyle) -> usize {
        let text = &self.text[start..end];
        let quote = match style {
            ScalarStyle::SingleQuoted => '\'',
            ScalarStyle::DoubleQuoted => '"',
            _ => return start + text.trim_end().len(),
        };
        let mut chars = text.char_indices().skip_while(|(_, c)| *c != quote).skip(1).peekable();
        while let Some((at, c)) = chars.next() {
            let is_doubled = quote == '\'' && chars.peek().is_some_and(|(_, next)| *next == quote);
            match c {
                '\\' if quote == '"' => drop(chars.next()),
                _ if c == quote && is_doubled => drop(chars.next()),
                _ if c == quote => return start + at + 1,
                _ => {}
            }
        }
        end
    }

    fn offset(&self, index: usize) -> usize {
        self.offsets.get(index).copied().unwrap_or(self.text.len())
    }

    fn error(&self, span: Span, message: &str) -> DocumentError {
        DocumentError::syntax(
            self.text,
            self.offset(span.start.index()),
            format!("not usable as YAML: {message}"),
        )
    }
}

fn count(node: &Node) -> usize {
    match &node.content {
        Content::Scalar(_) => 1,
        Content::List(items) => 1 + items.iter().map(count).sum::<usize>(),
        Content::Map(members) => 1 + members.iter().map(|member| count(&member.node)).sum::<usize>(),
    }
}

/// The positions of an alias's content are elsewhere.
fn flatten(content: Content) -> Content {
    let at = |mut node: Node| {
        node.span = 0..0;
        node.content = flatten(node.content);
        node
    };
    match content {
        Content::List(items) => Content::List(items.into_iter().map(at).collect()),
        Content::Map(members) => Content::Map(
            members
                .into_iter()
                .map(|member| MemberNode { key_span: 0..0, node: at(member.node), ..member })
                .collect(),
        ),
        scalar => scalar,
    }
}

/// Reads a plain scalar by the rules of YAML 1.2.
fn resolve(text: &str, style: ScalarStyle) -> Value {
    if style != ScalarStyle::Plain {
        return text.into();
    }
    match text {
        "" | "~" | "null" | "Null" | "NULL" => Value::Null,
        "true" | "True" | "TRUE" => true.into(),
        "false" | "False" | "FALSE" => false.into(),
        _ => serde_json::from_str::<serde_json::Number>(text).map_or_else(|_| text.into(), Value::Number),
    }
}

/// The text of a new file.
pub(super) fn render_file(text: &str, root: &Tree) -> Vec<Splice> {
    let line_break = line_break(text);
    let before = if text.is_empty() || text.ends_with('\n') { "" } else { line_break };
    let layout = Layout { line_break, unit: 2 };
    let Tree::Map(members) = root else { return Vec::new() };
    let lines: String =
        members.iter().map(|(key, value)| layout.member(key, value, 0) + line_break).collect();
    vec![Splice::insert(text.len(), format!("{before}{lines}"))]
}

/// Inserts a member at the end of a map.
pub(super) fn insert_member(
    text: &str,
    root: &Node,
    map: &Node,
    key: &str,
    value: &Tree,
) -> Option<Vec<Splice>> {
    if is_flow(text, map) {
        return Some(insert_flow(text, map, &format!("{}: {}", quote(key), render_in_line(value))));
    }
    let first = map.members()?.first()?;
    let column = column(text, first.key_span.start);
    let layout = Layout { line_break: line_break(text), unit: unit(text, root) };
    let member = layout.member(key, value, column);
    Some(vec![Splice::insert(line_end(text, map.content_end()), format!("{}{member}", layout.line_break))])
}

/// Gives a key without a value its first member or item.
pub(super) fn fill(text: &str, root: &Node, member: &MemberNode, value: &Tree) -> Option<Vec<Splice>> {
    let indent = indentation(text, member.key_span.start)?.len();
    let layout = Layout { line_break: line_break(text), unit: unit(text, root) };
    let body = layout.block(value, indent + layout.unit);
    Some(vec![Splice::insert(line_end(text, member.key_span.end), body)])
}

/// Appends an item to a list.
pub(super) fn insert_item(text: &str, list: &Node, item: &Tree) -> Option<Vec<Splice>> {
    if is_flow(text, list) {
        return Some(insert_flow(text, list, &render_in_line(item)));
    }
    let Content::List(items) = &list.content else { return None };
    let layout = Layout { line_break: line_break(text), unit: 2 };
    let rendered = layout.item(item, dash_column(text, items.first()?)?);
    Some(vec![Splice::insert(line_end(text, list.content_end()), format!("{}{rendered}", layout.line_break))])
}

/// Removes a member of a map that is the value of `owner`.
pub(super) fn remove_member(
    text: &str,
    owner: Option<&MemberNode>,
    map: &Node,
    index: usize,
) -> Option<Vec<Splice>> {
    let members = map.members()?;
    let member = &members[index];
    let range = member.key_span.start..member.node.content_end().max(member.key_span.end);
    if is_flow(text, map) {
        let before = index.checked_sub(1).map(|index| members[index].node.content_end());
        return Some(remove_between_commas(text, before, range, skip_trivia));
    }
    indentation(text, range.start)?;
    match (members.len(), owner) {
        (1, Some(owner)) => Some(empty(text, owner, range.end, "{}")),
        _ => Some(vec![remove_lines(text, range)]),
    }
}

/// Removes an item of a list that is the value of `owner`.
pub(super) fn remove_item(text: &str, owner: &MemberNode, index: usize) -> Option<Vec<Splice>> {
    let Content::List(items) = &owner.node.content else { return None };
    let item = &items[index];
    if is_flow(text, &owner.node) {
        let before = index.checked_sub(1).map(|index| items[index].content_end());
        return Some(remove_between_commas(text, before, item.span.start..item.content_end(), skip_trivia));
    }
    dash_column(text, item)?;
    match items.len() {
        1 => Some(empty(text, owner, item.content_end(), "[]")),
        _ => Some(vec![remove_lines(text, item.span.start..item.content_end())]),
    }
}

/// Replaces a block by an empty value on the line of its key.
fn empty(text: &str, owner: &MemberNode, end: usize, value: &str) -> Vec<Splice> {
    let first = line_end(text, owner.key_span.end);
    let colon = owner.key_span.end + text[owner.key_span.end..first].find(':').map_or(0, |colon| colon + 1);
    vec![Splice::insert(colon, format!(" {value}")), Splice::remove(first..line_end(text, end))]
}

/// Replaces the value of a member.
pub(super) fn replace_value(text: &str, member: &MemberNode, value: &Tree) -> Vec<Splice> {
    let node = &member.node;
    let is_block =
        text.get(member.key_span.end..node.span.start).is_none_or(|between| between.contains('\n'));
    match is_block || node.is_null() {
        true => {
            let range = member.key_span.end..node.content_end().max(member.key_span.end);
            vec![Splice::replace(range, format!(": {}", render_scalar(value)))]
        }
        false => vec![Splice::replace(node.span.clone(), render_scalar(value))],
    }
}

fn insert_flow(text: &str, node: &Node, value: &str) -> Vec<Splice> {
    let inside = text[node.span.start + 1..node.span.end - 1].trim_end();
    let separator = match inside.trim_start() {
        "" => "",
        _ if inside.ends_with(',') => " ",
        _ => ", ",
    };
    vec![Splice::insert(node.span.start + 1 + inside.len(), format!("{separator}{value}"))]
}

fn is_flow(text: &str, node: &Node) -> bool {
    text[node.span.clone()].starts_with(['{', '['])
}

fn column(text: &str, at: usize) -> usize {
    text[line_start(text, at)..at].chars().count()
}

/// Returns the column of the dash before an item, if the item begins on the line of its dash.
fn dash_column(text: &str, item: &Node) -> Option<usize> {
    let start = line_start(text, item.span.start);
    let before = &text[start..item.span.start];
    let dash = before.find('-')?;
    before.chars().all(|c| c == ' ' || c == '-').then_some(dash)
}

/// Returns the indentation of the first nested map.
fn unit(text: &str, root: &Node) -> usize {
    let nested =
        root.members().unwrap_or_default().iter().filter_map(|member| member.node.members()?.first());
    let mut units = nested.filter_map(|first| Some(indentation(text, first.key_span.start)?.len()));
    units.find(|unit| (1..=8).contains(unit)).unwrap_or(2)
}

/// The form of blocks.
struct Layout {
    line_break: &'static str,
    unit: usize,
}

impl Layout {
    fn member(&self, key: &str, value: &Tree, column: usize) -> String {
        let indent = " ".repeat(column);
        match value {
            Tree::Map(members) if !members.is_empty() => {
                format!("{indent}{}:{}", render_text(key), self.block(value, column + self.unit))
            }
            Tree::List(items) if items.iter().any(|item| matches!(item, Tree::Map(_))) => {
                format!("{indent}{}:{}", render_text(key), self.block(value, column + self.unit))
            }
            short => format!("{indent}{}: {}", render_text(key), render_scalar(short)),
        }
    }

    /// Each line begins with its line break.
    fn block(&self, value: &Tree, column: usize) -> String {
        let lines: Vec<String> = match value {
            Tree::Map(members) => {
                members.iter().map(|(key, value)| self.member(key, value, column)).collect()
            }
            Tree::List(items) => items.iter().map(|item| self.item(item, column)).collect(),
            Tree::Scalar(_) => Vec::new(),
        };
        lines.iter().map(|line| format!("{}{line}", self.line_break)).collect()
    }

    fn item(&self, item: &Tree, column: usize) -> String {
        let Tree::Map(members) = item else {
            return format!("{}- {}", " ".repeat(column), render_scalar(item));
        };
        let lines: Vec<String> =
            members.iter().map(|(key, value)| self.member(key, value, column + 2)).collect();
        let block = lines.join(self.line_break);
        format!("{}- {}", " ".repeat(column), block.trim_start())
    }
}

fn render_scalar(value: &Tree) -> String {
    match value {
        Tree::Scalar(Value::String(text)) => render_text(text),
        other => render_in_line(other),
    }
}

/// Writes a text without quotes where nothing can take it for another value.
fn render_text(text: &str) -> String {
    const WORDS: [&str; 9] = ["null", "true", "false", "yes", "no", "on", "off", "y", "n"];
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "_-./".contains(c);
    let starts_plain = text.starts_with(|c: char| c.is_ascii_alphabetic() || c == '/');
    match starts_plain && text.chars().all(is_plain) && !WORDS.contains(&text.to_lowercase().as_str()) {
        true => text.to_owned(),
        false => quote(text),
    }
}
