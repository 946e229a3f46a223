//! The tools of one server, as its list and its filter make them.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use bascule_model::{ServerName, ToolDefinition, ToolId};

use crate::nearest::nearest_text;
use crate::{CatalogTool, Pattern, ToolFilter};

/// What one server offers. Never changes: a new list makes a new one.
#[derive(Debug)]
pub struct ServerTools {
    name: ServerName,
    filter: ToolFilter,
    /// In the server's own order.
    tools: Vec<Arc<CatalogTool>>,
    by_name: HashMap<Box<str>, usize>,
    /// Names that the filter hides.
    hidden: HashSet<Box<str>>,
    warnings: Vec<String>,
}

impl ServerTools {
    /// Takes what a server listed, drops what cannot be a tool, and hides what the filter does not permit.
    pub fn new(name: ServerName, filter: ToolFilter, definitions: Vec<ToolDefinition>) -> Self {
        Self::assemble(name, filter, definitions, |_| None)
    }

    /// The same server after another listing. A tool that did not change keeps its compiled schemas.
    pub fn renewed(&self, filter: ToolFilter, definitions: Vec<ToolDefinition>) -> Self {
        Self::assemble(self.name.clone(), filter, definitions, |definition| {
            let old = self.get(&definition.name)?;
            (old.definition().raw.get() == definition.raw.get()).then(|| old.clone())
        })
    }

    fn assemble(
        name: ServerName,
        filter: ToolFilter,
        definitions: Vec<ToolDefinition>,
        known: impl Fn(&ToolDefinition) -> Option<Arc<CatalogTool>>,
    ) -> Self {
        let mut made = Self {
            name,
            filter,
            tools: Vec::with_capacity(definitions.len()),
            by_name: HashMap::with_capacity(definitions.len()),
            hidden: HashSet::new(),
            warnings: Vec::new(),
        };
        for definition in definitions {
            let known = known(&definition);
            made.take(definition, known);
        }
        made.warn_of_idle_patterns();
        made
    }

    fn take(&mut self, definition: ToolDefinition, known: Option<Arc<CatalogTool>>) {
        let name = definition.name.as_str();
        if name.is_empty() {
            self.warnings.push(format!("`{}` lists a tool without a name, which is left out", self.name));
        } else if self.has(name) {
            let name = name.escape_debug();
            self.warnings.push(format!("`{}` lists `{name}` twice; the first is kept", self.name));
        } else if self.filter.permits(name) {
            self.by_name.insert(name.into(), self.tools.len());
            let tool = known.unwrap_or_else(|| Arc::new(CatalogTool::new(&self.name, definition)));
            self.tools.push(tool);
        } else {
            self.hidden.insert(name.into());
        }
    }

    /// A name in a filter that fits no tool is probably misspelt, and then the filter does not do its work.
    /// Only a deny pattern with `*` may well be meant for tools that do not exist yet.
    fn warn_of_idle_patterns(&mut self) {
        let allowed = self.filter.allowed.iter().flatten().map(|pattern| ("allowedTools", pattern));
        let denied = self.filter.denied.iter().filter(|pattern| pattern.is_literal());
        let mut warnings = Vec::new();
        for (list, pattern) in allowed.chain(denied.map(|pattern| ("deniedTools", pattern))) {
            if !self.all_names().any(|name| pattern.matches(name)) {
                warnings.push(self.idle(list, pattern));
            }
        }
        self.warnings.extend(warnings);
    }

    fn idle(&self, list: &str, pattern: &Pattern) -> String {
        let idle = format!("`{list}` of `{}` names `{pattern}`, but no tool is called so", self.name);
        match nearest_text(self.all_names(), pattern.as_str()) {
            Some(nearest) => format!("{idle}; did you mean `{}`?", nearest.escape_debug()),
            None => idle,
        }
    }

    /// Whose tools these are.
    pub fn name(&self) -> &ServerName {
        &self.name
    }

    /// The filter that was applied.
    pub fn filter(&self) -> &ToolFilter {
        &self.filter
    }

    /// What may be used, in the server's own order.
    pub fn tools(&self) -> &[Arc<CatalogTool>] {
        &self.tools
    }

    /// The full names of what may be used.
    pub fn ids(&self) -> impl Iterator<Item = &ToolId> {
        self.tools.iter().map(|tool| tool.id())
    }

    /// The tool of this name, if it may be used.
    pub fn get(&self, tool: &str) -> Option<&Arc<CatalogTool>> {
        self.by_name.get(tool).map(|place| &self.tools[*place])
    }

