//! The values of a configuration file: with their positions in its text, and without.

use std::ops::Range;

use serde_json::Value;

/// A value with its position.
#[derive(Debug, Clone)]
pub(crate) struct Node {
    /// The bytes of the value. Empty, or only a heading, for a value that is spread over several lines without brackets.
    pub(crate) span: Range<usize>,
    pub(crate) content: Content,
}

#[derive(Debug, Clone)]
pub(crate) enum Content {
    /// Neither a list nor a map.
    Scalar(Value),
    List(Vec<Node>),
    Map(Vec<MemberNode>),
}

/// A key with its value.
#[derive(Debug, Clone)]
pub(crate) struct MemberNode {
    pub(crate) key: String,
    pub(crate) key_span: Range<usize>,
    pub(crate) node: Node,
}

/// A value without a position. Unlike [`Value`] it keeps the order of its keys.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Tree {
    Scalar(Value),
    List(Vec<Tree>),
    Map(Vec<(String, Tree)>),
}

impl Node {
    /// Returns the members of a map.
    pub(crate) fn members(&self) -> Option<&[MemberNode]> {
        match &self.content {
            Content::Map(members) => Some(members),
            _ => None,
        }
    }

    /// Returns the member with this key. Of several, parsers use the last one.
    pub(crate) fn member(&self, key: &str) -> Option<&MemberNode> {
        self.members()?.iter().rev().find(|member| member.key == key)
    }

    pub(crate) fn is_null(&self) -> bool {
        matches!(self.content, Content::Scalar(Value::Null))
    }

    /// Returns the end of the last value in this one.
    pub(crate) fn content_end(&self) -> usize {
        let last = match &self.content {
            Content::Scalar(_) => None,
            Content::List(items) => items.iter().map(Node::content_end).max(),
            Content::Map(members) => {
                members.iter().map(|member| member.node.content_end().max(member.key_span.end)).max()
            }
        };
        last.map_or(self.span.end, |end| end.max(self.span.end))
    }

    pub(crate) fn to_tree(&self) -> Tree {
        match &self.content {
            Content::Scalar(value) => Tree::Scalar(value.clone()),
            Content::List(items) => Tree::List(items.iter().map(Node::to_tree).collect()),
            Content::Map(members) => {
                Tree::Map(members.iter().map(|member| (member.key.clone(), member.node.to_tree())).collect())
            }
        }
    }

    pub(crate) fn to_json(&self) -> Value {
        self.to_tree().to_json()
    }

    /// Names the kind of the value, for messages.
    pub(crate) fn describe(&self) -> &'static str {
        match &self.content {
            Content::Map(_) => "a map",
            Content::List(_) => "a list",
            Content::Scalar(Value::String(_)) => "a text",
            Content::Scalar(Value::Number(_)) => "a number",
            Content::Scalar(Value::Bool(_)) => "true or false",
            Content::Scalar(_) => "empty",
        }
    }
}

impl Tree {
    pub(crate) fn to_json(&self) -> Value {
        match self {
            Tree::Scalar(value) => value.clone(),
            Tree::List(items) => items.iter().map(Tree::to_json).collect(),
            Tree::Map(members) => {
                Value::Object(members.iter().map(|(key, value)| (key.clone(), value.to_json())).collect())
            }
        }
    }

    pub(crate) fn text(text: impl Into<String>) -> Self {
        Tree::Scalar(Value::String(text.into()))
    }

    pub(crate) fn texts(texts: &[String]) -> Self {
        Tree::List(texts.iter().map(Tree::text).collect())
    }
}

impl From<Value> for Tree {
    fn from(value: Value) -> Self {
        match value {
            Value::Array(items) => Tree::List(items.into_iter().map(Tree::from).collect()),
            Value::Object(members) => {
                Tree::Map(members.into_iter().map(|(key, value)| (key, value.into())).collect())
            }
            scalar => Tree::Scalar(scalar),
        }
    }
}
