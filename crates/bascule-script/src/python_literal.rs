//! Converts text that is one Python literal, such as `[{'id': 1, 'email': None}]`, to JSON. Many servers written in Python
//! answer with the `repr` of a value.

use std::fmt::Write;

use serde_json::value::RawValue;

/// Literals nested more deeply stay text.
const MAX_DEPTH: usize = 100;

/// Returns a list, dictionary, tuple or set as JSON, or `None` if the text is anything else. A name, a number and quoted text
/// alone are no literals here: a server that means text writes them too.
pub(crate) fn to_json(text: &str) -> Option<String> {
    let text = text.trim();
    if !text.starts_with(['[', '{', '(']) {
        return None;
    }
    let mut reader = LiteralReader { rest: text, json: String::with_capacity(text.len()), depth: 0 };
    reader.read_value()?;
    reader.skip_space();
    // A value in parentheses is no tuple.
    (reader.rest.is_empty() && reader.json.starts_with(['[', '{'])).then_some(reader.json)
}

struct LiteralReader<'a> {
    rest: &'a str,
    json: String,
    depth: usize,
}

impl LiteralReader<'_> {
    fn skip_space(&mut self) {
        self.rest = self.rest.trim_start_matches([' ', '\n', '\r', '\t']);
    }

    /// Skips space and, if it follows, the token.
    fn take(&mut self, token: &str) -> bool {
        self.skip_space();
        let rest = self.rest.strip_prefix(token);
        self.rest = rest.unwrap_or(self.rest);
        rest.is_some()
    }

    /// Reads a value and appends it as JSON.
    fn read_value(&mut self) -> Option<()> {
        self.skip_space();
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            return None;
        }
        match self.rest.as_bytes().first()? {
            b'[' => self.read_items("[", "]")?,
            b'(' => self.read_parentheses()?,
            b'{' => self.read_braces()?,
            b'0'..=b'9' | b'-' | b'+' | b'.' => self.read_number()?,
            _ => self.read_text_or_name()?,
        }
        self.depth -= 1;
        Some(())
    }

    fn read_items(&mut self, open: &str, close: &str) -> Option<()> {
        self.take(open).then_some(())?;
        self.json.push('[');
        self.read_list(close, Self::read_value)?;
        self.json.push(']');
        Some(())
    }

    /// Reads parts separated by commas, up to the closing token.
    fn read_list(&mut self, close: &str, read: impl Fn(&mut Self) -> Option<()>) -> Option<()> {
        let start = self.json.len();
        while !self.take(close) {
            if self.json.len() > start {
                self.json.push(',');
            }
            read(self)?;
            if !self.take(",") {
                return self.take(close).then_some(());
            }
        }
        Some(())
    }

    /// Reads a tuple, or one value in parentheses.
    fn read_parentheses(&mut self) -> Option<()> {
        let start = self.json.len();
        self.take("(").then_some(())?;
        self.json.push('[');
        if !self.take(")") {
            self.read_value()?;
            if self.take(")") {
                self.json.remove(start);
                return Some(());
            }
            self.take(",").then_some(())?;
            self.read_more(")", Self::read_value)?;
        }
        self.json.push(']');
        Some(())
    }

    /// Reads the parts after the first and its comma.
    fn read_more(&mut self, close: &str, read: impl Fn(&mut Self) -> Option<()>) -> Option<()> {
        self.json.push(',');
        let start = self.json.len();
        self.read_list(close, read)?;
        if self.json.len() == start {
            self.json.pop();
        }
        Some(())
    }

    /// Reads a dictionary or a set: the token after the first value tells which.
    fn read_braces(&mut self) -> Option<()> {
        let start = self.json.len();
        self.take("{").then_some(())?;
        if self.take("}") {
            self.json.push_str("{}");
            return Some(());
        }
        self.json.push('{');
        self.read_value()?;
        if !self.take(":") {
            self.json.replace_range(start..=start, "[");
            if self.take(",") {
                self.read_more("}", Self::read_value)?;
            } else {
                self.take("}").then_some(())?;
            }
            self.json.push(']');
            return Some(());
        }
        self.quote_key(start + 1)?;
        self.json.push(':');
        self.read_value()?;
        if self.take(",") {
            self.read_more("}", Self::read_entry)?;
        } else {
            self.take("}").then_some(())?;
        }
        self.json.push('}');
        Some(())
    }

    fn read_entry(&mut self) -> Option<()> {
        let start = self.json.len();
        self.read_value()?;
        self.quote_key(start)?;
        self.take(":").then_some(())?;
        self.json.push(':');
        self.read_value()
    }

    /// Makes the value that was read last a key. As in Python's own conversion, numbers and names become text.
    fn quote_key(&mut self, start: usize) -> Option<()> {
        match self.json.as_bytes().get(start)? {
            b'"' => {}
            b'[' | b'{' => return None,
            _ => {
                self.json.insert(start, '"');
                self.json.push('"');
            }
        }
        Some(())
    }

    fn read_number(&mut self) -> Option<()> {
        let end = self
            .rest
            .find(|c: char| !c.is_ascii_alphanumeric() && !matches!(c, '.' | '+' | '-'))
            .unwrap_or(self.rest.len());
        let (number, rest) = self.rest.split_at(end);
        let plain = number.strip_suffix('.').unwrap_or(number);
        let is_json = serde_json::from_str::<serde_json::Number>(plain).is_ok();
        is_json.then(|| self.json.push_str(plain))?;
        self.rest = rest;
        Some(())
    }

    fn read_text_or_name(&mut self) -> Option<()> {
        let end = self.rest.find(|c: char| !c.is_ascii_alphanumeric() && c != '.' && c != '_');
        let (name, rest) = self.rest.split_at(end.unwrap_or(self.rest.len()));
        let is_quoted = rest.starts_with(['\'', '"']);
        match name {
            "" | "b" | "B" | "u" | "U" if is_quoted => {
                self.rest = rest;
                return self.read_texts(false);
            }
            "r" | "R" if is_quoted => {
                self.rest = rest;
                return self.read_texts(true);
            }
            "None" => self.json.push_str("null"),
            "True" => self.json.push_str("true"),
            "False" => self.json.push_str("false"),
            _ => {
                self.rest = rest;
                return self.read_constructor(name.rsplit('.').next().unwrap_or(name));
            }
        }
        self.rest = rest;
        Some(())
    }

    /// Reads the text after an optional prefix.
    fn read_texts(&mut self, is_raw: bool) -> Option<()> {
        let text = self.read_text(is_raw)?;
        self.json.push_str(&serde_json::to_string(&text).ok()?);
        Some(())
    }

    fn read_text(&mut self, is_raw: bool) -> Option<String> {
        let quote = self.rest.chars().next()?;
        let mut text = String::new();
        let mut rest = self.rest[1..].chars();
        loop {
            match rest.next()? {
                c if c == quote => break,
                '\n' => return None,
                '\\' if is_raw => {
                    text.push('\\');
                    text.push(rest.next()?);
                }
                '\\' => push_escape(&mut text, &mut rest)?,
                c => text.push(c),
            }
        }
        self.rest = rest.as_str();
        Some(text)
    }

    /// Reads the values that database drivers return: `Decimal('1.5')`, `UUID('…')`, `datetime.datetime(2024, 1, 2, 3, 4)`.
    fn read_constructor(&mut self, name: &str) -> Option<()> {
        let start = self.json.len();
        self.read_items("(", ")")?;
        let arguments: Vec<serde_json::Value> = serde_json::from_str(&self.json[start..]).ok()?;
        let text = self.json.split_off(start);
        let numbers: Vec<i64> = arguments.iter().filter_map(serde_json::Value::as_i64).collect();
        match (name, arguments.as_slice()) {
            ("Decimal", [serde_json::Value::String(number)]) => {
                let is_json = serde_json::from_str::<serde_json::Number>(number).is_ok();
                is_json.then(|| self.json.push_str(number))
            }
            ("UUID", [text @ serde_json::Value::String(_)]) => write!(self.json, "{text}").ok(),
            ("date" | "datetime" | "time", all) if numbers.len() == all.len() => {
                let text = moment(name, &numbers)?;
                write!(self.json, "\"{text}\"").ok()
            }
            ("set" | "frozenset" | "OrderedDict" | "dict", []) => {
                self.json.push_str(if name.ends_with("set") { "[]" } else { "{}" });
                Some(())
            }
            ("OrderedDict", [_]) => self.push_ordered(&text),
            ("frozenset" | "deque", [one]) => write!(self.json, "{one}").ok(),
            _ => None,
        }
    }

    /// Writes the only element of a list, an object or pairs with text keys, as an object.
    fn push_ordered(&mut self, list: &str) -> Option<()> {
        let [content]: [&RawValue; 1] = serde_json::from_str(list).ok()?;
        if content.get().starts_with('{') {
            self.json.push_str(content.get());
            return Some(());
        }
        let pairs: Vec<(String, &RawValue)> = serde_json::from_str(content.get()).ok()?;
        let fields: Option<Vec<String>> = pairs
            .iter()
            .map(|(key, value)| Some(format!("{}:{}", serde_json::to_string(key).ok()?, value.get())))
            .collect();
        write!(self.json, "{{{}}}", fields?.join(",")).ok()
    }
}

