//! The tools of one server after its filter is applied.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use bascule_model::{ServerName, ToolDefinition, ToolId};
use foldhash::{HashMap, HashMapExt as _};

use crate::nearest::nearest_name;
use crate::{CatalogTool, NamePattern, ToolFilter};

/// The tools of one server. Immutable: a new list creates a new value.
#[derive(Debug)]
pub struct ServerTools {
    name: ServerName,
    filter: ToolFilter,
    tools: Vec<Arc<CatalogTool>>,
    by_name: HashMap<Box<str>, usize>,
    /// The names of listed tools that the filter does not allow.
    denied: HashSet<Box<str>>,
    warnings: Vec<String>,
    is_from_last_listing: bool,
}

/// The type of the result of most tools of a server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SharedResult {
    /// TypeScript on one line.
    pub result: Box<str>,
    pub is_of_all: bool,
}

impl ServerTools {
    /// Drops entries with an empty or repeated name and applies the filter.
    pub fn new(name: ServerName, filter: ToolFilter, definitions: Vec<ToolDefinition>) -> Self {
        Self::assemble(name, filter, definitions, false, |_| None)
    }

    /// Builds the tools of an earlier run, which the server has not listed in this one.
    pub fn from_last_listing(name: ServerName, filter: ToolFilter, definitions: Vec<ToolDefinition>) -> Self {
        Self::assemble(name, filter, definitions, true, |_| None)
    }

    /// Takes the tools of another catalog, which have passed their filter, with their compiled schemas and observed results.
    pub fn of_tools(name: ServerName, tools: Vec<Arc<CatalogTool>>) -> Self {
        let mut server = Self::assemble(name, ToolFilter::default(), Vec::new(), false, |_| None);
        for tool in tools {
            server.by_name.insert(tool.definition().name.as_str().into(), server.tools.len());
            server.tools.push(tool);
        }
        server
    }

    /// Builds the next version from a new list. Unchanged tools keep their compiled schemas and their observed results.
    pub fn with_new_list(&self, filter: ToolFilter, definitions: Vec<ToolDefinition>) -> Self {
        Self::assemble(self.name.clone(), filter, definitions, false, |definition| {
            let old = self.get(&definition.name)?;
            (old.definition().raw.get() == definition.raw.get()).then(|| old.clone())
        })
    }

    fn assemble(
        name: ServerName,
        filter: ToolFilter,
        definitions: Vec<ToolDefinition>,
        is_from_last_listing: bool,
        reuse: impl Fn(&ToolDefinition) -> Option<Arc<CatalogTool>>,
    ) -> Self {
        let mut server = Self {
            name,
            filter,
            tools: Vec::with_capacity(definitions.len()),
            by_name: HashMap::with_capacity(definitions.len()),
            denied: HashSet::new(),
            warnings: Vec::new(),
            is_from_last_listing,
        };
        for definition in definitions {
            let reused = reuse(&definition);
            server.add(definition, reused);
        }
        server.warn_of_unmatched_patterns();
        server
    }

    fn add(&mut self, definition: ToolDefinition, reused: Option<Arc<CatalogTool>>) {
        let name = definition.name.as_str();
        if name.is_empty() {
            self.warnings.push(format!("`{}` lists a tool without a name; the tool is ignored", self.name));
        } else if self.has_name(name) {
            let name = name.escape_debug();
            self.warnings.push(format!("`{}` lists `{name}` twice; the second is ignored", self.name));
        } else if self.filter.is_allowed(name) {
            self.by_name.insert(name.into(), self.tools.len());
            self.tools.push(match reused {
                Some(same) if !same.is_from_last_listing() => same,
                Some(same) => {
                    let tool = CatalogTool::new(&self.name, definition);
                    Arc::new(tool.with_observed(same.shared_observed().clone()))
                }
                None if self.is_from_last_listing => {
                    Arc::new(CatalogTool::new(&self.name, definition).from_last_listing())
                }
                None => Arc::new(CatalogTool::new(&self.name, definition)),
            });
        } else {
            self.denied.insert(name.into());
        }
    }

    /// A pattern that matches no tool is probably misspelt, and the filter then has no effect. Deny patterns with
    /// `*` are exempt: they often cover tools that do not exist yet.
    fn warn_of_unmatched_patterns(&mut self) {
        let allowed = self.filter.allowed.iter().flatten().map(|pattern| ("allowedTools", pattern));
        let denied = self.filter.denied.iter().filter(|pattern| pattern.is_literal());
        let mut warnings = Vec::new();
        for (list, pattern) in allowed.chain(denied.map(|pattern| ("deniedTools", pattern))) {
            if !self.all_names().any(|name| pattern.matches(name)) {
                warnings.push(self.unmatched_pattern_warning(list, pattern));
            }
        }
        self.warnings.extend(warnings);
    }

