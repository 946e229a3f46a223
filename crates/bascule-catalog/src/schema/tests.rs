//! Tests of compiled schemas: messages, dialects, numbers, and hostile schemas and values.

use std::time::Duration;

use proptest::prelude::*;
use serde_json::{Map, json};

use super::*;
use crate::tool::tests::raw;

fn compile(schema: &str) -> Result<Schema, SchemaError> {
    Schema::compile(&raw(schema))
}

fn validate(schema: &str, value: &str) -> Validation {
    compile(schema).unwrap().check(&raw(value))
}

/// Expects these violations as `pointer: message`; none for a valid value.
fn check(schema: &str, value: &str, expected: &[&str]) {
    let found: Vec<_> = match validate(schema, value) {
        Validation::Valid => Vec::new(),
        Validation::Violations(all) => all.iter().map(|v| format!("{}: {}", v.pointer, v.message)).collect(),
        Validation::Unchecked { reason } => panic!("unchecked: {reason}"),
    };
    assert_eq!(found, expected, "{schema} {value}");
}

fn check_unchecked(schema: &str, value: &str, reason: &str) {
    match validate(schema, value) {
        Validation::Unchecked { reason: found } => assert!(found.contains(reason), "{found}"),
        other => panic!("{schema}: {other:?}"),
    }
}

fn check_refused(schema: &str, expected: &str) {
    let error = compile(schema).unwrap_err().to_string();
    assert_eq!(error, expected, "{schema}");
}

mod messages {
    use super::*;

