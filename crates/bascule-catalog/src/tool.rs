//! One tool of the catalog and the validation of its arguments and results.

use std::sync::{Arc, OnceLock};

use bascule_model::{ServerName, ToolDefinition, ToolId, Violation};
use serde::ser::{Serialize, SerializeStruct, Serializer};
use serde_json::value::RawValue;

use crate::typescript::{ResultTypes, ToolTypes, short_result_type, short_type};
use crate::{ObservedResult, Schema, SchemaError, Validation};

/// A tool of the catalog. Schemas are compiled on first use, because most tools are never called.
#[derive(Debug)]
pub struct CatalogTool {
    id: ToolId,
    definition: ToolDefinition,
    /// The definition comes from an earlier run: the server has not listed it in this one.
    is_from_last_listing: bool,
    input: OnceLock<Result<Schema, SchemaError>>,
    output: OnceLock<Result<Schema, SchemaError>>,
    types: OnceLock<ToolTypes>,
    short_result: OnceLock<Option<Box<str>>>,
    /// Shared by all versions of the tool with one definition.
    observed: Arc<ObservedResult>,
}

impl CatalogTool {
    pub fn new(server: &ServerName, definition: ToolDefinition) -> Self {
        let id = ToolId::new(server, &definition.name);
        Self {
            id,
            definition,
            is_from_last_listing: false,
            input: OnceLock::new(),
            output: OnceLock::new(),
            types: OnceLock::new(),
            short_result: OnceLock::new(),
            observed: Arc::default(),
        }
    }

    /// Shares the answers of another version of the tool.
    pub(crate) fn with_observed(self, observed: Arc<ObservedResult>) -> Self {
        Self { observed, ..self }
    }

    /// Marks a tool that the server has not listed in this run.
    pub fn from_last_listing(self) -> Self {
        Self { is_from_last_listing: true, ..self }
    }

    pub fn is_from_last_listing(&self) -> bool {
        self.is_from_last_listing
    }

    pub fn id(&self) -> &ToolId {
        &self.id
    }

    pub fn definition(&self) -> &ToolDefinition {
        &self.definition
    }

    /// Returns true if the arguments are valid and that is quick to see. False means that they need a full check, which
    /// may compile the schema and take long.
    pub fn has_quickly_valid_arguments(&self, arguments: &RawValue) -> bool {
        self.has_quick_input_schema()
            && is_object(arguments)
            && self.input().as_ref().is_ok_and(|schema| schema.accepts_arguments_quickly(arguments))
    }

    /// Returns true if the schema of the arguments is compiled, or quick to compile.
    pub fn has_quick_input_schema(&self) -> bool {
        self.input.get().is_some() || is_quick_to_compile(&self.definition.input_schema)
    }

    /// Returns true if the schema of the arguments compiles: calls are validated. This may take long.
    pub fn has_usable_input_schema(&self) -> bool {
        self.input().is_ok()
    }

    /// Returns true if a structured result is valid and that is quick to see.
    pub fn has_quickly_valid_result(&self, structured: &RawValue) -> bool {
        self.definition.output_schema.is_none()
            || self.output.get().is_some_and(|schema| {
                schema.as_ref().is_ok_and(|schema| schema.accepts_result_quickly(structured))
            })
    }

    /// Validates the arguments of a call. They must be an object, even if the schema does not require it.
    pub fn check_arguments(&self, arguments: &RawValue) -> Validation {
        if !is_object(arguments) {
            let message = "the arguments must be an object".into();
            return Validation::Violations(vec![Violation { pointer: String::new(), message }]);
        }
        validate(self.input(), arguments, Schema::check_arguments)
    }

    /// Validates a structured result. Without an output schema every result is valid.
    pub fn check_result(&self, structured: &RawValue) -> Validation {
        self.output().map_or(Validation::Valid, |schema| validate(schema, structured, Schema::check))
    }

    /// Returns warnings about schemas that cannot be used. Compiles schemas that are not compiled yet, which takes
    /// about 30 microseconds and ten kilobytes each.
    pub fn warnings(&self) -> Vec<String> {
        let unchecked =
            |part: &str, error: &SchemaError| format!("{part} of `{}` are not checked: {error}", self.id);
        let input = self.input().as_ref().err().map(|error| unchecked("the arguments", error));
        let output = self.output().and_then(|schema| schema.as_ref().err());
        input.into_iter().chain(output.map(|error| unchecked("the results", error))).collect()
    }

