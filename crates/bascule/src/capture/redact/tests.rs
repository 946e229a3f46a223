//! Tests of redaction, with generated secrets and schemas.

use proptest::prelude::*;
use serde_json::json;

use super::*;

fn redact(value: &Value, schema: Option<&Value>) -> String {
    Redactor::new(&["*ssn*".into()]).redact_json(&value.to_string(), schema)
}

#[track_caller]
fn check(text: &str, expected: &str) {
    let redacted: Value = serde_json::from_str(&redact(&json!({ "text": text }), None)).unwrap();
    assert_eq!(redacted["text"], expected, "{text}");
}

// req: TR-01
#[test]
fn hides_secrets_in_texts() {
    check("Authorization: Bearer abcdef.ghi and more", "Authorization: Bearer *** and more");
    check("curl -H 'X-Api-Key: 1234' https://u:pw@host/x", "curl -H 'X-Api-Key: ***' https://***@host/x");
    check("?token=abc&page=2", "?token=***&page=2");
    check("export AWS_SECRET_ACCESS_KEY=abc", "export AWS_SECRET_ACCESS_KEY=***");
    check("password = hunter2", "password = ***");
    check("the key is ghp_0123456789abcdefghij", "the key is ***");
    check("eyJhbGciOi.eyJzdWIi.c2ln", "***");
    check("-----BEGIN RSA PRIVATE KEY-----\nabc\n-----END RSA PRIVATE KEY-----\nx", "***\nx");
    check(r#"{"password":"hunter2","n":1}"#, r#"{"n":1,"password":"***"}"#);
    check("{'password': 'hunter2'}", "{'password': '***'}");
}

// req: TR-01
#[test]
fn leaves_plain_texts() {
    for text in ["the 3 files at 10:30, a=b; https://host/x?y=z", "", "naïve: ünïcödé → ok", "C:\\x"] {
        check(text, text);
    }
}

// req: TR-01
#[test]
fn finds_the_schemas_of_items_once_for_an_array() {
    let alternatives: Vec<Value> = (0..3_000).map(|n| json!({ "const": n })).collect();
    let schema = json!({ "properties": { "a": { "items": { "anyOf": alternatives } } } });
    let value = json!({ "a": vec![1; 60_000] });
    assert_eq!(redact(&value, Some(&schema)), value.to_string());
}

// req: TR-01
#[test]
fn does_not_capture_a_value_that_takes_too_many_steps() {
    let alternatives: Vec<Value> = (0..3_000).map(|n| json!({ "const": n })).collect();
    let schema = json!({ "items": { "anyOf": alternatives } });
    let value = json!(vec![json!({ "b": "x" }); 20_000]);
    assert_eq!(redact(&value, Some(&schema)), "\"(not captured: too complex)\"");
}

fn secret() -> impl Strategy<Value = String> {
    "[A-Za-z0-9+/_.~-]{8,40}".prop_filter("no word of the rest", |text| !text.contains("***"))
}

fn secret_name() -> impl Strategy<Value = String> {
    prop_oneof![
        Just("password"),
        Just("token"),
        Just("apiKey"),
        Just("api_key"),
        Just("Authorization"),
        Just("client-secret"),
        Just("accessToken"),
        Just("PRIVATE_KEY"),
        Just("db.passwd"),
        Just("Set-Cookie"),
        Just("user_ssn_1"),
    ]
    .prop_map(str::to_owned)
}

/// Any value with one place for another value in it.
fn around() -> impl Strategy<Value = Vec<u8>> {
    proptest::collection::vec(0..3_u8, 0..6)
}

fn wrap(mut value: Value, around: &[u8]) -> Value {
    for kind in around {
        value = match kind {
            0 => json!({ "a": value, "b": 1 }),
            1 => json!([1, value, "x"]),
            _ => Value::String(value.to_string()),
        };
    }
    value
}

proptest! {
    // req: TR-01
    #[test]
    fn value_of_a_secret_name_never_appears(secret in secret(), name in secret_name(), around in around()) {
        for value in [json!(secret), json!([secret]), json!({ "x": secret })] {
            let redacted = redact(&wrap(json!({ name.clone(): value }), &around), None);
            prop_assert!(!redacted.contains(&secret), "{redacted}");
        }
    }

    // req: TR-01
    #[test]
    fn value_of_a_secret_schema_never_appears(secret in secret(), levels in proptest::collection::vec(0..8_u8, 0..5), by_reference: bool) {
        let own = json!({ "type": "string", "format": "password" });
        let (mut schema, mut value) = match by_reference {
            true => (json!({ "anyOf": [{ "$ref": "#/$defs/key" }, { "type": "null" }] }), json!(secret)),
            false => (own.clone(), json!(secret)),
        };
        for level in levels {
            (schema, value) = match level {
                0 => (json!({ "properties": { "plain": schema } }), json!({ "plain": value })),
                1 => (json!({ "additionalProperties": schema }), json!({ "plain": value })),
                2 => (json!({ "patternProperties": { "^p": schema } }), json!({ "plain": value })),
                3 => (json!({ "type": "array", "items": schema }), json!([value])),
                4 => (json!({ "prefixItems": [{}, schema], "items": {} }), json!([1, value, 2])),
                5 => (json!({ "items": [{}, schema] }), json!([1, value, 2])),
                6 => (json!({ "items": [{}], "additionalItems": schema }), json!([1, value])),
                _ => (json!({ "prefixItems": [{}], "items": schema }), json!([1, value])),
            };
        }
        schema["$defs"] = json!({ "key": own });
        let redacted = redact(&value, Some(&schema));
        prop_assert!(!redacted.contains(&secret), "{redacted}");
        let result = json!({ "content": [], "structuredContent": value });
        prop_assert!(!redact(&result, Some(&schema)).contains(&secret));
    }

    // req: TR-01
    #[test]
    fn secret_behind_its_name_in_a_text_never_appears(
        secret in "[A-Za-z0-9]{8,40}", name in secret_name(), before in "[a-z ,]{0,20}", form in 0..6_usize,
    ) {
        let text = match form {
            0 => format!("{before} {name}={secret}"),
            1 => format!("{before} {name}: {secret}, x"),
            2 => format!("{before} \"{name}\" : \"{secret}\""),
            3 => format!("{before}\n{name}: Bearer {secret}\nx"),
            4 => format!("https://h/p?{name}={secret}&x=1"),
            _ => format!("{before} '{name}'='{secret}'"),
        };
        let redacted = redact(&json!({ "text": text }), None);
        prop_assert!(!redacted.contains(&secret), "{text} {redacted}");
    }

    // req: TR-01
    #[test]
    fn values_without_secrets_stay(numbers in proptest::collection::vec(any::<i64>(), 0..9), word in "[a-z]{0,9} [a-z]{0,9}") {
        prop_assume!(!["bearer", "token", "secret", "cookie"].iter().any(|name| word.contains(name)));
        let value = json!({ "list": numbers, "nested": { "word": word, "flag": true, "none": null } });
        prop_assert_eq!(redact(&value, None), value.to_string());
    }
}