    /// Whether the filter keeps this name from being used, as a tool or as one that may yet come.
    pub fn denies(&self, tool: &str) -> bool {
        self.hidden.contains(tool) || self.filter.denies(tool)
    }

    /// What is odd about the list itself, in whole sentences: names and filters.
    pub fn list_warnings(&self) -> &[String] {
        &self.warnings
    }

    /// All that is odd, schemas included. Compiles those that no call has needed yet, which takes some 30
    /// microseconds and ten kilobytes each: a call that passes unchecked tells the same, later.
    pub fn warnings(&self) -> Vec<String> {
        let of_tools = self.tools.iter().flat_map(|tool| tool.warnings());
        self.warnings.iter().cloned().chain(of_tools).collect()
    }

    fn has(&self, name: &str) -> bool {
        self.by_name.contains_key(name) || self.hidden.contains(name)
    }

    fn all_names(&self) -> impl Iterator<Item = &str> {
        self.ids().map(ToolId::tool).chain(self.hidden.iter().map(AsRef::as_ref))
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
    fn tools_keep_the_order_of_their_server() {
        let server = server("s", ToolFilter::default(), &["zeta", "alpha", "mid"]);
        assert_eq!(names(&server), ["zeta", "alpha", "mid"]);
        assert!(server.warnings().is_empty());
    }

    // req: BR-01
    #[test]
    fn only_what_the_filter_permits_is_seen() {
        let server =
            server("s", filter(Some(&["read_*", "drop"]), &["drop"]), &["read_a", "write_a", "drop"]);
        assert_eq!(names(&server), ["read_a"]);
        assert!(server.get("drop").is_none() && server.get("read_a").is_some());
        assert!(server.denies("drop") && server.denies("write_a"));
        assert!(!server.denies("read_a") && !server.denies("unheard_of"));
    }

    // req: BR-12
    #[test]
    fn a_list_with_nameless_and_doubled_tools_loses_only_those() {
        let mut listed = definitions(&["a", "", "b", "a"]);
        listed[3].description = Some("the second".into());
        let server = ServerTools::new(ServerName::parse("s").unwrap(), ToolFilter::default(), listed);
        assert_eq!(names(&server), ["a", "b"]);
        assert_eq!(server.get("a").unwrap().definition().description, None);
        assert_eq!(
            server.warnings(),
            ["`s` lists a tool without a name, which is left out", "`s` lists `a` twice; the first is kept"]
        );
    }

    // req: BR-04
    #[test]
    fn a_tool_whose_schema_does_not_compile_is_kept_with_a_warning() {
        let listed = r#"{"name":"odd","inputSchema":{"type":"strin"}}"#;
        let listed = vec![ToolDefinition::parse(raw(listed)).unwrap()];
        let server = ServerTools::new(ServerName::parse("s").unwrap(), ToolFilter::default(), listed);
        assert_eq!(names(&server), ["odd"]);
        assert!(server.list_warnings().is_empty());
        let [warning] = &server.warnings()[..] else { panic!("one warning") };
        assert!(warning.starts_with("the arguments of `s:odd` are not checked: "), "{warning}");
    }

    // req: BR-01
    #[test]
    fn a_filter_that_names_no_tool_is_mentioned() {
        let filter = filter(Some(&["read_fil", "list_*"]), &["drop_tabel", "*delete*"]);
        assert_eq!(
            server("s", filter, &["read_file", "drop_table"]).warnings(),
            [
                "`allowedTools` of `s` names `read_fil`, but no tool is called so; did you mean `read_file`?",
                "`allowedTools` of `s` names `list_*`, but no tool is called so",
                "`deniedTools` of `s` names `drop_tabel`, but no tool is called so; did you mean `drop_table`?",
            ]
        );
    }

    #[test]
    fn a_renewed_list_keeps_the_tools_that_did_not_change() {
        let before = server("s", ToolFilter::default(), &["same", "other"]);
        let mut listed = definitions(&["new", "same"]);
        listed.push(ToolDefinition::parse(raw(r#"{"name":"other","description":"changed"}"#)).unwrap());
        let after = before.renewed(filter(None, &["x"]), listed);
        assert_eq!(names(&after), ["new", "same", "other"]);
        assert!(Arc::ptr_eq(before.get("same").unwrap(), after.get("same").unwrap()));
        assert!(!Arc::ptr_eq(before.get("other").unwrap(), after.get("other").unwrap()));
        assert_eq!((after.name().as_str(), after.filter().denied.len()), ("s", 1));
    }
}
