//! Replaces `${VARIABLES}` in the values of the configuration.
//!
//! Supports `${VAR}`, `${VAR:-default}`, and of VS Code and Cursor `${env:VAR}`, `${workspaceFolder}`,
//! `${workspaceFolderBasename}`, `${userHome}`, `${pathSeparator}` and `${/}`. A `$` that no `{` follows is plain text. Inserted values are not expanded again. Relative paths are resolved here too, against the file's
//! directory.

use std::path::{Path, PathBuf};

/// Looks up an environment variable. An argument, so that tests do not change their own environment.
pub type EnvLookup<'a> = &'a dyn Fn(&str) -> Option<String>;

/// Looks up a variable in the environment of this process.
pub(crate) fn process_environment(name: &str) -> Option<String> {
    std::env::var(name).ok()
}

/// Expands variables and relative paths.
pub(super) struct VariableExpander<'a> {
    environment: EnvLookup<'a>,
    directory: &'a Path,
}

/// A text could not be expanded. Messages quote names of variables only: the text around them may be secret.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum ExpandError {
    #[error("environment variable `{0}` is not set: set it, or write a default as `${{{0}:-default}}`")]
    Undefined(String),
    #[error("`${{` has no closing `}}`")]
    Unterminated,
    #[error("the default of a variable contains another `${{`: a default is plain text")]
    Nested,
    #[error(
        "`${{input:{0}}}` is not supported, because Bascule does not prompt: write `${{{1}}}` and set that environment variable"
    )]
    Input(String, String),
    #[error(
        "`${{{0}:…}}` of VS Code is not supported: write the value, or `${{VAR}}` and set that environment variable"
    )]
    Editor(String),
    #[error("`${{…}}` does not name a variable: write `${{VAR}}`, `${{VAR:-default}}` or `${{env:VAR}}`")]
    InvalidName,
}

impl<'a> VariableExpander<'a> {
    /// `directory` is the one that contains the configuration file.
    pub(super) fn new(environment: EnvLookup<'a>, directory: &'a Path) -> Self {
        Self { environment, directory }
    }

    /// Replaces all variables of a text, or returns everything that is wrong with it.
    pub(super) fn expand(&self, text: &str) -> Result<String, Vec<ExpandError>> {
        let (mut out, mut errors, mut rest) = (String::new(), Vec::new(), text);
        while let Some((before, after)) = rest.split_once("${") {
            out.push_str(before);
            let Some((inside, remainder)) = after.split_once('}') else {
                errors.push(ExpandError::Unterminated);
                return Err(errors);
            };
            match self.resolve(inside) {
                Ok(value) => out.push_str(&value),
                Err(error) => errors.push(error),
            }
            rest = remainder;
        }
        out.push_str(rest);
        if errors.is_empty() { Ok(out) } else { Err(errors) }
    }

    /// Returns the first variable of a text that is set and whose value may be secret.
    pub(super) fn find_secret<'t>(&self, text: &'t str) -> Option<&'t str> {
        self.secrets_in(text).next().map(|(name, _)| name)
    }

    /// Returns the variables of a text that are set and whose values may be secret, with their values.
    pub(super) fn secrets_in<'t>(&self, text: &'t str) -> impl Iterator<Item = (&'t str, String)> {
        const PLAIN: [&str; 9] =
            ["HOME", "USER", "LOGNAME", "PWD", "PATH", "SHELL", "LANG", "TMPDIR", "workspaceFolder"];
        let insides =
            text.split("${").skip(1).filter_map(|rest| rest.split_once('}')).map(|(inside, _)| inside);
        let names = insides.map(|inside| inside.split_once(":-").map_or(inside, |(name, _)| name));
        let names = names.map(|name| name.strip_prefix("env:").unwrap_or(name));
        let names = names.filter(|name| !PLAIN.contains(name) && !name.starts_with("XDG_"));
        names.filter_map(|name| Some((name, (self.environment)(name).filter(|value| !value.is_empty())?)))
    }

    /// Resolves a path against the file's directory.
    pub(super) fn absolute_path(&self, path: &str) -> PathBuf {
        // Collecting the components removes `/./`.
        self.directory.join(path).components().collect()
    }

    fn resolve(&self, inside: &str) -> Result<String, ExpandError> {
        let (name, default) = match inside.split_once(":-") {
            Some((name, default)) => (name, Some(default)),
            None => (inside, None),
        };
        match default {
            _ if inside.contains("${") => Err(ExpandError::Nested),
            _ if name == "workspaceFolder" => Ok(self.workspace_folder()),
            _ if name == "workspaceFolderBasename" => {
                let folder = PathBuf::from(self.workspace_folder());
                Ok(folder.file_name().unwrap_or_default().to_string_lossy().into_owned())
            }
            _ if name == "userHome" => self.resolve_env("HOME", default),
            _ if name == "pathSeparator" || name == "/" => Ok("/".into()),
            default => match name.split_once(':') {
                Some(("env", name)) => self.resolve_env(name, default),
                Some(("input", id)) => Err(input_error(id)),
                Some((kind @ ("command" | "config" | "extensionInstallFolder"), _)) => {
                    Err(ExpandError::Editor(kind.into()))
                }
                _ => self.resolve_env(name, default),
            },
        }
    }

    // As in the shell, `:-` also replaces a variable that is set but empty.
    fn resolve_env(&self, name: &str, default: Option<&str>) -> Result<String, ExpandError> {
        if !is_variable_name(name) {
            return Err(ExpandError::InvalidName);
        }
        match ((self.environment)(name), default) {
            (Some(value), Some(default)) if value.is_empty() => Ok(default.into()),
            (Some(value), _) => Ok(value),
            (None, Some(default)) => Ok(default.into()),
            (None, None) => Err(ExpandError::Undefined(name.into())),
        }
    }

    // VS Code keeps its file in the `.vscode` directory of the workspace.
    fn workspace_folder(&self) -> String {
        let is_vscode = self.directory.file_name().is_some_and(|name| name == ".vscode");
        let workspace = if is_vscode { self.directory.parent() } else { None };
        workspace.unwrap_or(self.directory).to_string_lossy().into_owned()
    }
}