    /// Warns of names, found under this key of the configuration, that no tool has.
    pub fn warn_of_unknown_names<'a>(&mut self, key: &str, names: impl Iterator<Item = &'a str>) {
        let unknown: Vec<&str> = names.filter(|name| !self.has_name(name)).collect();
        for name in unknown {
            let warning = self.unmatched_pattern_warning(key, &NamePattern::parse(name));
            self.warnings.push(warning);
        }
    }

    fn unmatched_pattern_warning(&self, list: &str, pattern: &NamePattern) -> String {
        let warning = format!("`{list}` of `{}`: no tool matches `{pattern}`", self.name);
        match nearest_name(self.all_names(), pattern.as_str()) {
            Some(nearest) => format!("{warning}; did you mean `{}`?", nearest.escape_debug()),
            None => warning,
        }
    }

    pub fn name(&self) -> &ServerName {
        &self.name
    }

    /// Returns the allowed tools in the server's own order.
    pub fn tools(&self) -> &[Arc<CatalogTool>] {
        &self.tools
    }

    /// Returns the type of the result of most of the tools, in short TypeScript; `None` if fewer than two, or not more than half
    /// of them, share one.
    pub fn shared_result(&self) -> Option<SharedResult> {
        let mut counts: BTreeMap<Box<str>, usize> = BTreeMap::new();
        for result in self.tools.iter().filter_map(|tool| tool.short_result()) {
            *counts.entry(result).or_default() += 1;
        }
        let (result, count) = counts.into_iter().max_by_key(|(_, count)| *count)?;
        let is_shared = count >= 2 && count * 2 > self.tools.len();
        is_shared.then_some(SharedResult { result, is_of_all: count == self.tools.len() })
    }

    /// Returns true if the server has not listed its tools in this run.
    pub fn is_from_last_listing(&self) -> bool {
        self.is_from_last_listing
    }

    pub fn ids(&self) -> impl Iterator<Item = &ToolId> {
        self.tools.iter().map(|tool| tool.id())
    }

    /// Returns the tool if it exists and is allowed.
    pub fn get(&self, tool: &str) -> Option<&Arc<CatalogTool>> {
        self.by_name.get(tool).map(|index| &self.tools[*index])
    }

    /// Returns true if the filter denies this name, whether or not the server lists it.
    pub fn is_denied(&self, tool: &str) -> bool {
        self.denied.contains(tool) || self.filter.is_denied(tool)
    }

    /// Returns the names of listed tools that the filter denies.
    pub fn denied_names(&self) -> impl Iterator<Item = &str> {
        self.denied.iter().map(AsRef::as_ref)
    }

    /// Returns warnings about tool names and filter patterns. `CatalogTool::warnings` has those about schemas.
    pub fn warnings(&self) -> &[String] {
        &self.warnings
    }

    fn has_name(&self, name: &str) -> bool {
        self.by_name.contains_key(name) || self.denied.contains(name)
    }

    fn all_names(&self) -> impl Iterator<Item = &str> {
        self.ids().map(ToolId::tool).chain(self.denied.iter().map(AsRef::as_ref))
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::filter::tests::filter;
    use crate::tool::tests::raw;

    pub(crate) fn definitions(names: &[&str]) -> Vec<ToolDefinition> {
        let parse = |name: &&str| ToolDefinition::parse(raw(&format!(r#"{{"name":"{name}"}}"#))).unwrap();
        names.iter().map(parse).collect()
    }

    pub(crate) fn server(name: &str, filter: ToolFilter, tools: &[&str]) -> ServerTools {
        ServerTools::new(ServerName::parse(name).unwrap(), filter, definitions(tools))
    }

    fn names(server: &ServerTools) -> Vec<&str> {
        server.ids().map(ToolId::tool).collect()
    }

    // req: BR-03
    #[test]
    fn keeps_order_of_server() {
        let server = server("s", ToolFilter::default(), &["zeta", "alpha", "mid"]);
        assert_eq!(names(&server), ["zeta", "alpha", "mid"]);
        assert!(server.warnings().is_empty());
    }

    // req: US-03
    #[test]
    fn filters_and_marks_tools_of_last_listing() {
        let name = ServerName::parse("s").unwrap();
        let last =
            ServerTools::from_last_listing(name, filter(None, &["drop"]), definitions(&["read", "drop"]));
        assert_eq!(names(&last), ["read"]);
        assert!(last.is_from_last_listing() && last.is_denied("drop"));
        assert!(last.tools()[0].is_from_last_listing());
        let listed = last.with_new_list(ToolFilter::default(), definitions(&["read"]));
        assert!(!listed.is_from_last_listing() && !listed.tools()[0].is_from_last_listing());
    }

    // req: BR-01
    #[test]
    fn returns_only_allowed_tools() {
        let server =
            server("s", filter(Some(&["read_*", "drop"]), &["drop"]), &["read_a", "write_a", "drop"]);
        assert_eq!(names(&server), ["read_a"]);
        assert!(server.get("drop").is_none() && server.get("read_a").is_some());
        assert!(server.is_denied("drop") && server.is_denied("write_a"));
        assert!(!server.is_denied("read_a") && !server.is_denied("unheard_of"));
    }

    // req: BR-12
    #[test]
    fn ignores_unnamed_and_repeated_tools() {
        let mut listed = definitions(&["a", "", "b", "a"]);
        listed[3].description = Some("the second".into());
        let server = ServerTools::new(ServerName::parse("s").unwrap(), ToolFilter::default(), listed);
        assert_eq!(names(&server), ["a", "b"]);
        assert_eq!(server.get("a").unwrap().definition().description, None);
        assert_eq!(
            server.warnings(),
            [
                "`s` lists a tool without a name; the tool is ignored",
                "`s` lists `a` twice; the second is ignored"
            ]
        );
    }

    // req: BR-04
    #[test]
    fn keeps_tool_with_invalid_schema_and_warns() {
        let listed = r#"{"name":"odd","inputSchema":{"type":"strin"}}"#;
        let listed = vec![ToolDefinition::parse(raw(listed)).unwrap()];
        let server = ServerTools::new(ServerName::parse("s").unwrap(), ToolFilter::default(), listed);
        assert_eq!(names(&server), ["odd"]);
        assert!(server.warnings().is_empty());
        let [warning] = &server.get("odd").unwrap().warnings()[..] else { panic!("one warning") };
        assert!(warning.starts_with("the arguments of `s:odd` are not checked: "), "{warning}");
    }

    // req: CM-15
    #[test]
    fn most_tools_may_share_a_short_result() {
        let content =
            r#"{"type":"object","properties":{"content":{"type":"string"}},"required":["content"]}"#;
        let titled = content.replacen('{', r#"{"title":"ReadOutput","#, 1);
        let (long, any) = (content.replace("content", &"c".repeat(60)), r#"{"type":"object"}"#);
        let shared = |schemas: &[Option<&str>]| {
            let tool = |(n, schema): (usize, &Option<&str>)| {
                let output = schema.map_or_else(String::new, |schema| format!(r#","outputSchema":{schema}"#));
                ToolDefinition::parse(raw(&format!(r#"{{"name":"t{n}"{output}}}"#))).unwrap()
            };
            let tools = schemas.iter().enumerate().map(tool).collect();
            let server = ServerTools::new(ServerName::parse("s").unwrap(), ToolFilter::default(), tools);
            server.shared_result().map(|shared| (shared.result.to_string(), shared.is_of_all))
        };
        let (content, titled) = (Some(content), Some(titled.as_str()));
        let text = "{ content: string }".to_owned();
        assert_eq!(shared(&[content, None, titled]), Some((text.clone(), false)));
        assert_eq!(shared(&[content, titled]), Some((text, true)));
        for others in [
            &[content][..],
            &[content, titled, None, None],
            &[Some(long.as_str()); 3],
            &[Some(any); 3],
            &[None, None],
        ] {
            assert_eq!(shared(others), None, "{others:?}");
        }
    }

    // req: CM-15
    #[test]
    fn observed_results_are_shared_too() {
        let server = server("s", ToolFilter::default(), &["a", "b", "c"]);
        server.tools()[..2].iter().for_each(|tool| drop(tool.observed().look(crate::ResultData::Text)));
        let shared = SharedResult { result: "string".into(), is_of_all: false };
        assert_eq!(server.shared_result(), Some(shared));
    }

    // req: BR-01
    #[test]
    fn warns_of_patterns_that_match_no_tool() {
        let filter = filter(Some(&["read_fil", "list_*"]), &["drop_tabel", "*delete*"]);
        assert_eq!(
            server("s", filter, &["read_file", "drop_table"]).warnings(),
            [
                "`allowedTools` of `s`: no tool matches `read_fil`; did you mean `read_file`?",
                "`allowedTools` of `s`: no tool matches `list_*`",
                "`deniedTools` of `s`: no tool matches `drop_tabel`; did you mean `drop_table`?",
            ]
        );
    }

    #[test]
    fn new_list_keeps_unchanged_tools() {
        let before = server("s", ToolFilter::default(), &["same", "other"]);
        let mut listed = definitions(&["new", "same"]);
        listed.push(ToolDefinition::parse(raw(r#"{"name":"other","description":"changed"}"#)).unwrap());
        let after = before.with_new_list(filter(None, &["x"]), listed);
        assert_eq!(names(&after), ["new", "same", "other"]);
        assert!(Arc::ptr_eq(before.get("same").unwrap(), after.get("same").unwrap()));
        assert!(!Arc::ptr_eq(before.get("other").unwrap(), after.get("other").unwrap()));
        assert_eq!((after.name().as_str(), after.filter.denied.len()), ("s", 1));
    }
}
