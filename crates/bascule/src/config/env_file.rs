//! Reads the file that `envFile` names: lines of `NAME=VALUE`, as VS Code and dotenv understand them.
//!
//! Messages quote no line: values are secret.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use super::ownership::find_other_writer;

/// Larger files are refused: they are a mistake.
const MAX_BYTES: u64 = 1 << 20;

/// Reads the variables of a file. The error completes "could not use `PATH`: ".
pub(super) fn read_env_file(path: &Path) -> Result<Vec<(String, String)>, String> {
    let file = File::open(path).map_err(|error| error.to_string())?;
    let metadata = file.metadata().map_err(|error| error.to_string())?;
    if !metadata.is_file() {
        return Err("it is not a regular file".into());
    }
    if let Some(reason) = find_other_writer(&metadata) {
        return Err(format!("it {reason}"));
    }
    let mut bytes = Vec::new();
    file.take(MAX_BYTES + 1).read_to_end(&mut bytes).map_err(|error| error.to_string())?;
    if bytes.len() as u64 > MAX_BYTES {
        return Err("it is larger than 1 MiB".into());
    }
    parse(&String::from_utf8(bytes).map_err(|_| "it is not UTF-8 text")?)
}

fn parse(text: &str) -> Result<Vec<(String, String)>, String> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let mut variables = Vec::new();
    for (index, line) in text.lines().enumerate() {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let variable = parse_line(line.strip_prefix("export ").unwrap_or(line));
        variables.push(variable.ok_or_else(|| format!("line {} is not `NAME=VALUE`", index + 1))?);
    }
    Ok(variables)
}

fn parse_line(line: &str) -> Option<(String, String)> {
    let (name, value) = line.split_once('=')?;
    let (name, value) = (name.trim(), value.trim());
    let is_name = !name.is_empty() && name.bytes().all(|c| c.is_ascii_alphanumeric() || b"_.-".contains(&c));
    (is_name && !value.contains('\0')).then_some((name.to_owned(), unquote(value)?))
}

/// Removes quotes, or the comment after a value without quotes. Double quotes may contain escapes.
fn unquote(value: &str) -> Option<String> {
    match value.chars().next() {
        Some('\'') => Some(value[1..].split_once('\'')?.0.to_owned()),
        Some('"') => unescape(&value[1..]),
        _ => Some(value.split_once(" #").map_or(value, |(value, _)| value.trim_end()).to_owned()),
    }
}

/// Reads up to the closing quote.
fn unescape(text: &str) -> Option<String> {
    let (mut out, mut chars) = (String::new(), text.chars());
    loop {
        match chars.next()? {
            '"' => return Some(out),
            '\\' => match chars.next()? {
                'n' => out.push('\n'),
                't' => out.push('\t'),
                'r' => out.push('\r'),
                other => out.push(other),
            },
            c => out.push(c),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, expected: &[(&str, &str)]) {
        let variables = parse(text).unwrap();
        let variables: Vec<(&str, &str)> = variables.iter().map(|(n, v)| (n.as_str(), v.as_str())).collect();
        assert_eq!(variables, expected);
    }

    // req: BR-01
    #[test]
    fn reads_names_and_values() {
        check(
            "# a comment\n\nA=1\r\nexport B = two words \nC=",
            &[("A", "1"), ("B", "two words"), ("C", "")],
        );
        check("A=x # comment\nB=x#y\nC='a # b' # c", &[("A", "x"), ("B", "x#y"), ("C", "a # b")]);
        check(r#"A="line\n\"end\"" # c"#, &[("A", "line\n\"end\"")]);
    }

    #[test]
    fn names_the_line_of_a_mistake_and_not_its_text() {
        for text in ["A=1\nhunter2", "A=1\nhun ter=2", "A=1\nB=\"hunter2", "A=1\n=hunter2"] {
            assert_eq!(parse(text).unwrap_err(), "line 2 is not `NAME=VALUE`", "{text}");
        }
    }
}