    /// Returns the tool's signature in TypeScript on one line. `call` is the expression with which scripts call it.
    pub fn signature(&self, call: &str) -> String {
        self.types().signature(call, self.result_types().as_deref())
    }

    /// Returns the call and the type of its arguments on one short line, to show under an error about arguments.
    pub fn call_signature(&self, call: &str) -> String {
        self.types().call_signature(call)
    }

    /// Returns the answers to the tool's calls, as far as they are known.
    pub fn observed(&self) -> &ObservedResult {
        &self.observed
    }

    /// Returns the answers, to share them with another version of the tool.
    pub(crate) fn shared_observed(&self) -> &Arc<ObservedResult> {
        &self.observed
    }

    /// Returns the JSON Schema of the answers of a tool that declares none.
    pub fn observed_schema(&self) -> Option<serde_json::Value> {
        self.observed.schema().filter(|_| self.definition.output_schema.is_none())
    }

    pub(crate) fn types(&self) -> &ToolTypes {
        self.types.get_or_init(|| ToolTypes::new(self))
    }

    /// Returns the declared type of the result, else the observed one.
    pub(crate) fn result_types(&self) -> Option<Arc<ResultTypes>> {
        self.types().result().cloned().or_else(|| self.observed.types())
    }

    /// Returns the type of the result on one line, if it is known and short. Keeps no other types: it is asked of all tools.
    pub(crate) fn short_result(&self) -> Option<Box<str>> {
        match &self.definition.output_schema {
            Some(schema) => self.short_result.get_or_init(|| short_result_type(schema.get())).clone(),
            None => short_type(self.observed.types()?.compact()),
        }
    }

    fn input(&self) -> &Result<Schema, SchemaError> {
        self.input.get_or_init(|| Schema::compile(&self.definition.input_schema))
    }

    fn output(&self) -> Option<&Result<Schema, SchemaError>> {
        let text = self.definition.output_schema.as_ref()?;
        Some(self.output.get_or_init(|| Schema::compile(text)))
    }
}

fn is_object(arguments: &RawValue) -> bool {
    arguments.get().trim_start().starts_with('{')
}

/// Returns true for a short schema without regular expressions, which compiles in well under a millisecond.
fn is_quick_to_compile(schema: &RawValue) -> bool {
    schema.get().len() <= 4096 && !schema.get().contains("\"pattern")
}

fn validate(
    schema: &Result<Schema, SchemaError>,
    value: &RawValue,
    check: fn(&Schema, &RawValue) -> Validation,
) -> Validation {
    match schema {
        Ok(schema) => check(schema, value),
        Err(error) => Validation::Unchecked { reason: error.to_string() },
    }
}

