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
    assert_eq!(learned(answers).schema().as_ref(), Some(expected));
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
        assert!(observed.types().is_none_or(|types| types.compact().len() <= MAX_COMPACT));
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
    let shape = prop_oneof![6 => of_value, 2 => wide, 1 => nested];
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
        prop_assert_eq!(from_schema(&to_schema(&a.shape)), a.shape);
    }

    // req: CM-15
    #[test]
    fn answers_are_valid_by_the_learned_schema(answers in prop::collection::vec(json_value(), 1..6)) {
        let observed = ObservedResult::default();
        for answer in &answers {
            observed.look(ResultData::Json(&answer.to_string()));
        }
        let raw = |value: &Value| serde_json::value::to_raw_value(value).unwrap();
        let schema = crate::Schema::compile(&raw(&observed.schema().unwrap())).unwrap();
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
