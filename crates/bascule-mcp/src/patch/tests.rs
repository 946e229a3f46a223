//! Tests: every function agrees with a parser, and no other byte changes.

use super::*;
use proptest::prelude::*;
use serde_json::Value;

#[test]
fn maps_elements_and_changes_no_other_byte() {
    let twos = |element: &str| (element == "2").then(|| "[two]".to_owned());
    assert_eq!(
        map_elements(r#"{"a":[ 1,2 , {"b":2},2],"c":2}"#, &["a"], twos).as_deref(),
        Some(r#"{"a":[ 1,[two] , {"b":2},[two]],"c":2}"#)
    );
    assert_eq!(map_elements(r#"{"a":[1]}"#, &["a"], twos), None);
    assert_eq!(map_elements(r#"{"a":2}"#, &["a"], twos), None);
}

// req: GW-03
#[test]
fn appends_a_member_and_changes_no_other_byte() {
    for (object, expected) in [
        ("{}", r#"{"a\"":9}"#),
        ("{ } ", r#"{ "a\"":9}"#),
        (r#"{"x":{} }"#, r#"{"x":{} ,"a\"":9}"#),
        (r#"{"x":"{"}"#, r#"{"x":"{","a\"":9}"#),
        ("[]", "[]"),
        ("", ""),
    ] {
        assert_eq!(append(object, "a\"", "9"), expected, "{object}");
    }
}

/// Applies `find`, `insert` of `9` and `remove`.
fn check(json: &str, path: &[&str], found: &str, inserted: &str, removed: &str) {
    assert_eq!(find(json, path).unwrap_or("-"), found, "find {path:?} in {json}");
    assert_eq!(insert(json, path, "9"), inserted, "insert {path:?} into {json}");
    assert_eq!(remove(json, path), removed, "remove {path:?} from {json}");
}

// req: GW-03
#[test]
fn changes_one_field_and_no_other_byte() {
    let odd = r#""n":[1.0,1e400,-0,9223372036854775808],"s":"\ud800\/","d":1, "d":1.0,"#;
    check(
        &format!("\n{{ {odd}\t\"a\" : {{\"b\":\"x\" }} , \"é\":[ ] }} "),
        &["a", "b"],
        "\"x\"",
        &format!("\n{{ {odd}\t\"a\" : {{\"b\":9 }} , \"é\":[ ] }} "),
        &format!("\n{{ {odd}\t\"a\" : {{ }} , \"é\":[ ] }} "),
    );
}

#[test]
fn adds_missing_keys_behind_other_members() {
    let same = |json, path: &[&str], inserted| check(json, path, "-", inserted, json);
    same("{}", &["a"], r#"{"a":9}"#);
    same("{ }", &["a", "b\"", "c"], r#"{"a":{"b\"":{"c":9}} }"#);
    same(r#"{"x":[1 ] }"#, &["a"], r#"{"x":[1 ],"a":9 }"#);
    same(r#"{"a":{"x":1},"y":2}"#, &["a", "b"], r#"{"a":{"x":1,"b":9},"y":2}"#);
    same(r#"{"x":{"a":{"b":1}}}"#, &["a", "b"], r#"{"x":{"a":{"b":1}},"a":{"b":9}}"#);
}

#[test]
fn replaces_other_values_on_the_path_by_objects() {
    check(r#"{"a":null}"#, &["a", "b"], "-", r#"{"a":{"b":9}}"#, r#"{"a":null}"#);
    check(r#"{"a":[{"b":1}]}"#, &["a", "b"], "-", r#"{"a":{"b":9}}"#, r#"{"a":[{"b":1}]}"#);
    check("[{}]", &["a"], "-", "[{}]", "[{}]");
}

#[test]
fn removes_a_member_with_one_comma() {
    for (json, removed) in [
        (r#"{"a":1}"#, "{}"),
        (r#"{ "a" : 1 , "b":2}"#, r#"{ "b":2}"#),
        (r#"{"b":2 , "a":1 }"#, r#"{"b":2  }"#),
        (r#"{"b":2,"a":1,"c":3}"#, r#"{"b":2,"c":3}"#),
        (r#"{"a":1,"a":2,"b":3,"a":4,"a":5}"#, r#"{"b":3}"#),
        (r#"{"a":1,"a":2}"#, "{}"),
    ] {
        assert_eq!(remove(json, &["a"]), removed, "{json}");
    }
    assert_eq!(remove(r#"{"o":{"x":1},"a":{"b":1,"c":2}}"#, &["a", "b"]), r#"{"o":{"x":1},"a":{"c":2}}"#);
}

#[test]
fn compares_keys_unescaped() {
    let json = r#"{"n\u0061me":1,"\ud83d\ude00":2,"\ud800":3,"":4}"#;
    assert_eq!(find(json, &["name"]), Some("1"));
    assert_eq!(find(json, &["😀"]), Some("2"));
    assert_eq!(find(json, &[""]), Some("4"));
    assert_eq!(find(json, &["\\ud800"]), None);
}

// req: GW-03
#[test]
fn finds_last_duplicate_and_changes_all() {
    check(r#"{"a":1,"x":0,"\u0061":2}"#, &["a"], "2", r#"{"a":9,"x":0,"\u0061":9}"#, r#"{"x":0}"#);
    check(r#"{"a":{"b":1},"a":{}}"#, &["a", "b"], "-", r#"{"a":{"b":9},"a":{"b":9}}"#, r#"{"a":{},"a":{}}"#);
    check(r#"{"a":{"b":1},"a":2}"#, &["a", "b"], "-", r#"{"a":{"b":9},"a":{"b":9}}"#, r#"{"a":{},"a":2}"#);
}

#[test]
fn limits_growth_from_many_duplicates() {
    let json = format!("{{{}\"a\":2}}", "\"a\":1,".repeat(100_000));
    let long = format!("\"{}\"", "x".repeat(100_000));
    let replaced = insert(&json, &["a"], &long);
    assert!(replaced.len() < 2 * json.len() + long.len());
    assert!(!replaced.contains("\"a\":1") && !replaced.contains("\"a\":2"));
    assert_eq!(find(&replaced, &["a"]), Some(&*long));
}

#[test]
fn finds_unescaped_strings() {
    let json = r#"{"a":"\u0061\n\ud83d\ude00","b":"\ud800","c":1}"#;
    assert_eq!(find_string(json, &["a"]).as_deref(), Some("a\n😀"));
    assert_eq!(find_string(json, &["b"]), None);
    assert_eq!(find_string(json, &["c"]), None);
    assert_eq!(find_string(json, &["d"]), None);
}

#[test]
fn finds_raw_elements() {
    let json = r#"{"t":[ 1.0 ,{"a":[2,"]"]},"x,y" , [] ],"e":[ ],"o":{}}"#;
    assert_eq!(find_elements(json, &["t"]).unwrap(), ["1.0", r#"{"a":[2,"]"]}"#, r#""x,y""#, "[]"]);
    assert_eq!(find_elements(json, &["e"]), Some(vec![]));
    assert_eq!(find_elements(json, &["o"]), None);
    assert_eq!(find_elements(" [1]", &[]), Some(vec!["1"]));
}

#[test]
fn handles_a_hundred_thousand_levels() {
    let deep = format!("{}1{}", r#"{"a":["#.repeat(50_000), "]}".repeat(50_000));
    let json = format!(r#"{{"deep":{deep},"a":{{"b":1}}}}"#);
    assert_eq!(find(&json, &["a", "b"]), Some("1"));
    assert_eq!(find(&json, &["deep"]), Some(&*deep));
    assert_eq!(remove(&json, &["deep"]), r#"{"a":{"b":1}}"#);
    let path = vec!["a"; 100_000];
    let objects = format!("{}1{}", r#"{"a":"#.repeat(100_000), "}".repeat(100_000));
    assert_eq!(insert(&objects, &path, "1"), objects);
    assert_eq!(insert("{}", &path, "1"), objects);
    // Each key of a path takes a pass through the value before.
    assert_eq!(find(&objects, &path[..10]), Some(&objects[50..100_000 * 5 + 1 + 99_990]));
}

#[test]
fn copies_a_large_document_once() {
    let json = format!(
        r#"{{"id":1,"result":{{"blob":"{}","list":[{}0]}}}}"#,
        "x".repeat(24 << 20),
        "{},".repeat(1 << 20)
    );
    let out = insert(&json, &["id"], "12345");
    assert!(out.capacity() < json.len() + 1000);
    assert_eq!(&out[12..], &json[8..]);
}

/// JSON text with doubled and oddly spelled keys and white space, from these leaves.
fn document(leaf: impl Strategy<Value = String> + 'static) -> impl Strategy<Value = String> {
    let space = || prop::sample::select(vec!["", "", "", " ", "\n\t", "\r "]);
    let key = prop::sample::select(vec!["a", "b", "c", "\\u0061", "", "\\\"a", "é", "a\\u0000"]);
    leaf.boxed().prop_recursive(5, 48, 6, move |inner| {
        let value =
            (space(), inner, space()).prop_map(|(before, value, after)| format!("{before}{value}{after}"));
        let member = (space(), key.clone(), space(), value.clone())
            .prop_map(|(before, key, after, value)| format!("{before}\"{key}\"{after}:{value}"));
        prop_oneof![
            1 => prop::collection::vec(value, 0..5).prop_map(|all| format!("[{}]", all.join(","))),
            4 => prop::collection::vec(member, 0..6).prop_map(|all| format!("{{{}}}", all.join(","))),
        ]
    })
}

fn plain() -> impl Strategy<Value = String> {
    prop_oneof![
        Just("null".to_owned()),
        any::<i64>().prop_map(|n| n.to_string()),
        any::<String>().prop_map(|text| Value::from(text).to_string()),
    ]
}

/// Leaves that `serde_json::Value` cannot hold.
fn odd() -> impl Strategy<Value = String> {
    let spellings =
        ["1.0", "1e400", "-0", "9223372036854775808", r#""\ud800""#, r#""\"}],{[""#, r#""\\""#, "true"];
    prop::sample::select(spellings.map(str::to_owned).to_vec())
}

fn path() -> impl Strategy<Value = Vec<&'static str>> {
    prop::collection::vec(prop::sample::select(vec!["a", "b", "c", "", "\"a", "é"]), 0..4)
}

fn read(json: &str) -> Value {
    serde_json::from_str(json).unwrap_or_else(|error| panic!("{error}: {json}"))
}

fn at<'a>(value: &'a Value, path: &[&str]) -> Option<&'a Value> {
    path.iter().try_fold(value, |value, key| value.as_object()?.get(*key))
}

fn put(value: &mut Value, path: &[&str], new: Value) {
    let Some((first, rest)) = path.split_first() else {
        *value = new;
        return;
    };
    if !value.is_object() {
        *value = Value::Object(Default::default());
    }
    put(value.as_object_mut().unwrap().entry(*first).or_insert(Value::Null), rest, new);
}

fn take(value: &mut Value, path: &[&str]) {
    let Some((last, parents)) = path.split_last() else { return };
    let parent = parents.iter().try_fold(value, |value, key| value.as_object_mut()?.get_mut(*key));
    if let Some(Value::Object(parent)) = parent {
        parent.remove(*last);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, max_global_rejects: 100_000, ..ProptestConfig::default() })]

    // req: GW-03
    #[test]
    fn agrees_with_a_parser(json in document(plain()), path in path(), new in document(plain())) {
        let value = read(&json);
        prop_assert_eq!(find(&json, &path).map(read), at(&value, &path).cloned());
        prop_assert_eq!(find_string(&json, &path), at(&value, &path).and_then(Value::as_str).map(str::to_owned));
        let elements = at(&value, &path).and_then(Value::as_array).cloned();
        prop_assert_eq!(find_elements(&json, &path).map(|all| all.into_iter().map(read).collect()), elements);

        let mut changed = value.clone();
        put(&mut changed, &path, read(&new));
        if value.is_object() || path.is_empty() {
            prop_assert_eq!(read(&insert(&json, &path, &new)), changed);
        } else {
            prop_assert_eq!(insert(&json, &path, &new), &*json);
        }

        let mut less = value;
        take(&mut less, &path);
        prop_assert_eq!(read(&remove(&json, &path)), less);
    }

    // req: GW-03
    #[test]
    fn changes_only_the_value_and_restores_it(json in document(odd()), path in path(), new in document(odd())) {
        let old = find(&json, &path);
        prop_assume!(old.is_some());
        let old = old.unwrap();
        prop_assume!(survey(&json, &path).values == 1);
        let start = old.as_ptr() as usize - json.as_ptr() as usize;
        let replaced = insert(&json, &path, &new);
        prop_assert_eq!(&replaced, &format!("{}{new}{}", &json[..start], &json[start + old.len()..]));
            prop_assert_eq!(insert(&replaced, &path, old), json);
    }

    // req: GW-03
    #[test]
    fn removes_an_added_member_without_a_trace(json in document(odd()), path in path(), new in document(odd())) {
        prop_assume!(json.starts_with('{') && path.split_last().is_some_and(|(_, parents)| {
            find(&json, parents).is_some_and(|parent| parent.starts_with('{'))
        }));
        prop_assume!(survey(&json, &path).values == 0);
        let added = insert(&json, &path, &new);
        prop_assert_eq!(find(&added, &path), Some(&*new));
        prop_assert_eq!(remove(&added, &path), json);
    }

    #[test]
    fn one_pass_writes_the_same_as_two(json in document(odd()), path in path()) {
        prop_assert_eq!(insert(&json, &path, "[1]"), insert_into_duplicates(&json, &path, "[1]"));
    }

    // req: GW-03
    #[test]
    fn appends_like_a_parser(json in document(plain()), new in document(plain())) {
        prop_assume!(json.starts_with('{'));
        let mut value = read(&json);
        value["new"] = read(&new);
        prop_assert_eq!(read(&append(&json, "new", &new)), value);
    }

    #[test]
    fn never_panics(json in "[\\[\\]{}\":, \\\\abé1]{0,24}|.*", path in path()) {
        let _ = (find(&json, &path), find_string(&json, &path), find_elements(&json, &path), remove(&json, &path));
        let _ = (insert(&json, &path, "1"), append(&json, "a", "1"));
    }
}