/// Suggests the environment variable `GITHUB_TOKEN` for the input `github-token`. The id comes from the file and is quoted
/// only if it is a plain word.
fn input_error(id: &str) -> ExpandError {
    let is_plain = !id.is_empty()
        && id.len() <= 60
        && id.chars().all(|c| c.is_ascii_alphanumeric() || "_-.".contains(c));
    if !is_plain {
        return ExpandError::Input("…".into(), "VAR".into());
    }
    let upper: String =
        id.chars().map(|c| if c.is_ascii_alphanumeric() { c.to_ascii_uppercase() } else { '_' }).collect();
    let variable = if is_variable_name(&upper) { upper } else { format!("INPUT_{upper}") };
    ExpandError::Input(id.into(), variable)
}

fn is_variable_name(name: &str) -> bool {
    let is_legal = |c: u8| c.is_ascii_alphanumeric() || c == b'_';
    name.bytes().all(is_legal) && name.starts_with(|c: char| !c.is_ascii_digit())
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
        VariableExpander::new(&environment, Path::new("/home/me/project")).expand(text)
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
    fn replaces_variables_anywhere_in_the_text() {
        check("http://${HOST}:${PORT:-80}/${HOST}", "http://db:80/db");
        check("${env:HOST}${env:PORT:-x}", "dbx");
        check("no variables", "no variables");
    }

    #[test]
    fn default_replaces_unset_and_empty_variables() {
        check("${HOST:-x}|${EMPTY:-x}|${NOPE:-x}|${NOPE:-}|${EMPTY}", "db|x|x||");
    }

    #[test]
    fn dollar_without_brace_is_plain_text() {
        check("$HOST $ $$ $1 5$ }", "$HOST $ $$ $1 5$ }");
        check("$${HOST}", "$db");
    }

    #[test]
    fn inserted_values_are_not_expanded_again() {
        check("${TRICKY}", "${HOST}");
    }

    #[test]
    fn reports_every_undefined_variable() {
        let undefined = |name: &str| ExpandError::Undefined(name.into());
        check_errors("${A}${HOST}${env:B}", &[undefined("A"), undefined("B")]);
        assert_eq!(
            undefined("A").to_string(),
            "environment variable `A` is not set: set it, or write a default as `${A:-default}`"
        );
    }

    #[test]
    fn refuses_malformed_variables() {
        check_errors("${A:-x}${", &[ExpandError::Unterminated]);
        check_errors("${NOPE:-${HOST}}", &[ExpandError::Nested]);
        for text in ["${}", "${1}", "${a b}", "${env:}", "${A:?x}"] {
            check_errors(text, &[ExpandError::InvalidName]);
        }
        check_errors("${command:x}", &[ExpandError::Editor("command".into())]);
    }

    #[test]
    fn refuses_input_variables() {
        let error = &expand("Bearer ${input:github-token}").unwrap_err()[0];
        assert_eq!(
            error.to_string(),
            "`${input:github-token}` is not supported, because Bascule does not prompt: write `${GITHUB_TOKEN}` and set \
             that environment variable"
        );
        check_errors("${input:2fa}", &[ExpandError::Input("2fa".into(), "INPUT_2FA".into())]);
        check_errors("${input:a b}", &[ExpandError::Input("…".into(), "VAR".into())]);
    }

    // req: BR-01
    #[test]
    fn replaces_variables_of_editors() {
        check("${workspaceFolderBasename}${/}x${pathSeparator}y", "project/x/y");
        check_errors("${userHome}", &[ExpandError::Undefined("HOME".into())]);
    }

    #[test]
    fn workspace_folder_is_the_files_directory_or_the_parent_of_vscode() {
        check("${workspaceFolder}/x", "/home/me/project/x");
        let inside = VariableExpander::new(&environment, Path::new("/home/me/project/.vscode"));
        assert_eq!(inside.expand("${workspaceFolder}").as_deref(), Ok("/home/me/project"));
    }
}