    // req: BR-04
    #[test]
    fn reports_all_violations_with_pointers() {
        let schema = r#"{"type":"object","properties":{"message":{"type":"string"},"n":{"type":"integer"},
            "tags":{"items":{"type":"string"}}},"required":["message"]}"#;
        check(schema, r#"{"message":"hi","n":1,"tags":[]}"#, &[]);
        check(
            schema,
            r#"{"n":"x","tags":["a",true]}"#,
            &[
                "/message: `message` is required",
                "/n: must be an integer, is a string",
                "/tags/1: must be a string, is a boolean (true)",
            ],
        );
    }

    // req: BR-04
    #[test]
    fn reports_every_violation_of_one_keyword() {
        let two = |schema: &str, value: &str| {
            let Validation::Violations(found) = validate(schema, value) else { panic!("{schema}") };
            assert_eq!(found.len(), 2, "{schema} {found:?}");
        };
        let ab = r#"{"a":1,"b":2}"#;
        two(r#"{"additionalProperties":false}"#, ab);
        two(r#"{"properties":{},"additionalProperties":false}"#, ab);
        two(r#"{"properties":{"c":{}},"additionalProperties":false}"#, ab);
        two(r#"{"properties":{"c":{}},"required":["a"],"additionalProperties":false}"#, ab);
        two(r#"{"patternProperties":{"c":{}},"additionalProperties":false}"#, ab);
        two(r#"{"properties":{"c":{}},"unevaluatedProperties":false}"#, ab);
        two(r#"{"patternProperties":{"a|b":{"type":"null"}}}"#, ab);
        two(r#"{"propertyNames":{"maxLength":0}}"#, ab);
        two(r#"{"required":["c","d"]}"#, ab);
        two(r#"{"dependentRequired":{"a":["c","d"]}}"#, ab);
        two(r#"{"dependentRequired":{"a":["c"],"b":["d"]}}"#, ab);
        two(r#"{"additionalProperties":{"type":"null"}}"#, ab);
        two(r#"{"items":{"type":"null"}}"#, "[1,2]");
        two(r#"{"prefixItems":[false,{"type":"null"}]}"#, "[1,2]");
        two(r#"{"allOf":[{"type":"null"},{"minimum":5}]}"#, "1");
        two(r#"{"if":true,"then":{"type":"null","minimum":5}}"#, "1");
    }

    // req: BR-04
    #[test]
    fn escapes_pointers() {
        check(r#"{"required":["a/b~c"]}"#, "{}", &["/a~1b~0c: `a/b~c` is required"]);
        check(
            r#"{"additionalProperties":{"type":"null"}}"#,
            r#"{"a/b":{}}"#,
            &["/a~1b: must be null, is an object"],
        );
    }

    #[test]
    fn names_wrong_types_and_shows_numbers() {
        check(r#"{"type":"string"}"#, "7", &[": must be a string, is a number (7)"]);
        check(r#"{"type":["string","null"]}"#, "[]", &[": must be null or a string, is an array"]);
        check(r#"{"type":"integer"}"#, "1.5", &[": must be an integer, is a number (1.5)"]);
        check(
            r#"{"type":["array","number","string"]}"#,
            "null",
            &[": must be a number, a string or an array, is null"],
        );
        check(r#"{"type":"integer"}"#, "1.0", &[]);
    }

    #[test]
    fn hints_at_values_passed_as_strings() {
        for (schema, value, hint) in [
            (
                "object",
                r#""{\"a\":1}""#,
                "must be an object, is a string; pass the object itself, not its JSON as text",
            ),
            (
                "array",
                r#"" [1]""#,
                "must be an array, is a string; pass the array itself, not its JSON as text",
            ),
            ("number", r#""7.5""#, "must be a number, is a string; leave out the quotes"),
            ("boolean", r#""true""#, "must be a boolean, is a string; leave out the quotes"),
            ("number", r#""7th""#, "must be a number, is a string"),
            ("boolean", r#""tru""#, "must be a boolean, is a string"),
        ] {
            check(&json!({"type": schema}).to_string(), value, &[&format!(": {hint}")]);
        }
    }

    // req: BR-04
    #[test]
    fn suggests_similar_property() {
        let schema = r##"{"$ref":"#/$defs/p","$defs":{"p":{"properties":{"color":{},"size":{}},"additionalProperties":false}}}"##;
        check(
            schema,
            r#"{"colour":1,"weight":2}"#,
            &[
                "/colour: unknown property `colour`; did you mean `color`?",
                "/weight: unknown property `weight`",
            ],
        );
        check(schema, r#"{"colour":1,"color":2}"#, &["/colour: unknown property `colour`"]);
        check(r#"{"unevaluatedProperties":false}"#, r#"{"a":1}"#, &["/a: unknown property `a`"]);
    }

    #[test]
    fn lists_choices_up_to_a_limit() {
        check(r#"{"enum":["a","b",null,3]}"#, r#""c""#, &[": must be one of `a`, `b`, `null`, `3`"]);
        check(r#"{"enum":["a"]}"#, "1", &[": must be `a`"]);
        check(r#"{"const":{"a":1}}"#, "1", &[r#": must be `{"a":1}`"#]);
        let many: Vec<_> = (0..1000).map(|i| format!("option{i}")).collect();
        let Validation::Violations(found) = validate(&json!({"enum": many}).to_string(), "1") else {
            panic!()
        };
        assert!(found[0].message.starts_with("must be one of `option0`, `option1`"));
        assert!(found[0].message.ends_with(" more") && found[0].message.chars().count() <= 200);
    }

    #[test]
    fn shows_limit_and_actual_value() {
        for (schema, value, message) in [
            (r#"{"minimum":1}"#, "0", "must be at least 1, is 0"),
            (r#"{"maximum":1}"#, "1.5", "must be at most 1, is 1.5"),
            (r#"{"exclusiveMinimum":1}"#, "1", "must be more than 1, is 1"),
            (r#"{"exclusiveMaximum":1}"#, "1", "must be less than 1, is 1"),
            (r#"{"multipleOf":5}"#, "7", "must be a multiple of 5, is 7"),
            (r#"{"minLength":1}"#, r#""""#, "must have at least 1 character, has 0"),
            (r#"{"maxLength":2}"#, r#""äöü""#, "must have at most 2 characters, has 3"),
            (r#"{"minItems":2}"#, "[1]", "must have at least 2 items, has 1"),
            (r#"{"maxItems":0}"#, "[1]", "must have at most 0 items, has 1"),
            (r#"{"minProperties":1}"#, "{}", "must have at least 1 property, has 0"),
            (r#"{"maxProperties":2}"#, r#"{"a":1,"b":2,"c":3}"#, "must have at most 2 properties, has 3"),
            (r#"{"pattern":"^a$"}"#, r#""b""#, "must match the pattern `^a$`"),
            (r#"{"uniqueItems":true}"#, "[1,1]", "must not contain the same item twice"),
            (r#"{"contains":{"const":1}}"#, "[2]", "does not contain the required items"),
            (r#"{"not":{"type":"null"}}"#, "null", r#"must not match `{"type":"null"}`"#),
            (
                r#"{"propertyNames":{"pattern":"^a"}}"#,
                r#"{"b":1}"#,
                "the property name `b` must match the pattern `^a`",
            ),
            (r#"{"oneOf":[{},true]}"#, "1", "matches more than one alternative, must match exactly one"),
            ("false", "1", "is not allowed"),
        ] {
            check(schema, value, &[&format!(": {message}")]);
        }
        let draft7 =
            r#"{"$schema":"http://json-schema.org/draft-07/schema#","items":[{}],"additionalItems":false}"#;
        check(draft7, "[1,2]", &[": must have at most 1 item, has 2"]);
        check(r#"{"properties":{"gone":false}}"#, r#"{"gone":1}"#, &["/gone: is not allowed"]);
    }

    #[test]
    fn never_repeats_texts_of_the_value() {
        for schema in [
            r#"{"type":"null"}"#,
            r#"{"pattern":"^a$"}"#,
            r#"{"maxLength":2}"#,
            r#"{"enum":["x"]}"#,
            r#"{"not":{}}"#,
        ] {
            let message = format!("{:?}", validate(schema, r#""hunter2""#));
            assert!(message.contains("Violations") && !message.contains("hunter2"), "{message}");
        }
    }

    #[test]
    fn limits_messages_pointers_and_lists() {
        let wide: Map<_, _> = (0..150).map(|i| (format!("p{i}"), json!(1))).collect();
        let schema = r#"{"additionalProperties":{"type":"string"}}"#;
        let Validation::Violations(found) = validate(schema, &json!(wide).to_string()) else { panic!() };
        assert_eq!((found.len(), found[100].message.as_str()), (101, "and 50 more"));
        let Validation::Violations(found) =
            validate(r#"{"additionalProperties":false}"#, &json!(wide).to_string())
        else {
            panic!()
        };
        assert_eq!((found.len(), found[100].message.as_str()), (101, "and 50 more"));
        let long = "x".repeat(5_000);
        let Validation::Violations(found) = validate(schema, &json!({"a": 1, &long: 2}).to_string()) else {
            panic!()
        };
        assert_eq!(found.iter().map(|v| v.pointer.as_str()).collect::<Vec<_>>(), ["/a", ""]);
        let Validation::Violations(found) = validate(&json!({"const": long}).to_string(), "1") else {
            panic!()
        };
        assert!(found[0].message.chars().count() < 100, "{:?}", found[0]);
    }

    #[test]
    fn reports_equal_violations_once() {
        check(r#"{"allOf":[{"type":"null"},{"type":"null"}]}"#, "1", &[": must be null, is a number (1)"]);
    }
}

mod alternatives {
    use super::*;

    const SHAPES: &str = r#"{"anyOf":[
        {"type":"object","properties":{"kind":{"const":"circle"},"r":{"type":"number"}},"required":["kind","r"]},
        {"type":"object","properties":{"kind":{"const":"square"},"a":{"type":"number"}},"required":["kind","a"]},
        {"type":"null"}]}"#;

    // req: BR-04
    #[test]
    fn combines_type_errors_of_alternatives() {
        let schema = r#"{"anyOf":[{"type":"string"},{"type":"null"}]}"#;
        check(schema, "7", &[": must be a string or null, is a number (7)"]);
        check(SHAPES, "7", &[": must be an object or null, is a number (7)"]);
    }

    // req: BR-04
    #[test]
    fn explains_the_intended_alternative() {
        check(SHAPES, r#"{"kind":"circle"}"#, &["/r: `r` is required"]);
        check(
            SHAPES,
            r#"{"kind":"square","a":"2"}"#,
            &["/a: must be a number, is a string; leave out the quotes"],
        );
        let nullable = r#"{"anyOf":[{"type":"string","minLength":3},{"type":"null"}]}"#;
        check(nullable, r#""ab""#, &[": must have at least 3 characters, has 2"]);
        check(r#"{"type":"string","nullable":true}"#, "null", &[": must be a string, is null"]);
    }

    #[test]
    fn reports_choices_or_closest_alternative() {
        check(SHAPES, r#"{"kind":"line"}"#, &["/kind: must be one of `circle`, `square`"]);
        check(
            r#"{"anyOf":[{"required":["a"]},{"required":["b","c"]}]}"#,
            "{}",
            &[": matches none of the 2 alternatives; the closest: at `/a`, `a` is required"],
        );
        check(
            r#"{"oneOf":[{"minimum":10},{"multipleOf":7}]}"#,
            "5",
            &[": matches none of the 2 alternatives; the closest: must be at least 10, is 5"],
        );
    }

    #[test]
    fn limits_nested_alternatives() {
        let deep =
            (0..20).fold(json!({"minimum": 10}), |inner, _| json!({"anyOf": [inner, {"minimum": 11}]}));
        let Validation::Violations(found) = validate(&deep.to_string(), "5") else { panic!() };
        assert_eq!(found.len(), 1);
    }
}

mod drafts {
    use super::*;

    // req: BR-04
    #[test]
    fn supports_older_drafts() {
        let tuple = |schema: &str| format!(r#"{{"$schema":"{schema}","items":[{{"type":"string"}}]}}"#);
        check(
            &tuple("http://json-schema.org/draft-07/schema#"),
            "[1]",
            &["/0: must be a string, is a number (1)"],
        );
        check(
            &tuple("https://json-schema.org/draft/2019-09/schema"),
            "[1]",
            &["/0: must be a string, is a number (1)"],
        );
        assert!(compile(&tuple("https://json-schema.org/draft/2020-12/schema")).is_err());
        assert!(compile(r#"{"items":[{"type":"string"}]}"#).is_err());
    }

    // req: BR-04
    #[test]
    fn follows_local_references() {
        for schema in [
            r##"{"properties":{"a":{"$ref":"#/$defs/x"}},"$defs":{"x":{"type":"string"}}}"##,
            r##"{"properties":{"a":{"$ref":"#/definitions/x"}},"definitions":{"x":{"type":"string"}}}"##,
            r##"{"properties":{"a":{"$ref":"#x"}},"$defs":{"y":{"$anchor":"x","type":"string"}}}"##,
            r##"{"$id":"http://example.com/s","properties":{"a":{"$ref":"t"}},"$defs":{"y":{"$id":"t","type":"string"}}}"##,
            r##"{"$schema":"http://json-schema.org/draft-07/schema#","properties":{"a":{"$ref":"#/definitions/x"}},"definitions":{"x":{"type":"string"}}}"##,
        ] {
            check(schema, r#"{"a":7}"#, &["/a: must be a string, is a number (7)"]);
            check(schema, r#"{"a":"b"}"#, &[]);
        }
    }

    // req: BR-04
    #[test]
    fn never_fetches_remote_schemas() {
        for uri in
            ["http://127.0.0.1:9/x", "https://example.com/x.json", "file:///etc/hostname", "other.json"]
        {
            let error = compile(&json!({"$ref": uri}).to_string()).unwrap_err();
            assert!(
                matches!(&error, SchemaError::RemoteReference { uri: found } if found.ends_with(uri)),
                "{error}"
            );
        }
    }

    #[test]
    fn does_not_validate_formats() {
        for draft in
            ["http://json-schema.org/draft-07/schema#", "https://json-schema.org/draft/2020-12/schema"]
        {
            check(&json!({"$schema": draft, "format": "email"}).to_string(), r#""nobody""#, &[]);
        }
    }

    #[test]
    fn refuses_unknown_dialect() {
        check_refused(
            r#"{"$schema":"http://example.com/mine"}"#,
            "the schema is invalid: Unknown meta-schema: 'http://example.com/mine'. Custom meta-schemas must be registered in the registry before use",
        );
    }

    // req: BR-04
    #[test]
    fn refuses_invalid_schemas_with_pointer() {
        for (schema, expected) in [
            ("7", "the schema is invalid: must be a boolean or an object, is a number (7)"),
            ("null", "the schema is invalid: must be a boolean or an object, is null"),
            ("[]", "the schema is invalid: must be a boolean or an object, is an array"),
            (r#""x""#, "the schema is invalid: must be a boolean or an object, is a string"),
            (
                r#"{"properties":[]}"#,
                "the schema is invalid at `/properties`: must be an object, is an array",
            ),
            (r#"{"required":"a"}"#, "the schema is invalid at `/required`: must be an array, is a string"),
            (r#"{"pattern":"("}"#, "the schema is invalid at `/pattern`: is not a valid regex"),
            (r##"{"$ref":"#/nowhere"}"##, "the schema is invalid: Pointer '/nowhere' does not exist"),
            (r#"{"minimum":1e400}"#, "the schema cannot be parsed: number out of range at line 1 column 16"),
        ] {
            check_refused(schema, expected);
        }
        let error = compile(r#"{"properties":{"a":{"type":"strin"}}}"#).unwrap_err().to_string();
        assert!(
            error.starts_with("the schema is invalid at `/properties/a/type`: must be one of"),
            "{error}"
        );
    }
}

mod numbers {
    use super::*;

    // req: BR-04
    #[test]
    fn accepts_large_integers() {
        for number in
            ["18446744073709551616", "-9223372036854775809", "123456789012345678901234567890", "1e300"]
        {
            check(r#"{"type":"integer"}"#, number, &[]);
            check(r#"{"type":"number","minimum":-1e301}"#, number, &[]);
            assert!(matches!(validate(r#"{"type":"string"}"#, number), Validation::Violations(_)));
        }
    }

    // req: BR-04
    #[test]
    fn does_not_check_numbers_out_of_range() {
        check_unchecked(r#"{"type":"string"}"#, "1e400", "number out of range");
        check_unchecked(r#"{"type":"object"}"#, r#"{"a":[-1e999]}"#, "number out of range");
    }

    #[test]
    fn does_not_refuse_number_because_of_rounding() {
        let reason = "too large to be compared exactly";
        check_unchecked(r#"{"multipleOf":10}"#, "1000000000000000000000000000000", reason);
        check_unchecked(r#"{"exclusiveMaximum":18446744073709551617}"#, "18446744073709551616", reason);
        check_unchecked(r#"{"uniqueItems":true}"#, "[18446744073709551617,18446744073709551616]", reason);
        check_unchecked(
            r#"{"anyOf":[{"multipleOf":10},{"type":"null"}]}"#,
            "1000000000000000000000000000000",
            reason,
        );
        check_unchecked(r#"{"not":{"required":["a"]}}"#, r#"{"a":{"b":1e20}}"#, reason);
    }

    #[test]
    fn refuses_rounded_number_if_rounding_is_irrelevant() {
        check(r#"{"maximum":100}"#, "1e30", &[": must be at most 100, is 1e+30"]);
        let schema = r#"{"properties":{"n":{"multipleOf":10},"s":{"type":"string"}}}"#;
        let value = r#"{"n":1000000000000000000000000000000,"s":1}"#;
        check(schema, value, &["/s: must be a string, is a number (1)"]);
    }
}

mod hostile_input {
    use super::*;

    /// Runs `work` on a thread with a small stack. Unbounded work fails instead of blocking the test forever.
    fn run_bounded<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
        let (sender, receiver) = std::sync::mpsc::channel();
        let send = move || drop(sender.send(work()));
        std::thread::Builder::new().stack_size(2 << 20).spawn(send).unwrap();
        receiver.recv_timeout(Duration::from_secs(300)).expect("the work ends")
    }

    fn nested(levels: usize, open: &str, inner: &str, close: &str) -> String {
        format!("{}{inner}{}", open.repeat(levels), close.repeat(levels))
    }

    // req: BR-04
    #[test]
    fn does_not_check_value_too_deep_for_parser() {
        check_unchecked("{}", &nested(10_000, "[", "", "]"), "recursion limit exceeded");
        check_unchecked(
            r#"{"type":"string"}"#,
            &nested(10_000, r#"{"a":"#, "1", "}"),
            "recursion limit exceeded",
        );
    }

    // req: BR-12
    #[test]
    fn refuses_deeply_nested_schema() {
        check_refused(
            &nested(10_000, r#"{"items":"#, "{}", "}"),
            "the schema cannot be parsed: recursion limit exceeded at line 1 column 1144",
        );
    }

    // req: BR-12
    #[test]
    fn refuses_too_long_schema() {
        let schema = json!({"description": "x".repeat(2_000_000)}).to_string();
        assert_eq!(compile(&schema).unwrap_err(), SchemaError::TooLong { length: schema.len() });
    }

    // req: BR-12
    #[test]
    fn terminates_on_cyclic_references() {
        for schema in [
            r##"{"$ref":"#"}"##,
            r##"{"allOf":[{"$ref":"#"}]}"##,
            r##"{"not":{"$ref":"#"}}"##,
            r##"{"$ref":"#/$defs/a","$defs":{"a":{"$ref":"#/$defs/b"},"b":{"$ref":"#/$defs/a"}}}"##,
            r##"{"$dynamicAnchor":"x","$dynamicRef":"#x"}"##,
            r##"{"$schema":"https://json-schema.org/draft/2019-09/schema","$recursiveRef":"#"}"##,
            r##"{"$schema":"http://json-schema.org/draft-07/schema#","$ref":"#"}"##,
            r##"{"anyOf":[{"$ref":"#"},{"$ref":"#/anyOf/0"}],"unevaluatedProperties":false}"##,
            r##"{"if":{"$ref":"#"},"then":{"$ref":"#"},"else":{"$ref":"#"}}"##,
            r##"{"properties":{"a":{"$ref":"#"}},"unevaluatedProperties":{"$ref":"#"}}"##,
        ] {
            run_bounded(move || validate(schema, r#"{"a":{"b":[1]}}"#));
        }
    }

    // req: BR-12
    #[test]
    fn checks_deep_value_with_little_stack() {
        let schema =
            r##"{"anyOf":[{"type":"array","items":{"allOf":[{"allOf":[{"$ref":"#"}]}]}},{"type":"null"}]}"##;
        let found = run_bounded(move || validate(schema, &nested(120, "[", "null", "]")));
        assert!(!matches!(found, Validation::Violations(_)), "{found:?}");
    }

    // req: BR-12
    #[test]
    fn chained_deep_definitions_do_not_overflow_stack() {
        for levels in [25, 60, 100, 120] {
            let definition = |i: usize| {
                let next = json!({"$ref": format!("#/$defs/{}", i + 1)});
                (0..levels).fold(next, |schema, _| json!({"items": schema}))
            };
            let mut definitions: Map<_, _> = (0..12).map(|i| (i.to_string(), definition(i))).collect();
            definitions.insert("12".into(), json!({}));
            let schema = json!({"$ref": "#/$defs/0", "$defs": definitions}).to_string();
            let compiled = run_bounded(move || compile(&schema).map(|schema| schema.check(&raw("[[[1]]]"))));
            assert_eq!(compiled.is_ok(), levels == 25, "{levels}");
        }
    }

    // req: BR-12
    #[test]
    fn aborts_recursion_that_doubles_at_every_level() {
        let schema = r##"{"anyOf":[{"type":"array","items":{"$ref":"#"}},{"type":"array","items":{"$ref":"#"}},{"type":"null"}]}"##;
        for levels in [10, 40, 120] {
            let found = run_bounded(move || validate(schema, &nested(levels, "[", "1", "]")));
            assert!(matches!(found, Validation::Violations(_)), "{levels} {found:?}");
        }
    }

    // req: BR-12
    #[test]
    fn terminates_on_catastrophic_patterns() {
        for pattern in [
            "(a+)+$",
            "^(a|a)*$",
            r"(a+)+\1$",
            r"(?=.*(a*)*b)c",
            r"^(?!.*(a+)+$).*b",
            "[a-z]{5000}",
            "(a{100}){50}",
        ] {
            for length in [1_000, 30_000, 1_000_000] {
                let value = json!(format!("{}!", "a".repeat(length))).to_string();
                let schema = json!({"pattern": pattern}).to_string();
                run_bounded(move || validate(&schema, &value));
            }
        }
    }

    // req: BR-12
    #[test]
    fn does_not_check_expensive_patterns() {
        let value = json!("a".repeat(100_000)).to_string();
        check_unchecked(r#"{"pattern":"(?=.*(a*)*b)c"}"#, &value, "would take too long");
        let value = json!(format!("{}!", "a".repeat(3_000))).to_string();
        check_unchecked(r#"{"pattern":"^(?:(a+)+\\1)+$"}"#, &value, "regular expression");
    }

    #[test]
    fn supports_look_around() {
        let email = r#"{"pattern":"^(?!\\.)(?!.*\\.\\.)([A-Za-z0-9_'+\\-\\.]*)[A-Za-z0-9_+-]@([A-Za-z0-9][A-Za-z0-9\\-]*\\.)+[A-Za-z]{2,}$"}"#;
        check(email, r#""someone@example.com""#, &[]);
        assert!(matches!(validate(email, r#""some..one@example.com""#), Validation::Violations(_)));
        let many = json!(vec!["someone@example.com"; 2_000]).to_string();
        check(&format!(r#"{{"items":{email}}}"#), &many, &[]);
    }

    // req: BR-12
    #[test]
    fn refuses_giant_patterns() {
        for pattern in [r"\p{L}{1000}", "(a{1000}){1000}", &nested(10_000, "(", "a", ")")] {
            let schema = json!({"pattern": pattern}).to_string();
            assert!(run_bounded(move || compile(&schema).is_err()), "{pattern:.30}");
        }
    }

    // req: BR-12
    #[test]
    fn accepts_large_value_and_limits_its_cost() {
        let records: Vec<_> =
            (0..20_000).map(|i| json!({"id": i, "name": "x", "tags": ["a", "b"]})).collect();
        let schema = r#"{"items":{"properties":{"id":{"type":"integer"},"name":{"type":"string","minLength":1},
            "tags":{"items":{"enum":["a","b"]},"uniqueItems":true}},"required":["id","name"],"additionalProperties":false}}"#;
        check(schema, &json!(records).to_string(), &[]);
        let same_hash: Vec<_> = (0..40_000).map(|i| json!([[i % 2], [i]])).collect();
        let value = json!(same_hash).to_string();
        run_bounded(move || validate(r#"{"uniqueItems":true}"#, &value));
    }

    // req: BR-12
    #[test]
    fn limits_copies_of_large_invalid_value() {
        let large = json!({"list": vec![json!({"a": "some text"}); 20_000]}).to_string();
        let alternatives: Vec<_> = (0..2_000).map(|i| json!({"required": [format!("p{i}")]})).collect();
        let found = run_bounded(move || validate(&json!({"anyOf": alternatives}).to_string(), &large));
        assert!(matches!(found, Validation::Violations(_)), "{found:?}");
    }

    #[test]
    fn catches_panic_of_validator() {
        let cost = complexity::check_complexity(&json!({})).unwrap();
        let panic = |_: budget::MeteredNode<'_>| std::panic::resume_unwind(Box::new("bug"));
        let aborted = run_with_budget(&json!(1), 1, cost, panic).map(|(): ()| ());
        assert_eq!(aborted, Err(CheckAborted::Panicked));
        assert_eq!(describe_abort(CheckAborted::Panicked), "the validator failed on it");
    }
}

mod properties {
    use super::*;

    fn value() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(json!(null)),
            any::<bool>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            any::<f64>().prop_map(Value::from),
            "[abc\u{0}é~/]{0,4}".prop_map(Value::from),
        ];
        leaf.prop_recursive(4, 32, 4, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
                prop::collection::btree_map("[abc]", inner, 0..4).prop_map(|members| json!(members)),
            ]
        })
    }

    /// Schemas made of real keywords, valid and invalid.
    fn schema() -> impl Strategy<Value = Value> {
        let word = prop::sample::select(vec![
            json!("string"),
            json!("object"),
            json!("array"),
            json!("integer"),
            json!("null"),
            json!("#"),
            json!("#/$defs/a"),
            json!("#/$defs/b"),
            json!("#x"),
            json!("http://x/y"),
            json!("^a+$"),
            json!(["a", "b"]),
            json!(1),
            json!(0.5),
            json!(-3),
            json!(true),
            json!(false),
            json!({}),
        ]);
        word.prop_recursive(5, 64, 5, |inner| {
            let keyword = prop::sample::select(vec![
                "type", "properties", "items", "prefixItems", "required", "additionalProperties", "anyOf", "allOf",
                "oneOf", "not", "if", "then", "else", "$ref", "$defs", "$anchor", "$id", "$dynamicRef",
                "$dynamicAnchor", "enum", "const", "minimum", "maximum", "multipleOf", "minLength", "maxItems",
                "pattern", "patternProperties", "propertyNames", "contains", "uniqueItems", "dependentRequired",
                "unevaluatedProperties", "unevaluatedItems", "dependentSchemas", "format", "a", "b",
            ]);
            prop_oneof![
                3 => prop::collection::btree_map(keyword, inner.clone(), 1..5).prop_map(|members| json!(members)),
                1 => prop::collection::vec(inner, 1..3).prop_map(Value::from),
            ]
        })
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 2_000, ..ProptestConfig::default() })]

        // req: BR-12
        #[test]
        fn never_panics(schema in schema(), value in value()) {
            match compile(&schema.to_string()) {
                Ok(schema) => drop(schema.check(&raw(&value.to_string()))),
                Err(error) => prop_assert_ne!(error, SchemaError::Panicked),
            }
        }

        // req: BR-04
        #[test]
        fn agrees_with_unmetered_validator(schema in schema(), value in value()) {
            let plain = jsonschema::options().offline().should_validate_formats(false).build(&schema);
            if let (Ok(ours), Ok(plain)) = (compile(&schema.to_string()), plain) {
                match ours.check(&raw(&value.to_string())) {
                    Validation::Valid => prop_assert!(plain.is_valid(&value)),
                    Validation::Violations(found) => {
                        prop_assert!(!plain.is_valid(&value) && !found.is_empty());
                        prop_assert!(found.iter().all(|v| v.message.chars().count() <= 200));
                    }
                    Validation::Unchecked { .. } => {}
                }
            }
        }
    }
}
