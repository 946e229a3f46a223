//! Edits the servers in the configuration file of any program, and leaves every other byte alone.
//!
//! An edit is a list of splices into the text (`splice`); `json`, `toml` and `yaml` know where they belong. After each edit
//! the new text is parsed and compared with the values that it must have. An edit that would change anything else is
//! refused, with the text to paste. Reading and writing files is left to the caller.

mod json;
mod node;
mod splice;
#[cfg(test)]
mod tests;
mod toml;
mod yaml;

use serde_json::Value;

use splice::{Splice, apply, line_and_column};

pub(crate) use node::{Content, Node, Tree};

/// The language of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Format {
    /// With comments and trailing commas.
    Json,
    Toml,
    Yaml,
}

/// The place of the servers in a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ServerPlace {
    pub(crate) key: &'static str,
    /// A list of maps with a `name`, not a map by name.
    pub(crate) is_list: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum DocumentError {
    #[error("{line}:{column}: {message}")]
    Syntax { line: usize, column: usize, message: String },
    #[error("{line}:{column}: `{key}` must be {expected}, is {found}: correct the file first")]
    WrongType { line: usize, column: usize, key: String, expected: &'static str, found: &'static str },
    #[error(
        "the file is written in a way that cannot be changed safely; change it yourself, to this:\n{wanted}"
    )]
    Unsupported { wanted: String },
}

impl DocumentError {
    fn syntax(text: &str, at: usize, message: String) -> Self {
        let (line, column) = line_and_column(text, at);
        Self::Syntax { line, column, message }
    }
}

/// A parsed file.
#[derive(Debug)]
pub(crate) struct Document<'t> {
    format: Format,
    /// The byte order mark, if there is one.
    mark: &'t str,
    text: &'t str,
    /// `None` for a file without a value.
    root: Option<Node>,
}

impl<'t> Document<'t> {
    pub(crate) fn parse(format: Format, text: &'t str) -> Result<Self, DocumentError> {
        let (mark, text) = text.split_at(text.len() - text.trim_start_matches('\u{feff}').len());
        let root = match format {
            Format::Json => json::parse(text)?,
            Format::Toml => Some(toml::parse(text)?),
            Format::Yaml => yaml::parse(text)?.filter(|root| !root.is_null()),
        };
        let document = Self { format, mark, text, root };
        match &document.root {
            Some(root) if root.members().is_none() => Err(document.wrong_type("the file", root, "a map")),
            _ => Ok(document),
        }
    }

    /// Returns the value of a key at the top of the file.
    pub(crate) fn get(&self, key: &str) -> Option<&Node> {
        Some(&self.root.as_ref()?.member(key)?.node)
    }

    pub(crate) fn to_json(&self) -> Value {
        self.root.as_ref().map_or_else(|| Value::Object(Default::default()), Node::to_json)
    }

    /// Returns the servers, in the order of the file. An entry of a list without a name has an empty one.
    pub(crate) fn servers(&self, place: ServerPlace) -> Result<Vec<(String, &Node)>, DocumentError> {
        let Some(node) = self.get(place.key).filter(|node| !node.is_null()) else { return Ok(Vec::new()) };
        match (&node.content, place.is_list) {
            (Content::Map(members), false) => {
                Ok(members.iter().map(|member| (member.key.clone(), &member.node)).collect())
            }
            (Content::List(items), true) => Ok(items.iter().map(|item| (name_of(item), item)).collect()),
            (_, true) => Err(self.wrong_type(place.key, node, "a list")),
            (_, false) => Err(self.wrong_type(place.key, node, "a map")),
        }
    }

    /// Adds a server, or changes the fields of the one with this name. Of that one the fields `stale` are removed, and all
    /// others stay.
    pub(crate) fn set_server(
        &self,
        place: ServerPlace,
        name: &str,
        fields: &[(String, Tree)],
        stale: &[&str],
    ) -> Result<String, DocumentError> {
        let index = self.servers(place)?.iter().rposition(|(own, _)| own == name);
        let mut expected = self.to_json();
        expect_server(&mut expected, place, name, index, fields, stale);
        let edited = match index {
            None => self.insert_server(place, name, fields).map(|splices| apply(self.text, splices)),
            Some(index) => self.update_server(place, index, fields, stale),
        };
        self.verified(edited, &expected, place, name, fields)
    }

