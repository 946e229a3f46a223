//! Edits of all three formats: byte for byte.

use super::*;

const MAP: ServerPlace = ServerPlace { key: "mcpServers", is_list: false };
const LIST: ServerPlace = ServerPlace { key: "mcpServers", is_list: true };

fn fields() -> Vec<(String, Tree)> {
    vec![
        ("command".into(), Tree::text("/bin/b")),
        ("args".into(), Tree::texts(&["serve".into(), "a b".into()])),
    ]
}

fn set(format: Format, place: ServerPlace, text: &str) -> Result<String, String> {
    let document = Document::parse(format, text).map_err(|error| error.to_string())?;
    document.set_server(place, "b", &fields(), &["url"]).map_err(|error| error.to_string())
}

fn remove(format: Format, place: ServerPlace, text: &str) -> String {
    Document::parse(format, text).unwrap().remove_server(place, "b").unwrap()
}

/// Expects the text with the entry, and the first text again without it.
#[track_caller]
fn check(format: Format, place: ServerPlace, before: &str, after: &str) {
    assert_eq!(set(format, place, before).unwrap(), after);
    assert_eq!(remove(format, place, after), before);
    // A second time changes nothing.
    assert_eq!(set(format, place, after).unwrap(), after);
    let (before, after) = (before.replace('\n', "\r\n"), after.replace('\n', "\r\n"));
    if before.contains('\r') {
        assert_eq!(set(format, place, &before).unwrap(), after);
        assert_eq!(remove(format, place, &after), before);
    }
}

fn check_json(before: &str, after: &str) {
    check(Format::Json, MAP, before, after);
}

// req: US-04
#[test]
fn inserts_into_json_with_its_indentation() {
    check_json(
        "{\n  \"mcpServers\": {\n    \"a\": { \"url\": \"x\" }\n  },\n  \"z\": 1\n}\n",
        "{\n  \"mcpServers\": {\n    \"a\": { \"url\": \"x\" },\n    \"b\": {\n      \"command\": \"/bin/b\",\n      \"args\": [\"serve\", \"a b\"]\n    }\n  },\n  \"z\": 1\n}\n",
    );
    check_json(
        "{\n\t\"mcpServers\": {\n\t\t\"a\": {}, // last\n\t\t// \"old\": {}\n\t}\n}",
        "{\n\t\"mcpServers\": {\n\t\t\"a\": {}, // last\n\t\t\"b\": {\n\t\t\t\"command\": \"/bin/b\",\n\t\t\t\"args\": [\"serve\", \"a b\"]\n\t\t},\n\t\t// \"old\": {}\n\t}\n}",
    );
    check_json(
        "{\n \"mcpServers\": {\n  \"a\": {} /* x */ // y, {\n }}",
        "{\n \"mcpServers\": {\n  \"a\": {}, /* x */ // y, {\n  \"b\": {\n   \"command\": \"/bin/b\",\n   \"args\": [\"serve\", \"a b\"]\n  }\n }}",
    );
}

// req: US-04
#[test]
fn inserts_into_json_on_one_line() {
    check_json(
        r#"{"mcpServers":{"a":{}},"z":[1]}"#,
        r#"{"mcpServers":{"a":{}, "b": {"command": "/bin/b", "args": ["serve", "a b"]}},"z":[1]}"#,
    );
    check_json(
        r#"{"mcpServers":{}}"#,
        r#"{"mcpServers":{"b": {"command": "/bin/b", "args": ["serve", "a b"]}}}"#,
    );
}

// req: US-04
#[test]
fn inserts_into_empty_json() {
    let entry = "\"b\": {\n      \"command\": \"/bin/b\",\n      \"args\": [\"serve\", \"a b\"]\n    }";
    check_json(
        "{\n  \"mcpServers\": {},\n  \"z\": 1\n}\n",
        &format!("{{\n  \"mcpServers\": {{\n    {entry}\n  }},\n  \"z\": 1\n}}\n"),
    );
    let whole = format!("{{\n  \"mcpServers\": {{\n    {entry}\n  }}\n}}\n");
    for before in ["", "{}\n", " \n"] {
        let after = set(Format::Json, MAP, before).unwrap();
        assert_eq!(after.trim_start(), whole, "{before:?}");
    }
    let comment = "{\n  \"mcpServers\": {\n    // none yet\n  }\n}\n";
    check_json(comment, &comment.replace("yet\n", &format!("yet\n    {entry}\n")));
    // The missing key is added, and stays when the server goes.
    let after = set(Format::Json, MAP, "{\n    \"z\": 1 // one\n}\n").unwrap();
    assert!(
        after.starts_with(
            "{\n    \"z\": 1, // one\n    \"mcpServers\": {\n        \"b\": {\n            \"command\""
        ),
        "{after}"
    );
    assert_eq!(remove(Format::Json, MAP, &after), "{\n    \"z\": 1, // one\n    \"mcpServers\": {}\n}\n");
    check_json(
        "\u{feff}{\n  \"mcpServers\": {}\n}",
        &format!("\u{feff}{{\n  \"mcpServers\": {{\n    {entry}\n  }}\n}}"),
    );
}

