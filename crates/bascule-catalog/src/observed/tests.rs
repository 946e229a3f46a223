//! The bounds and laws of observed types, and the events of their changes.

use proptest::prelude::*;
use serde_json::json;

use super::shape::{MAX_PROPERTIES, ObjectShape};
use super::*;

fn learned(answers: &[&str]) -> ObservedResult {
    let observed = ObservedResult::default();
    for answer in answers {
        observed.look(ResultData::Json(answer));
    }
    observed
}

fn check(answers: &[&str], expected: &Value) {
    assert_eq!(learned(answers).closed_schema().as_ref(), Some(expected));
}

// req: CM-15
#[test]
fn learns_kinds_and_names_without_values() {
    check(
        &[r#"[{"id":1,"mail":"ada@example.org"},{"id":2,"mail":null,"tags":["s3cret"]}]"#],
        &json!({ "type": "array", "items": {
            "type": "object",
            "properties": {
                "id": { "type": "number" },
                "mail": { "type": ["string", "null"] },
                "tags": { "type": "array", "items": { "type": "string" } },
            },
            "required": ["id", "mail"],
        }}),
    );
    let schema = learned(&[r#"{"token":"s3cret","n":42}"#]).schema().unwrap().to_string();
    assert!(!schema.contains("s3cret") && !schema.contains("42"), "{schema}");
}

// req: CM-15
#[test]
fn property_missing_in_one_answer_is_optional() {
    let names = json!({ "a": { "type": "number" }, "b": { "type": "boolean" } });
    check(
        &[r#"{"a":1,"b":true}"#, r#"{"a":2}"#],
        &json!({ "type": "object", "properties": names, "required": ["a"] }),
    );
}

// req: CM-15
#[test]
fn keeps_no_names_that_are_data() {
    let number = json!({ "type": "number" });
    check(
        &[r#"{"total":3,"2026-01-31":1,"ada@example.org":2}"#],
        &json!({ "type": "object", "properties": { "total": number }, "required": ["total"], "additionalProperties": number }),
    );
    let entries: Vec<String> =
        ('a'..='z').map(|letter| format!(r#""{letter}da":{{"age":1}}"#)).take(10).collect();
    let person = json!({ "type": "object", "properties": { "age": number }, "required": ["age"] });
    check(
        &[&format!("{{{}}}", entries.join(","))],
        &json!({ "type": "object", "additionalProperties": person }),
    );
}

/// Each answer has one name, so that only all of them together show that the names are data.
// req: CM-15
#[test]
fn names_that_change_from_answer_to_answer_are_data() {
    const NAMES: [&str; 10] =
        ["alice", "bob", "carol", "dave", "erin", "frank", "grace", "heidi", "ivan", "judy"];
    let schema_of = |value: &dyn Fn(usize) -> &'static str, last: &[&str]| {
        let answers: Vec<String> =
            NAMES.iter().enumerate().map(|(n, name)| format!(r#"{{"{name}":{}}}"#, value(n))).collect();
        let answers: Vec<&str> = answers.iter().map(String::as_str).chain(last.iter().copied()).collect();
        let observed = learned(&answers);
        let stored = serde_json::to_string(&observed.to_stored().unwrap()).unwrap();
        assert!(NAMES.iter().all(|name| !stored.contains(name)), "{stored}");
        let types = observed.types().unwrap();
        assert!(NAMES.iter().all(|name| !types.compact().contains(name)), "{}", types.compact());
        observed.schema().unwrap()
    };
    let number = json!({ "type": "number" });
    assert_eq!(schema_of(&|_| "1", &[]), json!({ "type": "object", "additionalProperties": number }));
    let of_people = |n: usize| if n.is_multiple_of(2) { r#"{"age":1}"# } else { r#"{"age":1,"mail":"x"}"# };
    let person = json!({
        "type": "object", "properties": { "age": number, "mail": { "type": "string" } }, "required": ["age"],
    });
    assert_eq!(schema_of(&of_people, &[]), json!({ "type": "object", "additionalProperties": person }));
    let failed = schema_of(&of_people, &[r#"{"error":"nobody"}"#]);
    assert_eq!(failed["additionalProperties"]["type"], json!(["object", "string"]), "{failed}");
    let mixed = json!({ "type": "object", "additionalProperties": { "type": ["number", "string"] } });
    for odd in [r#"{"error":"nobody"}"#, r#"{"error":"nobody","code":404}"#] {
        assert_eq!(schema_of(&|_| "1", &[odd]), mixed);
    }
    let with_null = |n: usize| if n == 3 { "null" } else { "1" };
    let failed = schema_of(&with_null, &[r#"{"error":{"code":1}}"#]);
    assert!(failed["properties"].is_null(), "{failed}");
    let list = format!("[{}]", NAMES.map(|name| format!(r#"{{"{name}":[1]}}"#)).join(","));
    assert!(!learned(&[&list]).schema().unwrap().to_string().contains("alice"));
}

// req: CM-15
#[test]
fn drift_of_a_map_names_no_property() {
    let names: Vec<String> = ('a'..='j').map(|letter| format!(r#"{{"{letter}da":1}}"#)).collect();
    let all: Vec<&str> = names.iter().cycle().take(40).map(String::as_str).collect();
    let look = learned(&all).look(ResultData::Json(r#"{"error":"nobody","code":404}"#));
    assert_eq!(look.drift, ["/*"]);
    // Names that are hidden only while all values are alike stay hidden in the report of the first one that is not.
    let all: Vec<String> = ('a'..='j').map(|letter| format!(r#"{{"{letter}da":1,"zero":"x"}}"#)).collect();
    let mut all: Vec<&str> = all.iter().cycle().take(40).map(String::as_str).collect();
    all.push("{}");
    let look = learned(&all).look(ResultData::Json(r#"{"zero":1}"#));
    assert!(look.drift.iter().all(|pointer| !pointer.contains("da")), "{look:?}");
}

// req: CM-15
#[test]
fn different_answers_of_one_tool_keep_their_names() {
    let answers = [
        r#"{"id":1,"title":"t","body":"b","author":"a","labels":[],"url":"u","state":"s","milestone":null,"draft":true}"#,
        r#"{"error":"not found","code":404}"#,
    ];
    let properties = learned(&answers).schema().unwrap()["properties"].as_object().unwrap().len();
    assert_eq!(properties, 11);
}

/// Every query has columns of its own.
// req: CM-15
#[test]
fn rows_of_several_queries_become_maps() {
    let queries = [
        r#"[{"name":"x","sku":"s","stock":2}]"#,
        r#"[{"id":1}]"#,
        r#"[{"name":"x","total":null},{"name":"y","total":3}]"#,
    ];
    let observed = learned(&queries[..2]);
    assert_eq!(
        observed.types().unwrap().compact(),
        "{ id?: number; name?: string; sku?: string; stock?: number; [key: string]: unknown }[]"
    );
    let look = observed.look(ResultData::Json(queries[2]));
    assert!(look.has_news);
    assert_eq!(observed.types().unwrap().compact(), "{ [key: string]: number | string | null }[]");
    let stored = observed.to_stored().unwrap();
    assert!(!json!(stored).to_string().contains("sku"), "{stored:?}");
    assert_eq!(observed.look(ResultData::Json(r#"[{"price":2}]"#)).drift, Vec::<String>::new());
}

/// The third set of names adds no name: only the number of sets makes the object a map.
// req: CM-15
#[test]
fn type_is_made_again_when_names_turn_out_to_be_data() {
    let observed = learned(&[r#"{"a":1,"b":2}"#, r#"{"c":1,"d":2}"#]);
    assert!(observed.types().unwrap().compact().contains("a?: number"));
    assert!(observed.look(ResultData::Json(r#"{"b":1,"c":2}"#)).has_news);
    assert_eq!(observed.types().unwrap().compact(), "{ [key: string]: number }");
}

// req: CM-15
#[test]
fn record_and_error_keep_their_names() {
    let record = r#"{"id":1,"title":"t","state":"open"}"#;
    for other in [r#"{"error":"not found","code":404}"#, r#"{"message":"gone"}"#] {
        let types = learned(&[record, other, record, other]).types().unwrap();
        assert!(
            types.compact().starts_with('{') && types.compact().contains("title?: string"),
            "{}",
            types.compact()
        );
    }
    // A name in all answers shows that names are no data.
    let answers = [record, r#"{"id":2,"title":"t"}"#, r#"{"id":3,"state":"x"}"#, r#"{"id":4,"url":"u"}"#];
    let text = learned(&answers).types().unwrap().compact().to_owned();
    assert!(text.contains("id: number") && !text.contains("[key"), "{text}");
}

/// What is shown as open is stored as it was seen: names that come later are learned.
// req: CM-15
#[test]
fn stored_type_is_not_open() {
    let observed = learned(&[r#"{"rows":[]}"#, r#"{"error":"e"}"#]);
    assert_eq!(observed.schema().unwrap()["additionalProperties"], true);
    let stored = observed.to_stored().unwrap();
    assert!(!json!(stored).to_string().contains("additionalProperties"), "{stored:?}");
    let again = ObservedResult::default();
    again.add_stored(&stored);
    assert!(again.look(ResultData::Json(r#"{"next":1}"#)).has_news);
    assert!(again.types().unwrap().compact().contains("next?: number"));
}

// req: CM-15
#[test]
fn object_with_many_names_becomes_a_map() {
    let answer = |prefix: &str, value: &str| {
        let letter = |n: usize| char::from(b'a' + (n % 26) as u8);
        let name = |n: usize| format!("{prefix}{}{}", letter(n), letter(n / 26));
        let entries =
            (0..60).map(|n| format!(r#""{}":{}"#, name(n), if n % 2 == 0 { value } else { "null" }));
        format!("{{{}}}", entries.collect::<Vec<_>>().join(","))
    };
    check(
        &[&answer("x", "1"), &answer("y", "\"t\"")],
        &json!({ "type": "object", "additionalProperties": { "type": ["number", "string", "null"] } }),
    );
}

// req: CM-15
#[test]
fn bounds_depth_and_size() {
    let deep = format!("{}1{}", r#"{"a":["#.repeat(30), "]}".repeat(30));
    let schema = learned(&[&deep]).schema().unwrap().to_string();
    assert!(schema.contains("\"items\":true") && schema.len() < 500, "{schema}");
    let arrays = format!("{}{}", "[".repeat(300), "]".repeat(300));
    assert!(learned(&[&arrays]).schema().unwrap().to_string().len() < 500);
    // Objects of 90 different names on three levels would have 729,000 nodes.
    let name =
        |n: usize| format!("{}{}", char::from(b'a' + (n % 26) as u8), char::from(b'a' + (n / 26) as u8));
    let object = |value: &dyn Fn(usize) -> Value| -> Value { (0..90).map(|n| (name(n), value(n))).collect() };
    let observed = ObservedResult::default();
    for outer in 0..90 {
        let leaf = object(&|n| if n % 2 == 0 { json!(1) } else { json!("t") });
        let inner = object(&|n| if n % 30 == outer % 30 { leaf.clone() } else { json!(n) });
        let answer = object(&|n| if n == outer { inner.clone() } else { json!(null) });
        observed.look(ResultData::Json(&answer.to_string()));
    }
    assert!(observed.schema().unwrap().to_string().len() < 500_000);
    assert!(observed.state().shape.depth < MAX_DEPTH);
}

// req: CM-15
#[test]
fn looks_more_rarely_while_answers_stay_the_same() {
    let observed = ObservedResult::default();
    let due = |calls: usize| {
        let looks = (0..calls).filter(|_| observed.is_look_due());
        looks.inspect(|_| drop(observed.look(ResultData::Json(r#"{"a":1}"#)))).count()
    };
    assert_eq!(due(16), 16);
    assert!(due(10_000) < 300);
    let looks = due(6_400);
    assert!((90..=110).contains(&looks), "{looks}");
}

// req: CM-15
#[test]
fn reports_drift_from_stable_type_once() {
    let observed = learned(&[r#"{"rows":[{"id":1}],"next":null}"#; 16]);
    let look = |answer: &str| observed.look(ResultData::Json(answer));
    let drifted = r#"{"rows":[{"id":"x","a/b":{"s3cret":1}},{"name":"t"}]}"#;
    assert_eq!(look(drifted).drift, Vec::<String>::new(), "sixteen answers are one short of a stable type");
    let observed = learned(&[r#"{"rows":[{"id":1}],"next":null}"#; 17]);
    let look = |answer: &str| observed.look(ResultData::Json(answer));
    let first = look(drifted);
    assert!(first.has_news);
    assert_eq!(first.drift, ["/next", "/rows/*/id", "/rows/*/name", "/rows/*/*"]);
    assert_eq!(look(drifted), Look::default());
}

// req: CM-15
#[test]
fn reports_drift_from_declared_schema_once_until_it_changes() {
    let observed = ObservedResult::default();
    let violations = |pointers: &[&str]| -> Vec<Violation> {
        pointers.iter().map(|pointer| Violation { pointer: (*pointer).into(), message: "m".into() }).collect()
    };
    let (first, other) = (violations(&["/rows/0/id", "/rows/7/id", "/by/2026-01-31"]), violations(&[""]));
    assert_eq!(observed.drift_from_declared(&first), ["/by/*", "/rows/*/id"]);
    assert!(observed.drift_from_declared(&first).is_empty());
    assert_eq!(observed.drift_from_declared(&other), [""]);
    assert_eq!(observed.drift_from_declared(&first).len(), 2);
}

// req: CM-15
#[test]
fn stored_type_is_taken_up_again() {
    let observed = learned(&[r#"{"a":[],"b":{"2026-01-01":1}}"#; 20]);
    let stored = observed.to_stored().unwrap();
    let text = serde_json::to_string(&stored).unwrap();
    let again = ObservedResult::default();
    again.add_stored(&serde_json::from_str(&text).unwrap());
    assert_eq!(again.to_stored(), Some(stored));
    assert_eq!(again.look(ResultData::Json(r#"{"a":[],"b":{"2026-01-01":1}}"#)), Look::default());
    assert_eq!(
        again.look(ResultData::Json(r#"{"a":[1],"b":{}}"#)).drift,
        Vec::<String>::new(),
        "items were unknown"
    );
    assert!(ObservedResult::default().to_stored().is_none());
}

// req: CM-15
#[test]
fn hostile_stored_types_are_bounded() {
    let mut deep = json!({ "type": "string" });
    for _ in 0..500 {
        deep = json!({ "type": "array", "items": deep });
    }
    for schema in [deep, json!(7), json!({ "type": 7 }), json!({ "type": ["object", "x"], "properties": 1 })]
    {
        let stored = StoredObservation { depth: usize::MAX, is_stable: true, schema };
        let observed = ObservedResult::default();
        observed.add_stored(&stored);
        assert!(observed.types().is_none_or(|types| types.compact().len() <= MAX_KEPT_BYTES));
    }
}

fn json_value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i32>().prop_map(Value::from),
        "[a-z]{0,3}".prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 40, 6, |inner| {
        let name = prop_oneof!["[a-d]", "[a-z]{2}", "[0-9]{2}"];
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::btree_map(name, inner, 0..6).prop_map(|map| map.into_iter().collect()),
        ]
    })
}

/// Shapes of generated values, of objects with many names, and of large objects that lose levels.
fn bounded_shape() -> impl Strategy<Value = BoundedShape> {
    let of_value = json_value().prop_map(|value| read_shape(&value.to_string()).unwrap());
    let wide = (0..150_usize, 0..80_usize).prop_map(|(first, count)| {
        let mut object = ObjectShape::default();
        (first..first + count).for_each(|n| object.add_own(&format!("n{n}"), Shape::scalar(Scalars::NUMBER)));
        object.note_alike();
        Shape::object(object)
    });
    let nested = (0..3_usize, 60..=MAX_PROPERTIES, 60..=MAX_PROPERTIES).prop_map(|(level, outer, inner)| {
        let object = |count: usize, value: &Shape| {
            let mut object = ObjectShape::default();
            (0..count).for_each(|n| object.add_own(&format!("n{n}"), value.clone()));
            Shape::object(object)
        };
        let shape = object(outer, &object(inner, &Shape::array(Shape::scalar(Scalars::STRING))));
        (0..level).fold(shape, |shape, _| Shape::array(shape))
    });
    // Objects of one to four of these names become maps when enough of them are joined.
    let sparse = (0..12_usize, 1..5_usize, 0..6_usize).prop_map(|(first, count, kind)| {
        let mut inner = ObjectShape::default();
        inner.add_own("inner", Shape::scalar(Scalars::NUMBER));
        let value = match kind {
            0 => Shape::scalar(Scalars::STRING),
            1 => Shape::object(ObjectShape::default()),
            2 => Shape::array(Shape::object(inner)),
            3 => Shape::object(inner),
            4 => Shape::scalar(Scalars::NULL),
            _ => Shape::scalar(Scalars::NUMBER),
        };
        let mut object = ObjectShape::default();
        (first..first + count).for_each(|n| object.add_own(&format!("n{n}"), value.clone()));
        object.note_alike();
        object.note_names();
        Shape::object(object)
    });
    let joined = prop::collection::vec(sparse.clone(), 1..8);
    let sparse =
        prop_oneof![sparse, joined.prop_map(|all| all.into_iter().fold(Shape::default(), Shape::join))];
    let shape = prop_oneof![6 => of_value, 2 => wide, 1 => nested, 4 => sparse];
    (shape, 1..=MAX_DEPTH + 1).prop_map(|(shape, depth)| BoundedShape::new(shape, depth))
}

fn joined(left: &BoundedShape, right: &BoundedShape) -> BoundedShape {
    left.clone().join(right.clone())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]

    // req: CM-15
    #[test]
    fn joining_is_commutative_associative_and_idempotent(
        a in bounded_shape(), b in bounded_shape(), c in bounded_shape(),
    ) {
        prop_assert_eq!(joined(&a, &b), joined(&b, &a));
        prop_assert_eq!(joined(&joined(&a, &b), &c), joined(&a, &joined(&b, &c)));
        prop_assert_eq!(joined(&a, &a), a.clone());
        prop_assert_eq!(joined(&joined(&a, &b), &a), joined(&a, &b));
        prop_assert_eq!(joined(&a, &BoundedShape::default()), a);
    }

    // req: CM-15
    #[test]
    fn stored_form_keeps_the_shape(a in bounded_shape()) {
        prop_assert!(from_schema(&to_schema(&a.shape)).describes_same(&a.shape.without_data_names()));
    }

    // req: CM-15
    #[test]
    fn answers_are_valid_by_the_learned_schema(answers in prop::collection::vec(json_value(), 1..6)) {
        let observed = ObservedResult::default();
        for answer in &answers {
            observed.look(ResultData::Json(&answer.to_string()));
        }
        let raw = |value: &Value| serde_json::value::to_raw_value(value).unwrap();
        let schema = crate::Schema::compile(&raw(&observed.closed_schema().unwrap())).unwrap();
        for answer in &answers {
            prop_assert_eq!(schema.check(&raw(answer)), crate::Validation::Valid);
        }
    }

    // req: CM-15
    #[test]
    fn keeps_no_text_of_values(words in prop::collection::vec("[A-Z]{6}", 1..5)) {
        let answer = json!({ "list": words, "first": words[0], "nested": { "word": words[0] } });
        let observed = learned(&[&answer.to_string()]);
        let kept = format!("{}{}", observed.schema().unwrap(), observed.types().unwrap().compact());
        prop_assert!(words.iter().all(|word| !kept.contains(word)));
    }
}