    /// Removes a server.
    pub(crate) fn remove_server(&self, place: ServerPlace, name: &str) -> Result<String, DocumentError> {
        let index = self.servers(place)?.iter().rposition(|(own, _)| own == name);
        let Some(index) = index else { return Ok(self.with_mark(self.text.to_owned())) };
        let mut expected = self.to_json();
        match &mut expected[place.key] {
            Value::Array(items) => drop(items.remove(index)),
            servers => drop(servers.as_object_mut().map(|servers| servers.remove(name))),
        }
        let edited = self.remove_at(place, index).map(|splices| apply(self.text, splices));
        self.verified(edited, &expected, place, name, &[])
    }

    fn insert_server(
        &self,
        place: ServerPlace,
        name: &str,
        fields: &[(String, Tree)],
    ) -> Option<Vec<Splice>> {
        let entry = Tree::Map(fields.to_vec());
        let servers = || match place.is_list {
            true => Tree::List(vec![entry.clone()]),
            false => Tree::Map(vec![(name.to_owned(), entry.clone())]),
        };
        let whole = || Tree::Map(vec![(place.key.to_owned(), servers())]);
        let (text, member) = (self.text, self.root.as_ref().and_then(|root| root.member(place.key)));
        match (self.format, &self.root, member) {
            (Format::Json, None, _) => Some(vec![Splice::insert(text.len(), json::render_file(&whole()))]),
            (Format::Yaml, None, _) => Some(yaml::render_file(text, &whole())),
            (Format::Toml, ..) => {
                let servers = member.map(|member| &member.node);
                Some(toml::insert_server(text, place.key, servers, name, &entry))
            }
            (Format::Json, Some(root), Some(member)) => {
                Some(json::insert_member(text, root, &member.node, name, &entry))
            }
            (Format::Json, Some(root), None) => {
                Some(json::insert_member(text, root, root, place.key, &servers()))
            }
            (Format::Yaml, Some(root), None) => yaml::insert_member(text, root, root, place.key, &servers()),
            (Format::Yaml, Some(root), Some(member)) if member.node.is_null() => {
                yaml::fill(text, root, member, &servers())
            }
            (Format::Yaml, Some(_), Some(member)) if place.is_list => {
                yaml::insert_item(text, &member.node, &entry)
            }
            (Format::Yaml, Some(root), Some(member)) => {
                yaml::insert_member(text, root, &member.node, name, &entry)
            }
        }
    }

    fn remove_at(&self, place: ServerPlace, index: usize) -> Option<Vec<Splice>> {
        let member = self.root.as_ref()?.member(place.key)?;
        match self.format {
            Format::Json => Some(json::remove_member(self.text, &member.node, index)),
            Format::Toml => Some(toml::remove_member(self.text, &member.node, index)),
            Format::Yaml if place.is_list => yaml::remove_item(self.text, member, index),
            Format::Yaml => yaml::remove_member(self.text, Some(member), &member.node, index),
        }
    }

    /// Changes one field after the other. Each change moves the rest, so the text is parsed again.
    fn update_server(
        &self,
        place: ServerPlace,
        index: usize,
        fields: &[(String, Tree)],
        stale: &[&str],
    ) -> Option<String> {
        let mut text = self.text.to_owned();
        let removed = stale.iter().map(|key| (*key, None));
        for (key, value) in fields.iter().map(|(key, value)| (key.as_str(), Some(value))).chain(removed) {
            let document = Document::parse(self.format, &text).ok()?;
            let servers = document.servers(place).ok()?;
            let splices = document.change_field(servers.get(index)?.1, key, value)?;
            text = apply(&text, splices);
        }
        Some(text)
    }

