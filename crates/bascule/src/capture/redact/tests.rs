//! Tests of redaction, with generated secrets and schemas.

use proptest::prelude::*;
use serde_json::json;

use super::*;

fn redact(value: &Value, schema: Option<&Value>) -> String {
    redact_with(&value.to_string(), schema, &SecretForms::default())
}

fn redact_with(json: &str, schema: Option<&Value>, secrets: &SecretForms) -> String {
    let schema = schema.map(Value::to_string);
    Redactor { names: &["*ssn*".into()], secrets }.redact_json(json, schema.as_deref())
}

fn redact_message(text: &str) -> String {
    Redactor { names: &[], secrets: &SecretForms::default() }.redact_message(text)
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
fn hides_everyday_forms_of_secrets() {
    check("config/.env:3:DB_PASSWORD=hunter2secret", "config/.env:3:DB_PASSWORD=***");
    check("user:bob|password:hunter2", "user:bob|password:***");
    check("https://app/cb#access_token=hunter2", "https://app/cb#access_token=***");
    check("GITHUB_PAT=ghp_0123456789abcdefghij", "GITHUB_PAT=***");
    check("OPENAI_KEY=sk-proj-0123456789abcdef", "OPENAI_KEY=***");
    check("see https://x/ghp_0123456789abcdefghij.", "see https://x/***.");
    check("it was eyJhbGciOi.eyJzdWIi.c2ln.", "it was ***.");
    check("Authorization: ApiKey hunter2secret\nHost: x", "Authorization: ***\nHost: x");
    check("curl -H 'Authorization: ApiKey hunter2' https://x", "curl -H 'Authorization: ***' https://x");
    check("Cookie: a=\"1\"; sid=hunter2secret", "Cookie: ***");
    check("Set-Cookie: sid=hunter2; HttpOnly", "Set-Cookie: ***");
    check("password: \"two words\", user: bob", "password: \"***\", user: bob");
    check(r#"x {\"password\": \"two \\\"words\"} y"#, r#"x {\"password\": \"***\"} y"#);
    check("password = b'two words'", "password = b'***'");
    check("password: \"\"\"two words\"\"\"", "password: \"\"\"***\"\"\"");
    check("password='it''s two' x", "password='***' x");
    check("password=abc,hunter2secret", "password=***");
    check("login --password hunter2 --user bob", "login --password *** --user bob");
    check("login --password 'two words'", "login --password '***'");
    check("<password>two words</password><b>x</b>", "<password>***</password><b>x</b>");
    check("<token type=\"a\" value='hunter2'/>x", "<token ***/>x");
    check("pwd=hunter2 dbPwd: hunter2 OTP: 123456", "pwd=*** dbPwd: *** OTP: ***");
    check("jwt=abc auth=abc", "jwt=*** auth=***");
    check("Basic dXNlcjpodW50ZXIy", "Basic ***");
    check("password: \"never closed\nnext", "password: \"***\nnext");
    check("env['API_TOKEN'] = 'hunter2'", "env['API_TOKEN'] = '***'");
    check("DB_PASS=hunter2 smtp.pass: hunter2 --creds hunter2", "DB_PASS=*** smtp.pass: *** --creds ***");
    check(
        r#"12:00 INFO env=[{"name":"DB_PASSWORD","value":"hunter2"},{"name":"A","value":"b"}]"#,
        r#"12:00 INFO env=[{"name":"DB_PASSWORD","value":"***"},{"name":"A","value":"b"}]"#,
    );
    check("env:\n- name: DB_PASSWORD\n  value: hunter2\n", "env:\n- name: DB_PASSWORD\n  value: ***\n");
    check("postgres://bob:hun,ter;2@db/x", "postgres://***@db/x");
}

// req: TR-01
#[test]
fn hides_values_of_named_pairs_and_secrets_in_names() {
    for (value, expected) in [
        (
            json!({ "name": "DB_PASSWORD", "value": "hunter2" }),
            json!({ "name": "DB_PASSWORD", "value": "***" }),
        ),
        (json!({ "Key": "smtpPass", "Value": [7] }), json!({ "Key": "smtpPass", "Value": "***" })),
        (json!({ "name": "color", "value": "red" }), json!({ "name": "color", "value": "red" })),
        (
            json!({ "DB_PASS": "a", "pass": 1, "cred": "b", "passage": "c" }),
            json!({ "DB_PASS": "***", "pass": "***", "cred": "***", "passage": "c" }),
        ),
        (
            json!({ "ghp_0123456789abcdefghij": 1, "a": { "password=hunter2": 2 } }),
            json!({ "***": 1, "a": { "password=***": "***" } }),
        ),
    ] {
        assert_eq!(redact(&value, None), expected.to_string());
    }
}

// req: TR-01
#[test]
fn value_that_cannot_be_held_is_not_captured() {
    let schema = json!({ "properties": { "code": { "format": "password" } } });
    let deep = format!("{}{}", "[".repeat(200), "]".repeat(200));
    for odd in ["1e999", &deep] {
        let json = format!(r#"{{"code":"hunter2","x":{odd}}}"#);
        let redacted = redact_with(&json, Some(&schema), &SecretForms::default());
        assert_eq!(redacted, "\"(not captured: cannot be read)\"");
        // As a text within a value, and as one beside structured content.
        assert_eq!(redact(&json!({ "text": json }), None), r#"{"text":"***"}"#);
        let result = json!({ "content": [{ "type": "text", "text": json }] });
        assert_eq!(redact(&result, Some(&schema)), r#"{"content":[{"text":"***","type":"text"}]}"#);
    }
}

// req: TR-01
#[test]
fn value_whose_schema_cannot_be_held_is_not_captured() {
    let schema = r#"{"properties":{"code":{"format":"password"},"x":{"maximum":1e999}}}"#;
    let redactor = Redactor { names: &[], secrets: &SecretForms::default() };
    let redacted = redactor.redact_json(r#"{"code":"hunter2"}"#, Some(schema));
    assert_eq!(redacted, "\"(not captured: cannot be read)\"");
}

// req: TR-01
#[test]
fn lone_surrogate_leaves_names_and_schemas_readable() {
    let schema = json!({ "properties": { "code": { "format": "password" } } });
    let json = r#"{"code":"hunter2","apiKey":"hunter2","x":"\ud800 \ud83d\ude00"}"#;
    let expected = json!({ "apiKey": "***", "code": "***", "x": "\u{fffd} \u{1f600}" }).to_string();
    assert_eq!(redact_with(json, Some(&schema), &SecretForms::default()), expected);
    let result = json!({ "content": [{ "type": "text", "text": json }] });
    let expected = json!({ "content": [{ "type": "text", "text": expected }] });
    assert_eq!(redact(&result, Some(&schema)), expected.to_string());
}

// req: TR-01
#[test]
fn configured_value_hides_no_name_of_a_secret() {
    let secrets = SecretForms::new(["password", "aB3;xY9&longtail"].into_iter());
    let message = Redactor { names: &[], secrets: &secrets }
        .redact_message("password=hunter2, password=aB3;xY9&longtail aB3;xY9&longtail");
    assert_eq!(message, "***=***, ***=*** ***");
}

// req: TR-01
#[test]
fn copied_value_that_is_a_part_of_a_configured_one_hides_all_of_it() {
    let secrets = SecretForms::new(["aB3;xY9&longtail"].into_iter());
    let schema = r#"{"properties":{"pin":{"type":"string","format":"password"}}}"#;
    let result = json!({
        "content": [{ "type": "text", "text": "password=aB3;xY9&longtail" }],
        "structuredContent": { "pin": "longtail" }
    });
    let redacted = Redactor { names: &[], secrets: &secrets }.redact_json(&result.to_string(), Some(schema));
    assert!(redacted.contains(r#""text":"password=***""#), "{redacted}");
}

// req: TR-01
#[test]
fn leaves_plain_texts() {
    for text in [
        "the 3 files at 10:30, a=b; https://host/x?y=z",
        "",
        "naïve: ünïcödé → ok",
        "C:\\x",
        "src/token.rs:12:5: expected one of `,`",
        "PWD=/home/bob/project\nOLDPWD=/home/bob",
        "use token::Kind; fn next_token(&mut self) -> Option<Token> { self.tokens.pop() }",
        "the author: Bob; authors: 3 people",
        "Basic settings and basic authentication",
        "usage: login <user> <password> [--verbose]",
        "see https://token.example.com:8443/auth/login?next=/home#top",
        "/opt/hf_transformers_cache/sk-learn-contributions/npm_modules_cache",
        "the password is wrong, and so is the token.",
        "docker login --password-stdin registry",
        "if (a == b && c != d) { return x ? y : z; }",
    ] {
        check(text, text);
    }
}

// req: TR-01
#[test]
fn hostile_texts_take_no_long() {
    for part in [
        "password: \"x\n",
        "<password>",
        "<a_token_b>x",
        "Cookie: \\",
        "password='\\",
        "--token \"",
        "://a@",
        "'cookie:x",
    ] {
        let text = part.repeat((256 << 10) / part.len());
        assert!(redact_message(&text).len() <= 2 * text.len());
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

// req: TR-01
#[test]
fn hides_values_on_the_next_line_and_behind_wide_characters() {
    for text in [
        "password: >\n  hunter2x",
        "password: |-\n  hunter2x",
        "--password \\\n hunter2x",
        "<password\u{a0}x=hunter2x>",
    ] {
        let redacted = redact_message(text);
        assert!(!redacted.contains("hunter2x"), "{redacted}");
    }
}

proptest! {
    // req: TR-01
    #[test]
    fn every_text_can_be_read(text in r#"([<>=:|'"/\\ \n\u{a0}éß„“]|password|token|basic|bearer|cookie|authorization|--pwd|http://|[a-z0-9]{1,4}){0,40}"#) {
        redact_message(&text);
    }

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
        // Servers repeat the structured content as a text: as it is, or each of its values in a text of its own.
        let copies = [value.to_string(), serde_json::to_string_pretty(&value).unwrap()];
        for text in copies {
            let result = json!({ "content": [{ "type": "text", "text": text }], "structuredContent": value });
            prop_assert!(!redact(&result, Some(&schema)).contains(&secret));
            let result = json!({ "content": [{ "type": "text", "text": text }] });
            prop_assert!(!redact(&result, Some(&schema)).contains(&secret));
        }
        let parts = [json!({ "x": secret }).to_string(), format!("the key is {secret} now")];
        let parts = parts.map(|text| json!({ "type": "text", "text": text }));
        let result = json!({ "content": parts, "structuredContent": value });
        prop_assert!(!redact(&result, Some(&schema)).contains(&secret));
    }

    // req: TR-01
    #[test]
    fn secret_behind_its_name_in_a_text_never_appears(
        secret in "[A-Za-z0-9]{8,40}", name in secret_name(), before in "[a-z ,]{0,20}", form in 0..17_usize,
    ) {
        let text = match form {
            0 => format!("{before} {name}={secret}"),
            1 => format!("{before} {name}: {secret}, x"),
            2 => format!("{before} \"{name}\" : \"{secret}\""),
            3 => format!("{before}\n{name}: Bearer {secret}\nx"),
            4 => format!("https://h/p?{name}={secret}&x=1"),
            5 => format!("config/.env:3:{name}={secret}"),
            6 => format!("user:bob|{name}:{secret}"),
            7 => format!("https://h/p#{name}={secret}"),
            8 => format!("{before}\nAuthorization: ApiKey {secret}\nx"),
            9 => format!("{before}\nCookie: a=1; b=\"2\"; sid={secret}\nx"),
            10 => format!("{before} {name}: \"two {secret}\" x"),
            11 => format!("{before} {name}=abc,{secret}"),
            12 => format!("{before} --{name} {secret} x"),
            13 => format!("<{name}>{before}{secret}</{name}>"),
            14 => format!("{before} \\\"{name}\\\": \\\"two {secret}\\\""),
            15 => format!("{before} {name} = b'two {secret}'"),
            _ => format!("{before} '{name}'='{secret}'"),
        };
        let redacted = redact(&json!({ "text": text }), None);
        prop_assert!(!redacted.contains(&secret), "{text} {redacted}");
    }

    // req: TR-01
    #[test]
    fn no_part_of_a_configured_secret_remains(
        secret in r#"[A-Z][A-Z;& <>,:=/@'"\\\n.-]{5,30}[A-Z]"#, form in 0..9_usize, around in around(),
    ) {
        // Whatever is in capital letters is of the secret.
        let text = match form {
            0 => format!("login failed: password={secret}"),
            1 => format!("token: {secret}, and more"),
            2 => format!("authorization: bearer {secret}\nx"),
            3 => format!("https://bob:{secret}@host/x?token={secret}&y=1"),
            4 => format!("<password>{secret}</password>"),
            5 => format!("--password '{secret}' {{\"pass\":{}}}", json!(secret)),
            6 => format!("x {secret} y {secret}"),
            7 => format!("password=\"{secret}\""),
            _ => json!({ "password": secret, "x": [secret] }).to_string(),
        };
        let secrets = SecretForms::new([secret.as_str()].into_iter());
        let is_hidden = |redacted: &str| !redacted.contains(|c: char| c.is_ascii_uppercase());
        let message = Redactor { names: &[], secrets: &secrets }.redact_message(&text);
        prop_assert!(is_hidden(&message), "{text} {message}");
        for value in [json!({ "text": text.clone() }), json!({ text.clone(): 1 })] {
            let redacted = redact_with(&wrap(value, &around).to_string(), None, &secrets);
            prop_assert!(is_hidden(&redacted), "{text} {redacted}");
        }
    }

    // req: TR-01
    #[test]
    fn values_without_secrets_stay(numbers in proptest::collection::vec(any::<i64>(), 0..9), word in "[a-z]{0,9} [a-z]{0,9}") {
        prop_assume!(!["bearer", "token", "secret", "cookie"].iter().any(|name| word.contains(name)));
        let value = json!({ "list": numbers, "nested": { "word": word, "flag": true, "none": null } });
        prop_assert_eq!(redact(&value, None), value.to_string());
    }
}