/// Formats a date or time as in ISO 8601.
fn moment(name: &str, numbers: &[i64]) -> Option<String> {
    let [date, time] = match (name, numbers) {
        ("date", [y, m, d]) => return Some(format!("{y:04}-{m:02}-{d:02}")),
        ("datetime", [y, m, d, time @ ..]) => [format!("{y:04}-{m:02}-{d:02}T"), clock(time)?],
        ("time", time) => [String::new(), clock(time)?],
        _ => return None,
    };
    Some(date + &time)
}

fn clock(numbers: &[i64]) -> Option<String> {
    let part = |index: usize| numbers.get(index).copied().unwrap_or(0);
    let text = format!("{:02}:{:02}:{:02}", part(0), part(1), part(2));
    match numbers.len() {
        0..=3 => Some(text),
        4 => Some(format!("{text}.{:06}", part(3))),
        _ => None,
    }
}

/// Appends the character that an escape stands for.
fn push_escape(text: &mut String, rest: &mut std::str::Chars<'_>) -> Option<()> {
    let digits = match rest.next()? {
        // A backslash at the end of a line continues the text.
        '\n' => return Some(()),
        'x' => 2,
        'u' => 4,
        'U' => 8,
        c => {
            let character = simple_escape(text, c)?;
            text.push(character);
            return Some(());
        }
    };
    let hex = rest.as_str().get(..digits)?;
    *rest = rest.as_str()[digits..].chars();
    text.push(char::from_u32(u32::from_str_radix(hex, 16).ok()?).unwrap_or('\u{fffd}'));
    Some(())
}

