//! Writes a graph for Graphviz and Mermaid. Names of tools come from servers, so they are escaped.

use std::collections::HashMap;
use std::fmt::Write;

use crate::EdgeKind;
use crate::export::{ExportedEdge, GraphExport};

impl GraphExport {
    /// Returns the graph in the DOT language.
    pub fn to_dot(&self) -> String {
        let mut text = String::from("digraph tools {\n  node [shape=box];\n");
        for node in &self.nodes {
            let _ = writeln!(text, "  \"{}\" [tooltip=\"{} calls\"];", dot_escaped(&node.id), node.calls);
        }
        for edge in &self.edges {
            let style = match edge.kind {
                EdgeKind::CoOccurrence => "style=dotted, dir=none",
                EdgeKind::Order => "style=solid",
                EdgeKind::DataFlow => "style=bold, color=blue",
            };
            let (from, to) = (dot_escaped(&edge.from), dot_escaped(&edge.to));
            let _ = writeln!(text, "  \"{from}\" -> \"{to}\" [label=\"{}\", {style}];", edge.count);
        }
        text.push_str("}\n");
        text
    }

    /// Returns the graph as a Mermaid flow chart.
    pub fn to_mermaid(&self) -> String {
        let ids: HashMap<&str, usize> = self.nodes.iter().map(|node| &*node.id).zip(0..).collect();
        let mut text = String::from("flowchart LR\n");
        for (id, node) in self.nodes.iter().enumerate() {
            let _ = writeln!(text, "  t{id}[\"{}\"]", mermaid_escaped(&node.id));
        }
        for edge in &self.edges {
            if let (Some(from), Some(to)) = (ids.get(&*edge.from), ids.get(&*edge.to)) {
                let _ = writeln!(text, "  t{from} {} t{to}", mermaid_arrow(edge));
            }
        }
        text
    }
}

fn mermaid_arrow(edge: &ExportedEdge) -> String {
    match edge.kind {
        EdgeKind::CoOccurrence => format!("-.-|{}|", edge.count),
        EdgeKind::Order => format!("-->|{}|", edge.count),
        EdgeKind::DataFlow => format!("==>|{}|", edge.count),
    }
}

fn dot_escaped(name: &str) -> String {
    let mut escaped = String::with_capacity(name.len());
    for character in name.chars() {
        match character {
            '"' | '\\' => escaped.extend(['\\', character]),
            _ if character.is_control() => escaped.push('\u{fffd}'),
            _ => escaped.push(character),
        }
    }
    escaped
}

/// Replaces every character that may have a meaning in Mermaid, or in the HTML that it becomes, by its number.
fn mermaid_escaped(name: &str) -> String {
    let mut escaped = String::with_capacity(name.len());
    for character in name.chars() {
        match character {
            _ if character.is_control() => escaped.push('\u{fffd}'),
            _ if character.is_alphanumeric() || " :_-./".contains(character) => escaped.push(character),
            _ => {
                let _ = write!(escaped, "#{};", u32::from(character));
            }
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    // req: TR-02
    #[test]
    fn hostile_names_stay_inside_their_quotes() {
        let name = "a:b\"];\n x -> y [\\";
        assert_eq!(dot_escaped(name), "a:b\\\"];\u{fffd} x -> y [\\\\");
        assert_eq!(mermaid_escaped(name), "a:b#34;#93;#59;\u{fffd} x -#62; y #91;#92;");
        assert_eq!(mermaid_escaped("<b>#quot;"), "#60;b#62;#35;quot#59;");
    }
}
