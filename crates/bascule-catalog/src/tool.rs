//! One tool of the catalog and the validation of its arguments and results.

use std::sync::OnceLock;

use bascule_model::{ServerName, ToolDefinition, ToolId, Violation};
use serde::ser::{Serialize, SerializeStruct, Serializer};
use serde_json::value::RawValue;

use crate::{Schema, SchemaError, Validation};

/// A tool of the catalog. Schemas are compiled on first use, because most tools are never called.
#[derive(Debug)]
pub struct CatalogTool {
    id: ToolId,
    definition: ToolDefinition,
    input: OnceLock<Result<Schema, SchemaError>>,
    output: OnceLock<Result<Schema, SchemaError>>,
}

impl CatalogTool {
    pub fn new(server: &ServerName, definition: ToolDefinition) -> Self {
        let id = ToolId::new(server, &definition.name);
        Self { id, definition, input: OnceLock::new(), output: OnceLock::new() }
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
        let is_compiled = self.input.get().is_some() || is_quick_to_compile(&self.definition.input_schema);
        is_compiled
            && is_object(arguments)
            && self.input().as_ref().is_ok_and(|schema| schema.accepts_arguments_quickly(arguments))
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
        assert_eq!(tool.check_arguments(&valid), Validation::Valid);
        assert!(tool.has_quickly_valid_arguments(&valid));
        assert!(!tool.has_quickly_valid_arguments(&invalid));
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

    // req: BR-03
    #[test]
    fn omits_missing_output_schema() {
        assert_eq!(
            serde_json::to_string(&tool(r#"{"name":"t"}"#)).unwrap(),
            r#"{"id":"s:t","server":"s","name":"t","description":null,"inputSchema":{}}"#
        );
    }
}