// req: US-04
#[test]
fn updates_an_entry_and_keeps_its_other_keys() {
    let before = "{ \"mcpServers\": {\n  // mine\n  \"b\": {\n    \"command\": \"/old\", // path\n    \"disabled\": true,\n    \"url\": \"http://x\" }\n}}";
    let after = "{ \"mcpServers\": {\n  // mine\n  \"b\": {\n    \"command\": \"/bin/b\", // path\n    \"disabled\": true,\n    \"args\": [\"serve\", \"a b\"] }\n}}";
    assert_eq!(set(Format::Json, MAP, before).unwrap(), after);
    let toml = "[mcpServers.b] # mine\nurl = 'x'\ncommand = '/old' # path\n\n[mcpServers.b.env]\nK = 'v'\n";
    assert_eq!(
        set(Format::Toml, MAP, toml).unwrap(),
        "[mcpServers.b] # mine\ncommand = \"/bin/b\" # path\nargs = [\"serve\", \"a b\"]\n\n[mcpServers.b.env]\nK = 'v'\n"
    );
    let yaml = "mcpServers:\n  b: # mine\n    command: '/old' # path\n    args:\n    - x # y\n    - z\n    keep: 1\n    url: x\n";
    assert_eq!(
        set(Format::Yaml, MAP, yaml).unwrap(),
        "mcpServers:\n  b: # mine\n    command: /bin/b # path\n    args: [\"serve\", \"a b\"]\n    keep: 1\n"
    );
    let list = "mcpServers:\n- name: b\n  command: |\n    old\n  keep: 1\n- name: c\n";
    assert_eq!(
        set(Format::Yaml, LIST, list).unwrap(),
        "mcpServers:\n- name: b\n  command: /bin/b\n  keep: 1\n  args: [\"serve\", \"a b\"]\n- name: c\n"
    );
}

// req: US-04
#[test]
fn appends_a_table_to_toml() {
    let entry = "[mcpServers.b]\ncommand = \"/bin/b\"\nargs = [\"serve\", \"a b\"]\n";
    for before in [
        "model = \"x\" # c\n",
        "[mcpServers.a]\ncommand = \"x\"\nargs = [\n  \"[y]\", # z\n]\n",
        "[mcpServers]\na = { command = \"x\" }\n\n\n",
        "mcpServers.a.command = 'x'\n# end\n",
    ] {
        check(Format::Toml, MAP, before, &format!("{before}\n{entry}"));
    }
    assert_eq!(set(Format::Toml, MAP, "").unwrap(), entry);
    assert_eq!(set(Format::Toml, MAP, "a = 1").unwrap(), format!("a = 1\n\n{entry}"));
    check(
        Format::Toml,
        MAP,
        "mcpServers = { a = { command = 'x' } }\n",
        "mcpServers = { a = { command = 'x' }, b = { command = \"/bin/b\", args = [\"serve\", \"a b\"] } }\n",
    );
}

// req: US-04
#[test]
fn removes_every_form_of_a_toml_table() {
    let after = "a = 1\n\n[mcpServers.a]\ncommand = 'x'\n\n# of c\n[mcpServers.c]\nurl = 'y'\n";
    let before = "a = 1\n\n[mcpServers.a]\ncommand = 'x'\n\n[mcpServers.b]\ncommand = '''\n[z]'''\nenv.A = '1'\n\n# of c\n[mcpServers.c]\nurl = 'y'\n\n[mcpServers.b.other]\nk = 1\n";
    assert_eq!(remove(Format::Toml, MAP, before), after);
    let dotted = "mcpServers.b.command = 'x'\nmcpServers.b.args = []\nmcpServers.c.command = 'y'\n";
    assert_eq!(remove(Format::Toml, MAP, dotted), "mcpServers.c.command = 'y'\n");
    assert_eq!(
        remove(Format::Toml, MAP, "[mcpServers]\nb = { url = 'x' } # y\nc = {}\n"),
        "[mcpServers]\nc = {}\n"
    );
}

// req: US-04
#[test]
fn inserts_into_yaml_blocks() {
    check(
        Format::Yaml,
        MAP,
        "# top\nmcpServers:\n    a:\n        command: é # c\n        text: |\n            x\n\n# next\nz: 1\n",
        "# top\nmcpServers:\n    a:\n        command: é # c\n        text: |\n            x\n    b:\n        command: /bin/b\n        args: [\"serve\", \"a b\"]\n\n# next\nz: 1\n",
    );
    check(
        Format::Yaml,
        MAP,
        "mcpServers: {a: {command: x}}\n",
        "mcpServers: {a: {command: x}, \"b\": {\"command\": \"/bin/b\", \"args\": [\"serve\", \"a b\"]}}\n",
    );
    check(
        Format::Yaml,
        MAP,
        "mcpServers: {} # none\nz: 1",
        "mcpServers: {\"b\": {\"command\": \"/bin/b\", \"args\": [\"serve\", \"a b\"]}} # none\nz: 1",
    );
    let entry = "mcpServers:\n  b:\n    command: /bin/b\n    args: [\"serve\", \"a b\"]\n";
    assert_eq!(set(Format::Yaml, MAP, "").unwrap(), entry);
    assert_eq!(set(Format::Yaml, MAP, "# only this").unwrap(), format!("# only this\n{entry}"));
    assert_eq!(
        set(Format::Yaml, MAP, "mcpServers: # none\nz: 1\n").unwrap(),
        entry.replace(":\n  b", ": # none\n  b") + "z: 1\n"
    );
    assert_eq!(set(Format::Yaml, MAP, "z: 1\n...\n").unwrap(), format!("z: 1\n{entry}...\n"));
    assert_eq!(remove(Format::Yaml, MAP, entry), "mcpServers: {}\n");
}