/// The JSON form for the command line and other programs. Schemas are written unchanged.
impl Serialize for CatalogTool {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let output = self.definition.output_schema.as_ref();
        let observed = self.observed_schema();
        let optional = [output.is_some(), observed.is_some(), self.is_from_last_listing];
        let length = 5 + optional.into_iter().filter(|is_present| *is_present).count();
        let mut out = serializer.serialize_struct("CatalogTool", length)?;
        out.serialize_field("id", &self.id)?;
        out.serialize_field("server", self.id.server())?;
        out.serialize_field("name", &self.definition.name)?;
        out.serialize_field("description", &self.definition.description)?;
        out.serialize_field("inputSchema", &self.definition.input_schema)?;
        match output {
            Some(schema) => out.serialize_field("outputSchema", schema)?,
            None => out.skip_field("outputSchema")?,
        }
        match observed {
            Some(schema) => out.serialize_field("observedSchema", &schema)?,
            None => out.skip_field("observedSchema")?,
        }
        match self.is_from_last_listing {
            true => out.serialize_field("fromLastListing", &true)?,
            false => out.skip_field("fromLastListing")?,
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

    fn check(validation: &Validation, expected: &[(&str, &str)]) {
        let Validation::Violations(found) = validation else { panic!("{validation:?}") };
        let found: Vec<_> = found.iter().map(|v| (v.pointer.as_str(), v.message.as_str())).collect();
        assert_eq!(found, expected);
    }

    // req: BR-04
    #[test]
    fn validates_arguments_and_results() {
        let tool = tool(
            r#"{"name":"t","inputSchema":{"properties":{"a":{"type":"string"}}},
                "outputSchema":{"required":["b"]}}"#,
        );
        assert_eq!(tool.check_arguments(&raw(r#"{"a":"x"}"#)), Validation::Valid);
        check(&tool.check_arguments(&raw(r#"{"a":7}"#)), &[("/a", "must be a string, is a number (7)")]);
        assert_eq!(tool.check_result(&raw(r#"{"b":1}"#)), Validation::Valid);
        check(&tool.check_result(&raw("{}")), &[("/b", "`b` is required")]);
    }

    // req: BR-04
    #[test]
    fn leaves_compiling_and_invalid_or_long_values_to_the_full_check() {
        let tool = tool(r#"{"name":"t","inputSchema":{"properties":{"a":{"type":"string","pattern":"x"}}}}"#);
        let (valid, invalid) = (raw(r#"{"a":"x"}"#), raw(r#"{"a":7}"#));
        assert!(!tool.has_quickly_valid_arguments(&valid), "the schema is not compiled yet");
        assert!(!tool.has_quick_input_schema());
        assert_eq!(tool.check_arguments(&valid), Validation::Valid);
        assert!(tool.has_quickly_valid_arguments(&valid));
        assert!(!tool.has_quickly_valid_arguments(&invalid));
        assert!(tool.has_quick_input_schema() && tool.has_usable_input_schema());
        let long = raw(&format!(r#"{{"a":"{}"}}"#, "x".repeat(100 << 10)));
        assert!(!tool.has_quickly_valid_arguments(&long));
        assert_eq!(tool.check_arguments(&long), Validation::Valid);
    }

    // req: BR-04
    #[test]
    fn refuses_arguments_that_are_no_object_without_schema() {
        for schema in ["{}", r#"{"type":7}"#] {
            let tool = tool(&format!(r#"{{"name":"t","inputSchema":{schema}}}"#));
            for arguments in ["[]", "null", "7", r#""{}""#] {
                check(&tool.check_arguments(&raw(arguments)), &[("", "the arguments must be an object")]);
            }
        }
    }

    // req: BR-04
    #[test]
    fn skips_validation_if_schema_does_not_compile() {
        let tool = tool(r#"{"name":"t","inputSchema":{"$ref":"http://x/y"},"outputSchema":7}"#);
        let reason = "the schema refers to `http://x/y`; remote schemas are not fetched".to_owned();
        assert_eq!(tool.check_arguments(&raw("{}")), Validation::Unchecked { reason });
        assert!(matches!(tool.check_result(&raw("{}")), Validation::Unchecked { .. }));
        assert_eq!(
            tool.warnings(),
            [
                "the arguments of `s:t` are not checked: the schema refers to `http://x/y`; remote schemas are not fetched",
                "the results of `s:t` are not checked: the schema is invalid: must be a boolean or an object, is a number (7)",
            ]
        );
    }

    // req: BR-03
    #[test]
    fn serializes_schemas_verbatim() {
        let tool = tool(
            r#"{"name":"t","description":"d","inputSchema":{ "type":"object","x":1.0 },"outputSchema":{"a": 1e2}}"#,
        );
        assert_eq!(
            serde_json::to_string(&tool).unwrap(),
            r#"{"id":"s:t","server":"s","name":"t","description":"d","inputSchema":{ "type":"object","x":1.0 },"outputSchema":{"a": 1e2}}"#
        );
    }

    // req: US-03
    #[test]
    fn marks_tool_of_last_listing() {
        assert_eq!(
            serde_json::to_string(&tool(r#"{"name":"t"}"#).from_last_listing()).unwrap(),
            r#"{"id":"s:t","server":"s","name":"t","description":null,"inputSchema":{},"fromLastListing":true}"#
        );
    }

    // req: BR-03
    #[test]
    fn omits_missing_output_schema() {
        assert_eq!(
            serde_json::to_string(&tool(r#"{"name":"t"}"#)).unwrap(),
            r#"{"id":"s:t","server":"s","name":"t","description":null,"inputSchema":{}}"#
        );
    }
}
