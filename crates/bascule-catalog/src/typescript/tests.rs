//! Small schemas and their types. The types of real catalogs are in `tests/typescript.rs`.

use super::translate::translate_within;
use super::*;
use crate::tool::tests::tool;

/// Compares the one-line type of a schema.
fn check(schema: &str, expected: &str) {
    assert_eq!(inline(&translate_text(schema), "T"), expected, "{schema}");
}

/// Compares the full type of a schema, with comments.
fn check_full(schema: &str, expected: &str) {
    let document = translate_text(schema);
    let renderer = Renderer::full(&document, "T");
    let mut text = renderer.write_type(&document.root, "", 0);
    for definition in &document.definitions {
        text.push_str(&format!("\nT{} = {}", definition.name, renderer.write_type(&definition.value, "", 0)));
    }
    assert_eq!(text, expected, "{schema}");
}

// req: CM-08
#[test]
fn plain_types() {
    check(r#"{"type":"string"}"#, "string");
    check(r#"{"type":"integer"}"#, "number");
    check(r#"{"type":["string","null"]}"#, "string | null");
    // JSON Schema has no `nullable`: the validator refuses `null`.
    check(r#"{"type":"string","nullable":true}"#, "string");
    check(r#"{"type":"array","items":{"type":["string","number"]}}"#, "(string | number)[]");
    check("true", "unknown");
    check("false", "never");
    check("{}", "unknown");
}

// req: CM-08
#[test]
fn objects_keep_order_and_optional_properties() {
    check(
        r#"{"type":"object","properties":{"z":{"type":"string"},"a":{"type":"number"}},"required":["z"]}"#,
        "{ z: string; a?: number }",
    );
    check(r#"{"type":"object","additionalProperties":{"type":"number"}}"#, "{ [key: string]: number }");
    check(r#"{"type":"object","additionalProperties":false}"#, "{ [key: string]: never }");
    check(r#"{"type":"object","required":["a"]}"#, "{ a: unknown }");
    check(
        r#"{"properties":{"a":{"type":"string"}},"additionalProperties":true}"#,
        "{ a?: string; [key: string]: unknown }",
    );
}

// req: CM-08
#[test]
fn enumerations_and_constants() {
    check(r#"{"enum":["a",1,null,true,["x"],{"k":2}]}"#, r#""a" | 1 | null | true | ["x"] | { k: 2 }"#);
    check(r#"{"type":"string","enum":["a",1]}"#, r#""a""#);
    check(r#"{"enum":[true,false]}"#, "boolean");
    check(r#"{"const":"a","enum":["a","b"]}"#, r#""a""#);
    check(r#"{"enum":[]}"#, "never");
}

// req: CM-08
#[test]
fn combinations_are_merged() {
    let object = |name: &str| format!(r#"{{"type":"object","properties":{{"{name}":{{"type":"string"}}}}}}"#);
    check(&format!(r#"{{"allOf":[{},{}]}}"#, object("a"), object("b")), "{ a?: string; b?: string }");
    check(
        r#"{"type":"object","properties":{"a":{"type":"string"},"b":{"type":"number"}},"anyOf":[{"required":["a"]},{"required":["b"]}]}"#,
        "{ a: string; b?: number } | { a?: string; b: number }",
    );
    check(r#"{"anyOf":[{"type":"string"},{"type":"string","format":"uri"}]}"#, "string");
    check(r#"{"allOf":[{"type":"string"},{"type":"number"}]}"#, "never");
}

// req: CM-08
#[test]
fn references_are_combined_with_other_parts() {
    let defs = r##""$defs":{"A":{"type":"object","properties":{"a":{"type":"string"}},"required":["a"]},
        "B":{"type":"object","properties":{"b":{"type":"number"}}},
        "List":{"type":"array","items":{"type":"string"}},
        "Many":{"enum":["a","b","c","d","e","f","g","h","i"]},
        "Outer":{"type":"object","properties":{"in":{"$ref":"#/$defs/A"}}},
        "Node":{"type":"object","properties":{"kids":{"type":"array","items":{"$ref":"#/$defs/Node"}}}},
        "Other":{"type":"object","properties":{"kids":{"type":"array","items":{"$ref":"#/$defs/Other"}},"n":{}}}}"##;
    let check = |schema: &str, expected: &str| check(&format!("{{{schema},{defs}}}"), expected);
    check(r##""allOf":[{"$ref":"#/$defs/A"},{"$ref":"#/$defs/B"}]"##, "{ a: string; b?: number }");
    check(
        r##""allOf":[{"$ref":"#/$defs/A"},{"properties":{"x":{"type":"null"}}}]"##,
        "{ a: string; x?: null }",
    );
    check(r##""$ref":"#/$defs/A","properties":{"x":{"type":"null"}}"##, "{ a: string; x?: null }");
    check(r##""type":"array","$ref":"#/$defs/List""##, "string[]");
    check(r##""type":"object","allOf":[{"$ref":"#/$defs/A"}]"##, "{ a: string }");
    check(
        r##""type":"string","allOf":[{"$ref":"#/$defs/Many"}]"##,
        r#"("a" | "b" | "c" | "d" | "e" | "f" | "g" | "h" | "i")"#,
    );
    check(r##""type":"string","$ref":"#/$defs/A""##, "never");
    check(
        r##""allOf":[{"$ref":"#/$defs/Outer"},{"properties":{"in":{"properties":{"c":{"type":"number"}}}}}]"##,
        "{ in?: { a: string; c?: number } }",
    );
    check(
        r##""allOf":[{"$ref":"#/$defs/Node"},{"properties":{"name":{"type":"string"}}}]"##,
        "{ kids?: unknown[]; name?: string }",
    );
    check(
        r##""allOf":[{"$ref":"#/$defs/Node"},{"$ref":"#/$defs/Other"}]"##,
        "{ kids?: unknown[]; n?: unknown }",
    );
}

// req: CM-08
#[test]
fn recursive_definition_keeps_its_name_beside_its_kind() {
    let node = r##""$defs":{"Node":{"type":"object","properties":{"kids":{"type":"array","items":{"type":"object","$ref":"#/$defs/Node"}}}}}"##;
    check_full(
        &format!(r##"{{"properties":{{"root":{{"type":"object","$ref":"#/$defs/Node"}}}},{node}}}"##),
        "{\n  root?: TNode;\n}\nTNode = {\n  kids?: TNode[];\n}",
    );
}

// req: CM-08
#[test]
fn unevaluated_properties_close_the_whole_combination() {
    let closed = |rest: &str| {
        format!(
            r#"{{"type":"object","properties":{{"a":{{"type":"string"}}}},{rest},"unevaluatedProperties":false}}"#
        )
    };
    check(
        &closed(r#""allOf":[{"properties":{"b":{"type":"number"}},"required":["b"]}]"#),
        "{ a?: string; b: number }",
    );
    check(
        &closed(r#""anyOf":[{"properties":{"b":{"type":"number"}},"required":["b"]},{"required":["a"]}]"#),
        "{ a?: string; b: number } | { a: string }",
    );
    check(&closed(r#""$defs":{}"#), "{ a?: string }");
    check(
        r#"{"type":"object","allOf":[{"type":"object"}],"unevaluatedProperties":false}"#,
        "{ [key: string]: never }",
    );
    check(
        r#"{"type":"object","allOf":[{"type":"object"}],"unevaluatedProperties":{"type":"number"}}"#,
        "{ [key: string]: number }",
    );
    // `if` may name properties.
    let inexpressible = closed(r#""allOf":[{"if":{},"then":{"properties":{"b":{"type":"number"}}}}]"#);
    let combined = format!(r#"{{"allOf":[{inexpressible},{{"properties":{{"b":{{}}}},"required":["b"]}}]}}"#);
    check(&combined, "{ a?: string; b: unknown }");
}

// req: CM-08
#[test]
fn closed_objects_refuse_properties_of_others() {
    check(
        r#"{"allOf":[{"type":"object","properties":{"a":{"type":"string"}},"additionalProperties":false},
                     {"type":"object","properties":{"b":{"type":"string"}}}]}"#,
        "{ a?: string }",
    );
}

// req: CM-08
#[test]
fn tuples() {
    check(
        r#"{"type":"array","prefixItems":[{"type":"string"},{"type":"number"}],"minItems":1,"items":false}"#,
        "[string, number?]",
    );
    check(r#"{"type":"array","items":[{"type":"string"}],"minItems":1}"#, "[string, ...unknown[]]");
    check(r#"{"type":"array","prefixItems":[{"type":"string"}],"maxItems":1}"#, "[string?]");
}

// req: CM-08
#[test]
fn references_are_named_and_may_be_recursive() {
    check_full(
        r##"{"type":"object","properties":{"root":{"$ref":"#/$defs/tree-node"}},"required":["root"],
             "$defs":{"tree-node":{"type":"object","properties":{"kids":{"type":"array","items":{"$ref":"#/$defs/tree-node"}}}}}}"##,
        "{\n  root: TTreeNode;\n}\nTTreeNode = {\n  kids?: TTreeNode[];\n}",
    );
    check(r##"{"$ref":"#/definitions/a%20b","definitions":{"a b":{"type":"string"}}}"##, "string");
    check(
        r##"{"properties":{"a":{"$ref":"#named"}},"$defs":{"x":{"$anchor":"named","type":"number"}}}"##,
        "{ a?: number }",
    );
    check(r##"{"$ref":"#"}"##, "unknown");
}

// req: CM-08
#[test]
fn definitions_that_are_only_names_of_each_other_are_unknown() {
    let reason = "unknown /* the definition refers only to itself */";
    check_full(r##"{"$ref":"#"}"##, &format!("TTool\nTTool = {reason}"));
    check_full(
        r##"{"properties":{"x":{"$ref":"#/$defs/a"}},"$defs":{"a":{"$ref":"#/$defs/b"},"b":{"$ref":"#/$defs/a"}}}"##,
        &format!("{{\n  x?: TA;\n}}\nTA = {reason}\nTB = TA"),
    );
    // In an object or an array, the definition says something.
    check_full(
        r##"{"properties":{"x":{"$ref":"#/$defs/a"}},"$defs":{"a":{"type":"array","items":{"$ref":"#/$defs/a"}}}}"##,
        "{\n  x?: TA;\n}\nTA = TA[]",
    );
}

// req: CM-08
#[test]
fn inexpressible_parts_are_unknown_with_a_reason() {
    check_full(
        r#"{"$ref":"https://example.com/x"}"#,
        "unknown /* `$ref` to `https://example.com/x` is not in the schema */",
    );
    check_full(r#"{"type":"string","not":{"const":"a"}}"#, "string /* further restricted by `not` */");
    check_full(r#"{"type":"colour"}"#, "unknown /* unknown type `colour` */");
    check_full(
        r#"{"type":"object","patternProperties":{"^x*/":{"type":"number"}},"additionalProperties":false}"#,
        "{\n  [key: string]: number /* keys match /^x*\\// */;\n}",
    );
    check_full("[1]", "unknown /* not a schema */");
}

// req: CM-08
#[test]
fn hostile_schemas_have_a_type() {
    let deep = format!("{}{}{}", r#"{"items":"#.repeat(500), "{}", "}".repeat(500));
    assert!(inline(&translate_text(&deep), "T").starts_with("unknown[][]"));
    let wide: String = (0..40).map(|_| r#"{"anyOf":[{"const":1},{"const":2},{"const":3}]},"#).collect();
    translate_text(&format!(r#"{{"allOf":[{wide}{{}}]}}"#));
    check(r##"{"allOf":[{"$ref":"#/allOf/1"},{"$ref":"#/allOf/0"}]}"##, "unknown");
    check(r#"{"type":"string","description":"\ud800"}"#, "string");
    check("", "unknown");
    let doubling: String = (0..60)
        .map(|n| format!(r##""d{n}":{{"type":"object","properties":{{"a":{{"$ref":"#/$defs/d{0}"}},"b":{{"$ref":"#/$defs/d{0}"}}}}}},"##, n + 1))
        .collect();
    let schema = format!(r##"{{"$ref":"#/$defs/d0","$defs":{{{doubling}"d60":{{"type":"null"}}}}}}"##);
    assert!(inline(&translate_text(&schema), "T").len() < 5_000);
}

/// Definitions that all refer to each other took time that grows with a power of their number.
// req: CM-08, BR-12
#[test]
fn definitions_that_refer_to_each_other_are_visited_once() {
    let references: Vec<String> = (0..40).map(|n| format!(r##"{{"$ref":"#/$defs/D{n}"}}"##)).collect();
    let any = format!(r#"{{"anyOf":[{}]}}"#, references.join(","));
    let definitions: Vec<String> = (0..40).map(|n| format!(r#""D{n}":{any}"#)).collect();
    let schema = format!(
        r##"{{"type":"object","anyOf":[{{"$ref":"#/$defs/D0"}}],"$defs":{{{}}}}}"##,
        definitions.join(",")
    );
    // Nothing is known of definitions that are only names of each other.
    assert!(translate_text(&schema).into_arguments().accepts_empty_object());
}

/// Schemas of which a part is copied or compared again and again.
fn laborious_schemas() -> Vec<String> {
    let object = |prefix: &str, last: &str| {
        let properties: Vec<String> = (0..300).map(|n| format!(r#""{prefix}{n}":1"#)).collect();
        format!(r#"{{"properties":{{{},"{last}":1}}}}"#, properties.join(","))
    };
    let any_of = |object: &dyn Fn(usize) -> String| {
        let members: Vec<String> = (0..16).map(object).collect();
        format!(r#"{{"anyOf":[{}]}}"#, members.join(","))
    };
    let (left, right) =
        (any_of(&|n| object(&format!("a{n}_"), "z")), any_of(&|n| object(&format!("b{n}_"), "z")));
    let alike = any_of(&|n| object("c", &format!("z{n}")));
    let times = |part: &str, count: usize| vec![part; count].join(",");
    let long = format!(r#"{{"const":"{}"}}"#, "x".repeat(100_000));
    let chain: Vec<String> = (1..60)
        .map(|n| format!(r##""D{n}":{{"allOf":[{{"properties":{{"l":{{"$ref":"#/$defs/D{}"}},"r":{{"$ref":"#/$defs/D{0}"}}}}}},{{"properties":{{"l":{{"properties":{{"x{n}":1}}}},"r":{{"properties":{{"y{n}":1}}}}}}}}]}}"##, n - 1))
        .collect();
    vec![
        format!(r#"{{"allOf":[{left},{right},{}]}}"#, times("1", 40_000)),
        format!(r#"{{"allOf":[{left},{right},{}]}}"#, times(r#"{"properties":{}}"#, 8_000)),
        format!(r#"{{"allOf":[{alike},{alike},{}]}}"#, times("{}", 10_000)),
        format!(r#"{{"anyOf":[{}]}}"#, times(&object("c", "z"), 60)),
        format!(r##"{{"allOf":[{}],"$defs":{{"a":{long}}}}}"##, times(r##"{"$ref":"#/$defs/a"}"##, 5_000)),
        format!(
            r#"{{"type":[{}],{}}}"#,
            times(r#""object""#, 10_000),
            &object("c", "z")[1..object("c", "z").len() - 1]
        ),
        format!(
            r##"{{"$ref":"#/$defs/D59","$defs":{{"D0":{{"properties":{{"p":1}}}},{}}}}}"##,
            chain.join(",")
        ),
    ]
}

// req: CM-08, BR-12
#[test]
fn work_of_a_translation_is_bounded() {
    for (index, schema) in laborious_schemas().into_iter().enumerate() {
        assert!(schema.len() < 256 << 10, "{index}: {}", schema.len());
        let work = work::Work::default();
        let document = translate_within(&schema, &work);
        let (spent, refused) = work.counts();
        // What comes after the bound is asked for once a part.
        assert!(spent <= work::MAX_WORK && refused < schema.len(), "{index}: {spent}, {refused}");
        assert!(inline(&document, "T").len() < 5_000, "{index}");
        let parts: usize = document.definitions.iter().map(|definition| definition.value.weight()).sum();
        assert!(parts + document.root.weight() < 2 * work::MAX_WORK, "{index}: {parts}");
    }
}

// req: CM-08, BR-12
#[test]
fn type_that_is_too_much_work_is_unknown() {
    let schema = &laborious_schemas()[0];
    let document =
        translate_text(&format!(r#"{{"properties":{{"big":{schema},"after":{{"type":"string"}}}}}}"#));
    let text = Renderer::full(&document, "T").write_type(&document.root, "", 0);
    assert!(text.contains("big?: unknown /* ") && text.contains("the schema is too complex"), "{text}");
}

// req: CM-08, BR-12
#[test]
fn deep_definitions_are_not_combined() {
    let nested = |inner: &str| format!("{}{inner}{}", r#"{"properties":{"p":"#.repeat(40), "}}".repeat(40));
    let chain: Vec<String> = (1..40)
        .map(|n| {
            nested(&format!(r##"{{"allOf":[{{"$ref":"#/$defs/D{}"}},{{"properties":{{"x":1}}}}]}}"##, n - 1))
        })
        .enumerate()
        .map(|(n, schema)| format!(r#""D{}":{schema}"#, n + 1))
        .collect();
    let first = nested("{}");
    let schema = format!(
        r##"{{"properties":{{"a":{{"$ref":"#/$defs/D39"}}}},"$defs":{{"D0":{first},{}}}}}"##,
        chain.join(",")
    );
    let document = translate_text(&schema);
    assert!(document.definitions.iter().all(|definition| definition.value.depth() < 300));
}

// req: CM-08, BR-12
#[test]
fn long_declaration_is_cut() {
    let lines = "\\n".repeat(2_000);
    let properties: Vec<String> =
        (0..60).map(|n| format!(r#""p{n}":{{"description":"x{lines}x"}}"#)).collect();
    let inner = format!(r#"{{"properties":{{{}}}}}"#, properties.join(","));
    let deep = format!("{}{inner}{}", r#"{"properties":{"p":"#.repeat(20), "}}".repeat(20));
    let tool = tool(&format!(r#"{{"name":"t","inputSchema":{deep}}}"#));
    let declared = DeclaredTool { name: "t".into(), tool: &tool };
    let declared = declarations(&[DeclaredServer { name: "s".into(), tools: vec![declared] }]);
    assert!(
        declared.contains("type TArgs = unknown /* too long */;"),
        "{}",
        &declared[..declared.len().min(500)]
    );
    assert!(tool.signature("t").len() < 5_000);
}

// req: CM-08, BR-12
#[test]
fn wide_schemas_are_cut() {
    let properties: Vec<String> = (0..5_000).map(|n| format!(r#""p{n}":{{"type":"string"}}"#)).collect();
    let schema = format!(r#"{{"additionalProperties":false,"properties":{{{}}}}}"#, properties.join(","));
    let document = translate_text(&schema);
    let [types::Alternative::Object(object)] = &document.root.alternatives[..] else { panic!("no object") };
    assert_eq!(object.properties.len(), 2_000);
    assert!(matches!(object.rest, types::Rest::Unstated));
    let constants: Vec<String> = (0..5_000).map(|n| format!(r#"{{"const":{n}}}"#)).collect();
    check(&format!(r#"{{"anyOf":[{}]}}"#, constants.join(",")), "unknown");
    let anchors: Vec<String> = (0..5_000).map(|n| format!(r##"{{"$ref":"#a{n}"}}"##)).collect();
    check(&format!(r#"{{"allOf":[{}]}}"#, anchors.join(",")), "unknown");
    check(&format!(r#"{{"type":"string","description":"{}"}}"#, "x".repeat(300_000)), "unknown");
}

// req: CM-09
#[test]
fn names_and_comments_cannot_break_out() {
    check(
        r#"{"properties":{"a-b":{},"delete":{},"\"; }":{},"__proto__":{}}}"#,
        r#"{ "a-b"?: unknown; delete?: unknown; "\"; }"?: unknown; __proto__?: unknown }"#,
    );
    check_full(
        r#"{"properties":{"a":{"type":"string","description":"ends */ here\nand // there\u2028x","default":5,"format":"uri"}}}"#,
        "{\n  /**\n   * ends *\\/ here\n   * and // there x (format: uri) (default: 5)\n   */\n  a?: string;\n}",
    );
}

// req: CM-15
#[test]
fn observed_result_is_marked() {
    let tool = tool(r#"{"name":"list","inputSchema":{"type":"object"}}"#);
    let look = |answer: &str| tool.observed().look(crate::ResultData::Json(answer));
    assert!(tool.signature("mcp.s.list").ends_with("Promise<unknown>"));
    look(r#"[{"id":1,"mail":null}]"#);
    look(r#"[{"id":2}]"#);
    assert_eq!(
        tool.signature("mcp.s.list").split_once("): ").unwrap().1,
        "Promise</* Observed result, not declared by the server. */ { id: number; mail?: null }[]>"
    );
    let declared = DeclaredTool { name: "list".into(), tool: &tool };
    let declared = declarations(&[DeclaredServer { name: "s".into(), tools: vec![declared] }]);
    let expected = "  /** Observed result, not declared by the server. */\n  type ListResult = {\n    id: number;\n    mail?: null;\n  }[];\n";
    assert!(declared.contains(expected), "{declared}");
}

// req: CM-15
#[test]
fn long_observed_result_leaves_out_the_deepest_levels() {
    let tool = tool(r#"{"name":"list"}"#);
    let name = |n: usize| format!("{}{}", char::from(b'a' + (n % 26) as u8), "fieldname".repeat(1 + n / 26));
    let fields =
        (0..60).map(|n| (name(n), if n % 2 == 0 { serde_json::json!(1) } else { serde_json::json!("t") }));
    let answer = serde_json::json!({ "rows": [fields.collect::<serde_json::Value>()], "total": 1 });
    tool.observed().look(crate::ResultData::Json(&answer.to_string()));
    let signature = tool.signature("t");
    assert!(signature.ends_with("{ rows: unknown[]; total: number }>"), "{signature}");
}

// req: CM-05
#[test]
fn call_signature_is_short() {
    let schema = r#"{"name":"t","inputSchema":{"properties":{"b":{"type":"number"},"a":{"type":"string"}},"required":["a"]}}"#;
    assert_eq!(tool(schema).call_signature("mcp.s.t"), "mcp.s.t(args: { b?: number; a: string })");
    let long: Vec<String> =
        (0..200).map(|n| format!(r#""name_{n}":{{"enum":["one","two","three"]}}"#)).collect();
    let long = format!(
        r#"{{"name":"t","inputSchema":{{"properties":{{{}}},"required":["name_9"]}}}}"#,
        long.join(",")
    );
    let signature = tool(&long).call_signature("t");
    assert!(signature.starts_with("t(args: { name_9: …; name_0?: …; "), "{signature}");
    assert!(signature.len() < 1_000 && signature.ends_with("… })"), "{signature}");
}