fn simple_escape(text: &mut String, escaped: char) -> Option<char> {
    Some(match escaped {
        'n' => '\n',
        't' => '\t',
        'r' => '\r',
        '0' => '\0',
        'a' => '\u{7}',
        'b' => '\u{8}',
        'f' => '\u{c}',
        'v' => '\u{b}',
        '\\' | '\'' | '"' => escaped,
        // A name of a character, or digits: `repr` writes neither.
        'N' | '1'..='7' => return None,
        other => {
            text.push('\\');
            other
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, expected: &str) {
        assert_eq!(to_json(text).as_deref(), Some(expected), "{text}");
    }

    // req: CM-15
    #[test]
    fn converts_literals() {
        check("[{'id': 1, 'email': None}]", r#"[{"id":1,"email":null}]"#);
        check(
            " {'a': True, 'b': [1.5, -2, 1e+16], 'c': (1, 'x')}\n",
            r#"{"a":true,"b":[1.5,-2,1e+16],"c":[1,"x"]}"#,
        );
        check("('a',)", r#"["a"]"#);
        check("[('a'), ()]", r#"["a",[]]"#);
        check("{1: 'x', None: 2, 2.5: {}}", r#"{"1":"x","null":2,"2.5":{}}"#);
        check("{'a', 'b'}", r#"["a","b"]"#);
        check("[{'a'}, set(), {1,}]", r#"[["a"],[],[1]]"#);
        check("[1, 2,]", "[1,2]");
        check("{'a': 1,}", r#"{"a":1}"#);
    }

    // req: CM-15
    #[test]
    fn converts_text() {
        check(
            r#"['it\'s', "say \"x\"", b'bytes', r'a\d', 'é\x41\u20ac\n\\', '\d']"#,
            r#"["it's","say \"x\"","bytes","a\\d","éA€\n\\","\\d"]"#,
        );
    }

    // req: CM-15
    #[test]
    fn converts_values_of_database_drivers() {
        check(
            "[{'at': datetime.datetime(2024, 1, 2, 3, 4, 5), 'day': datetime.date(2024, 1, 2), 'price': Decimal('1.50'), 'id': UUID('a-b')}]",
            r#"[{"at":"2024-01-02T03:04:05","day":"2024-01-02","price":1.50,"id":"a-b"}]"#,
        );
    }

    // req: CM-15
    #[test]
    fn converts_ordered_dictionaries() {
        check(
            r#"[OrderedDict([('b', 1), ("a\"", Decimal('1.50'))]), OrderedDict([]), OrderedDict()]"#,
            r#"[{"b":1,"a\"":1.50},{},{}]"#,
        );
        check("[OrderedDict({'b': 1, 'a': 2})]", r#"[{"b":1,"a":2}]"#);
        check(
            "[collections.OrderedDict([('z', OrderedDict([('y', [1]), ('x', None)]))])]",
            r#"[{"z":{"y":[1],"x":null}}]"#,
        );
        for text in [
            "[OrderedDict([(1, 2)])]",
            "[OrderedDict([1])]",
            "[OrderedDict('ab')]",
            "[OrderedDict([('a',)])]",
        ] {
            assert_eq!(to_json(text), None, "{text}");
        }
    }

    // req: CM-15
    #[test]
    fn keeps_other_text() {
        for text in [
            "hello",
            "[a, b]",
            "[1, 2",
            "{'a': 1} and more",
            "[1] [2]",
            "'text'",
            "12",
            "None",
            "True",
            "(5)",
            "('a')",
            "[x for x in y]",
            "{'a': nan}",
            "(see above)",
            "{",
            "[",
            "(",
            "['a",
            "[1 2]",
            "{[1]: 2}",
            "{(1, 2): 3}",
            "[print('x')]",
            "['a\nb']",
            "",
            "{'a': 1, 2}",
            "[,]",
            "[1,,2]",
            "{,}",
            "(,)",
        ] {
            assert_eq!(to_json(text), None, "{text}");
        }
        assert_eq!(to_json(&"[".repeat(100_000)), None);
        assert_eq!(to_json(&"{".repeat(100_000)), None);
    }

    proptest::proptest! {
        // req: CM-15
        #[test]
        fn result_is_json(text in r#"[\[\{(]([\[\]{}(),: '"a1\\.-]|None|Decimal){0,20}"#) {
            if let Some(json) = to_json(&text) {
                proptest::prop_assert!(serde_json::from_str::<serde_json::Value>(&json).is_ok(), "{}", json);
            }
        }
    }
}