    /// Sets a field of an entry, or removes it (`None`).
    fn change_field(&self, entry: &Node, key: &str, value: Option<&Tree>) -> Option<Vec<Splice>> {
        let (text, root) = (self.text, self.root.as_ref()?);
        let index = entry.members()?.iter().rposition(|member| member.key == key);
        let member = index.and_then(|index| entry.members()?.get(index));
        match (self.format, member, value) {
            (_, None, None) => Some(Vec::new()),
            (_, Some(member), Some(value)) if member.node.to_json() == value.to_json() => Some(Vec::new()),
            (Format::Json, Some(member), Some(value)) => Some(json::replace_value(text, root, member, value)),
            (Format::Json, None, Some(value)) => Some(json::insert_member(text, root, entry, key, value)),
            (Format::Json, Some(_), None) => Some(json::remove_member(text, entry, index?)),
            (Format::Toml, Some(member), Some(value)) => toml::replace_value(text, member, value),
            (Format::Toml, None, Some(value)) => toml::insert_member(text, entry, key, value),
            (Format::Toml, Some(_), None) => Some(toml::remove_member(text, entry, index?)),
            (Format::Yaml, Some(member), Some(value)) => Some(yaml::replace_value(text, member, value)),
            (Format::Yaml, None, Some(value)) => yaml::insert_member(text, root, entry, key, value),
            (Format::Yaml, Some(_), None) => yaml::remove_member(text, None, entry, index?),
        }
    }

    /// Returns the edited text if it has the expected values.
    fn verified(
        &self,
        edited: Option<String>,
        expected: &Value,
        place: ServerPlace,
        name: &str,
        fields: &[(String, Tree)],
    ) -> Result<String, DocumentError> {
        let is_expected = |text: &String| {
            Document::parse(self.format, text).is_ok_and(|document| {
                without_empty(document.to_json(), place) == without_empty(expected.clone(), place)
            })
        };
        match edited.filter(is_expected) {
            Some(text) => Ok(self.with_mark(text)),
            None => Err(DocumentError::Unsupported { wanted: self.describe(place, name, fields) }),
        }
    }

    fn describe(&self, place: ServerPlace, name: &str, fields: &[(String, Tree)]) -> String {
        if fields.is_empty() {
            return format!("no `{name}` in `{}`", place.key);
        }
        let empty = Document { format: self.format, mark: "", text: "", root: None };
        let splices = empty.insert_server(place, name, fields);
        splices.map_or_else(String::new, |splices| apply("", splices))
    }

    fn with_mark(&self, text: String) -> String {
        format!("{}{text}", self.mark)
    }

    fn wrong_type(&self, key: &str, node: &Node, expected: &'static str) -> DocumentError {
        let (line, column) = line_and_column(self.text, node.span.start);
        DocumentError::WrongType { line, column, key: key.into(), expected, found: node.describe() }
    }
}

/// A TOML file does not distinguish an empty table from none.
fn without_empty(mut values: Value, place: ServerPlace) -> Value {
    let is_empty = match &values[place.key] {
        Value::Object(servers) => servers.is_empty(),
        Value::Array(servers) => servers.is_empty(),
        other => other.is_null(),
    };
    if let Some(values) = values.as_object_mut().filter(|_| is_empty) {
        values.remove(place.key);
    }
    values
}

fn name_of(item: &Node) -> String {
    let name = item.member("name").map(|member| member.node.to_json());
    name.and_then(|name| name.as_str().map(str::to_owned)).unwrap_or_default()
}

/// Changes the values of a file as an edit must.
fn expect_server(
    expected: &mut Value,
    place: ServerPlace,
    name: &str,
    index: Option<usize>,
    fields: &[(String, Tree)],
    stale: &[&str],
) {
    let empty = || Value::Object(Default::default());
    let servers = &mut expected[place.key];
    let entry = match (place.is_list, index) {
        (false, _) => &mut servers[name],
        (true, Some(index)) => &mut servers[index],
        (true, None) => {
            if servers.is_null() {
                *servers = Value::Array(Vec::new());
            }
            let Some(items) = servers.as_array_mut() else { return };
            items.push(empty());
            items.last_mut().expect("an item was pushed")
        }
    };
    if entry.is_null() {
        *entry = empty();
    }
    let Some(entry) = entry.as_object_mut() else { return };
    entry.extend(fields.iter().map(|(key, value)| (key.clone(), value.to_json())));
    stale.iter().for_each(|key| drop(entry.remove(*key)));
}