// req: US-04
#[test]
fn inserts_into_yaml_lists() {
    let named = |text: &str| {
        let mut fields = fields();
        fields.insert(0, ("name".into(), Tree::text("b")));
        Document::parse(Format::Yaml, text).unwrap().set_server(LIST, "b", &fields, &[]).unwrap()
    };
    for (before, after) in [
        (
            "mcpServers:\n  - name: a\n    command: x\nmodels: []\n",
            "mcpServers:\n  - name: a\n    command: x\n  - name: b\n    command: /bin/b\n    args: [\"serve\", \"a b\"]\nmodels: []\n",
        ),
        (
            "mcpServers:\n- command: x\n  name: a # c",
            "mcpServers:\n- command: x\n  name: a # c\n- name: b\n  command: /bin/b\n  args: [\"serve\", \"a b\"]",
        ),
        (
            "mcpServers: []\n",
            "mcpServers: [{\"name\": \"b\", \"command\": \"/bin/b\", \"args\": [\"serve\", \"a b\"]}]\n",
        ),
    ] {
        assert_eq!(named(before), after);
        assert_eq!(remove(Format::Yaml, LIST, after), before);
    }
    let entry = "mcpServers:\n  - name: b\n    command: /bin/b\n    args: [\"serve\", \"a b\"]\n";
    assert_eq!(named("name: x\n"), format!("name: x\n{entry}"));
    assert_eq!(remove(Format::Yaml, LIST, entry), "mcpServers: []\n");
}

// req: US-04
#[test]
fn refuses_broken_files_with_the_position() {
    let error = |format, text| set(format, MAP, text).unwrap_err();
    assert_eq!(error(Format::Json, "{\n  \"a\": nope\n}"), "2:8: not JSON: unexpected word");
    assert_eq!(
        error(Format::Toml, "a = 1\nb = \n"),
        "2:5: not TOML: string values must be quoted, expected literal string"
    );
    assert_eq!(error(Format::Yaml, "a: [1,\nb: 2\n"), "2:1: not YAML: invalid indentation in flow construct");
    assert_eq!(error(Format::Json, "[]"), "1:1: `the file` must be a map, is a list: correct the file first");
    assert_eq!(
        error(Format::Json, "{\"mcpServers\": []}"),
        "1:16: `mcpServers` must be a map, is a list: correct the file first"
    );
    assert_eq!(
        error(Format::Yaml, "mcpServers: text\n"),
        "1:13: `mcpServers` must be a map, is a text: correct the file first"
    );
    assert!(error(Format::Yaml, "a: 1\n---\nb: 1\n").contains("several documents"));
    // Unusual, but right: the text to paste is shown.
    let unusual = "? mcpServers\n: a: {}\n";
    assert!(Document::parse(Format::Yaml, unusual).is_ok());
    match set(Format::Yaml, MAP, unusual) {
        Ok(text) => assert!(text.contains("/bin/b")),
        Err(error) => assert!(error.contains("mcpServers:\n  b:\n    command: /bin/b"), "{error}"),
    }
}

// req: US-04
#[test]
fn survives_hostile_files() {
    for text in ["[".repeat(10_000), "{\"a\":".repeat(10_000), "a: &a [x]\n".into()] {
        for format in [Format::Json, Format::Toml, Format::Yaml] {
            let _ = set(format, MAP, &text);
        }
    }
    // Each alias doubles the number of values.
    let bomb: String = (1..40).map(|i| format!("a{i}: &a{i} [*a{0}, *a{0}]\n", i - 1)).collect();
    let bomb = format!("a0: &a0 [x]\n{bomb}");
    assert!(set(Format::Yaml, MAP, &bomb).unwrap_err().contains("too large"));
}

proptest::proptest! {
    /// Any text is refused, or has its old values and the entry afterwards.
    // req: US-04
    #[test]
    fn never_changes_another_value(text in "[a-b{}\\[\\]:,\"# \n/=.\\-&*|'1]{0,40}") {
        for format in [Format::Json, Format::Toml, Format::Yaml] {
            for place in [MAP, LIST] {
                if let (Ok(old), Ok(new)) = (Document::parse(format, &text), set(format, place, &text)) {
                    let mut values = Document::parse(format, &new).unwrap().to_json();
                    values.as_object_mut().unwrap().remove("mcpServers");
                    proptest::prop_assert_eq!(values, old.to_json());
                }
            }
        }
    }
}
