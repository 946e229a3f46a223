//! One tool that may be used, and whether its arguments and results are as it says.

use std::sync::OnceLock;

use bascule_model::{ServerName, ToolDefinition, ToolId, Violation};
use serde::ser::{Serialize, SerializeStruct, Serializer};
use serde_json::value::RawValue;

use crate::{Schema, SchemaError, Verdict};

/// A tool of the catalog. Its schemas are compiled when they are first needed: most tools are never called.
#[derive(Debug)]
pub struct CatalogTool {
    id: ToolId,
    definition: ToolDefinition,
    input: OnceLock<Result<Schema, SchemaError>>,
    output: OnceLock<Result<Schema, SchemaError>>,
}

impl CatalogTool {
    /// A server's tool, as the server defined it.
    pub fn new(server: &ServerName, definition: ToolDefinition) -> Self {
        let id = ToolId::new(server, &definition.name);
        Self { id, definition, input: OnceLock::new(), output: OnceLock::new() }
    }

    /// Its full name.
    pub fn id(&self) -> &ToolId {
        &self.id
    }

    /// What its server says about it.
    pub fn definition(&self) -> &ToolDefinition {
        &self.definition
    }

    /// Judges the arguments of a call. They must be an object, whatever the schema says or fails to say.
    pub fn check_arguments(&self, arguments: &RawValue) -> Verdict {
        if !arguments.get().trim_start().starts_with('{') {
            let message = "the arguments must be an object".into();
            return Verdict::Violations(vec![Violation { pointer: String::new(), message }]);
        }
        judge(self.input(), arguments)
    }

    /// Judges a structured result. Without an output schema anything goes.
    pub fn check_result(&self, structured: &RawValue) -> Verdict {
        self.output().map_or(Verdict::Valid, |schema| judge(schema, structured))
    }

    /// Why its arguments, or its results, are not checked. Compiles what is not compiled yet.
    pub fn warnings(&self) -> Vec<String> {
        let unchecked =
            |what: &str, error: &SchemaError| format!("{what} of `{}` are not checked: {error}", self.id);
        let input = self.input().as_ref().err().map(|error| unchecked("the arguments", error));
        let output = self.output().and_then(|schema| schema.as_ref().err());
        input.into_iter().chain(output.map(|error| unchecked("the results", error))).collect()
    }

    fn input(&self) -> &Result<Schema, SchemaError> {
        self.input.get_or_init(|| Schema::compile(&self.definition.input_schema))
    }

    fn output(&self) -> Option<&Result<Schema, SchemaError>> {
        let text = self.definition.output_schema.as_ref()?;
        Some(self.output.get_or_init(|| Schema::compile(text)))
    }
}

fn judge(schema: &Result<Schema, SchemaError>, value: &RawValue) -> Verdict {
    match schema {
        Ok(schema) => schema.check(value),
        Err(error) => Verdict::Unchecked { why: error.to_string() },
    }
}

/// As the command line and other programs see a tool; the schemas as the server spelled them.
impl Serialize for CatalogTool {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let output = self.definition.output_schema.as_ref();
        let mut out = serializer.serialize_struct("CatalogTool", 5 + usize::from(output.is_some()))?;
        out.serialize_field("id", &self.id)?;
        out.serialize_field("server", self.id.server())?;
        out.serialize_field("name", &self.definition.name)?;
        out.serialize_field("description", &self.definition.description)?;
        out.serialize_field("inputSchema", &self.definition.input_schema)?;
        match output {
            Some(schema) => out.serialize_field("outputSchema", schema)?,
            None => out.skip_field("outputSchema")?,
        }
        out.end()
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) fn raw(text: &str) -> Box<RawValue> {
        RawValue::from_string(text.into()).unwrap()
    }

    pub(crate) fn tool(definition: &str) -> CatalogTool {
        let definition = ToolDefinition::parse(raw(definition)).unwrap();
        CatalogTool::new(&ServerName::parse("s").unwrap(), definition)
    }

    fn check(verdict: &Verdict, expected: &[(&str, &str)]) {
        let Verdict::Violations(found) = verdict else { panic!("{verdict:?}") };
        let found: Vec<_> = found.iter().map(|v| (v.pointer.as_str(), v.message.as_str())).collect();
        assert_eq!(found, expected);
    }

    // req: BR-04
    #[test]
    fn arguments_are_judged_by_the_input_schema_and_results_by_the_output_schema() {
        let tool = tool(
            r#"{"name":"t","inputSchema":{"properties":{"a":{"type":"string"}}},
                "outputSchema":{"required":["b"]}}"#,
        );
        assert_eq!(tool.check_arguments(&raw(r#"{"a":"x"}"#)), Verdict::Valid);
        check(&tool.check_arguments(&raw(r#"{"a":7}"#)), &[("/a", "must be a string, is a number (7)")]);
        assert_eq!(tool.check_result(&raw(r#"{"b":1}"#)), Verdict::Valid);
        check(&tool.check_result(&raw("{}")), &[("/b", "`b` is required")]);
    }

    // req: BR-04
    #[test]
    fn arguments_must_be_an_object_even_if_there_is_no_usable_schema() {
        for schema in ["{}", r#"{"type":7}"#] {
            let tool = tool(&format!(r#"{{"name":"t","inputSchema":{schema}}}"#));
            for arguments in ["[]", "null", "7", r#""{}""#] {
                check(&tool.check_arguments(&raw(arguments)), &[("", "the arguments must be an object")]);
            }
        }
    }

    // req: BR-04
    #[test]
    fn a_tool_whose_schemas_cannot_be_compiled_stays_unchecked_and_says_why() {
        let tool = tool(r#"{"name":"t","inputSchema":{"$ref":"http://x/y"},"outputSchema":7}"#);
        let why = "the schema refers to `http://x/y`, and nothing is fetched".to_owned();
        assert_eq!(tool.check_arguments(&raw("{}")), Verdict::Unchecked { why });
        assert!(matches!(tool.check_result(&raw("{}")), Verdict::Unchecked { .. }));
        assert_eq!(
            tool.warnings(),
            [
                "the arguments of `s:t` are not checked: the schema refers to `http://x/y`, and nothing is fetched",
                "the results of `s:t` are not checked: the schema is broken: must be a boolean or an object, is a number (7)",
            ]
        );
    }

    // req: BR-03
    #[test]
    fn a_tool_prints_with_its_schemas_verbatim() {
        let tool = tool(
            r#"{"name":"t","description":"d","inputSchema":{ "type":"object","x":1.0 },"outputSchema":{"a": 1e2}}"#,
        );
        assert_eq!(
            serde_json::to_string(&tool).unwrap(),
            r#"{"id":"s:t","server":"s","name":"t","description":"d","inputSchema":{ "type":"object","x":1.0 },"outputSchema":{"a": 1e2}}"#
        );
    }

    // req: BR-03
    #[test]
    fn a_tool_without_an_output_schema_prints_none() {
        assert_eq!(
            serde_json::to_string(&tool(r#"{"name":"t"}"#)).unwrap(),
            r#"{"id":"s:t","server":"s","name":"t","description":null,"inputSchema":{}}"#
        );
    }
}
