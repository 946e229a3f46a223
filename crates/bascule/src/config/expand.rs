//! Puts values in the place of `${VARIABLES}`.
//!
//! `${VAR}`, `${VAR:-default}`, VS Code's `${env:VAR}` and `${workspaceFolder}`. A `$` before anything but `{`
//! is an ordinary character, and a value put in is never looked at again. Knows the file's folder, which
//! relative paths start from, as well.

use std::path::{Path, PathBuf};

/// Where a program's environment is looked up; an argument, so that tests need not change their own.
pub type Environment<'a> = &'a dyn Fn(&str) -> Option<String>;

/// What variables stand for.
pub(super) struct Variables<'a> {
    environment: Environment<'a>,
    folder: &'a Path,
}

/// Why a text cannot be expanded. Quotes the names of variables, never the text around them: it may be secret.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum ExpandError {
    #[error("the environment variable `{0}` is not set (a default is given with `${{{0}:-…}}`)")]
    Undefined(String),
    #[error("holds a `${{` without its `}}`")]
    Unterminated,
    #[error("holds a `${{` inside the default of another: a default is plain text")]
    Nested,
    #[error("asks for an input (`${{input:…}}`), and Bascule cannot ask: use an environment variable")]
    Input,
    #[error("holds a `${{…}}` that does not name a variable")]
    NoName,
}

impl<'a> Variables<'a> {
    /// Looks variables up in `environment`; `folder` is the one the configuration file lies in.
    pub(super) fn new(environment: Environment<'a>, folder: &'a Path) -> Self {
        Self { environment, folder }
    }

    /// The text with all its variables filled in, or everything that is wrong with it.
    pub(super) fn expand(&self, text: &str) -> Result<String, Vec<ExpandError>> {
        let (mut out, mut errors, mut rest) = (String::new(), Vec::new(), text);
        while let Some((before, after)) = rest.split_once("${") {
            out.push_str(before);
            let Some((inside, remainder)) = after.split_once('}') else {
                errors.push(ExpandError::Unterminated);
                return Err(errors);
            };
            match self.value(inside) {
                Ok(value) => out.push_str(&value),
                Err(error) => errors.push(error),
            }
            rest = remainder;
        }
        out.push_str(rest);
        if errors.is_empty() { Ok(out) } else { Err(errors) }
    }

    /// A path, made absolute by the folder the file lies in.
    pub(super) fn absolute(&self, path: &str) -> PathBuf {
        // Collected from its components, it has no `/./` inside.
        self.folder.join(path).components().collect()
    }

    fn value(&self, inside: &str) -> Result<String, ExpandError> {
        let (name, default) = match inside.split_once(":-") {
            Some((name, default)) => (name, Some(default)),
            None => (inside, None),
        };
        match default {
            _ if inside.contains("${") => Err(ExpandError::Nested),
            _ if name == "workspaceFolder" => Ok(self.workspace_folder()),
            _ if name.starts_with("input:") => Err(ExpandError::Input),
            default => self.environment_value(name.strip_prefix("env:").unwrap_or(name), default),
        }
    }

    // As in the shell, `:-` also replaces a variable that is set but empty.
    fn environment_value(&self, name: &str, default: Option<&str>) -> Result<String, ExpandError> {
        if !is_variable_name(name) {
            return Err(ExpandError::NoName);
        }
        match ((self.environment)(name), default) {
            (Some(value), Some(default)) if value.is_empty() => Ok(default.into()),
            (Some(value), _) => Ok(value),
            (None, Some(default)) => Ok(default.into()),
            (None, None) => Err(ExpandError::Undefined(name.into())),
        }
    }

    // VS Code keeps the file in a subfolder of what it calls the workspace.
    fn workspace_folder(&self) -> String {
        let inside = self.folder.file_name().is_some_and(|name| name == ".vscode");
        let workspace = if inside { self.folder.parent() } else { None };
        workspace.unwrap_or(self.folder).to_string_lossy().into_owned()
    }
}

fn is_variable_name(name: &str) -> bool {
    let legal = |c: u8| c.is_ascii_alphanumeric() || c == b'_';
    name.bytes().all(legal) && name.starts_with(|c: char| !c.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn environment(name: &str) -> Option<String> {
        let value = match name {
            "HOST" => "db",
            "EMPTY" => "",
            "TRICKY" => "${HOST}",
            _ => return None,
        };
        Some(value.into())
    }

    fn expand(text: &str) -> Result<String, Vec<ExpandError>> {
        Variables::new(&environment, Path::new("/home/me/project")).expand(text)
    }

    #[track_caller]
    fn check(text: &str, expected: &str) {
        assert_eq!(expand(text).as_deref(), Ok(expected));
    }

    #[track_caller]
    fn check_errors(text: &str, expected: &[ExpandError]) {
        assert_eq!(expand(text).unwrap_err(), expected);
    }

    // req: BR-01
    #[test]
    fn variables_are_filled_in_wherever_they_stand() {
        check("http://${HOST}:${PORT:-80}/${HOST}", "http://db:80/db");
        check("${env:HOST}${env:PORT:-x}", "dbx");
        check("no variables", "no variables");
    }

    #[test]
    fn a_default_replaces_what_is_unset_or_empty() {
        check("${HOST:-x}|${EMPTY:-x}|${NOPE:-x}|${NOPE:-}|${EMPTY}", "db|x|x||");
    }

    #[test]
    fn a_dollar_before_anything_else_stays() {
        check("$HOST $ $$ $1 5$ }", "$HOST $ $$ $1 5$ }");
        check("$${HOST}", "$db");
    }

    #[test]
    fn a_value_is_not_expanded_again() {
        check("${TRICKY}", "${HOST}");
    }

    #[test]
    fn every_undefined_variable_is_named() {
        let undefined = |name: &str| ExpandError::Undefined(name.into());
        check_errors("${A}${HOST}${env:B}", &[undefined("A"), undefined("B")]);
        assert_eq!(
            undefined("A").to_string(),
            "the environment variable `A` is not set (a default is given with `${A:-…}`)"
        );
    }

    #[test]
    fn what_is_no_variable_is_refused() {
        check_errors("${A:-x}${", &[ExpandError::Unterminated]);
        check_errors("${NOPE:-${HOST}}", &[ExpandError::Nested]);
        for text in ["${}", "${1}", "${a b}", "${command:x}", "${env:}", "${A:?x}"] {
            check_errors(text, &[ExpandError::NoName]);
        }
    }

    #[test]
    fn an_input_cannot_be_asked_for() {
        check_errors("Bearer ${input:token}", &[ExpandError::Input]);
        assert_eq!(
            ExpandError::Input.to_string(),
            "asks for an input (`${input:…}`), and Bascule cannot ask: use an environment variable"
        );
    }

    #[test]
    fn the_workspace_is_the_files_folder_or_the_one_above_vscode() {
        check("${workspaceFolder}/x", "/home/me/project/x");
        let inside = Variables::new(&environment, Path::new("/home/me/project/.vscode"));
        assert_eq!(inside.expand("${workspaceFolder}").as_deref(), Ok("/home/me/project"));
    }
}
