//! `bascule add` and `bascule remove`: change the servers of the configuration file.

use std::path::Path;
use std::process::ExitCode;

use bascule_catalog::nearest_name;
use bascule_model::ServerName;
use serde_json::{Value, json};

use super::own_file::OwnFile;
use crate::cli::error::{CommandError, CommandResult};
use crate::cli::printer::Printer;
use crate::clients::ProgramSearch;
use crate::document::Tree;

/// Add a server to the configuration file
///
/// The file is edited in place: comments, order and indentation stay. Without a configuration file, your own one in
/// ~/.config/bascule is made. A running bridge starts the server at once.
///
/// Examples:
///   bascule add time -- uvx mcp-server-time
///   bascule add files --sandbox strict -- npx -y @modelcontextprotocol/server-filesystem /data
///   bascule add github https://api.githubcopilot.com/mcp/ --header 'Authorization: Bearer ${GITHUB_TOKEN}'
#[derive(Debug, clap::Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct Add {
    /// Name of the server: letters, digits, `_` and `-`
    name: String,
    /// URL of a remote server
    #[arg(required_unless_present = "command")]
    url: Option<String>,
    /// Program and its arguments, after `--`
    #[arg(last = true, conflicts_with = "url")]
    command: Vec<String>,
    /// Environment variable of the program; `${VAR}` in the value keeps a secret out of the file
    #[arg(long = "env", short, value_name = "NAME=VALUE", conflicts_with = "url")]
    env: Vec<String>,
    /// Header of every request to a remote server
    #[arg(long = "header", short = 'H', value_name = "NAME: VALUE", requires = "url")]
    headers: Vec<String>,
    /// Working folder of the program
    #[arg(long, value_name = "FOLDER", conflicts_with = "url")]
    cwd: Option<String>,
    /// Protocol of a remote server [default: detected]
    #[arg(long = "type", value_parser = ["http", "sse"], requires = "url")]
    kind: Option<String>,
    /// Confinement of the program: off, standard, strict or a JSON object
    #[arg(long, conflicts_with = "url")]
    sandbox: Option<String>,
    /// Replace a server with this name
    #[arg(long)]
    replace: bool,
}

impl Add {
    pub(crate) fn run(self, config: Option<&Path>, printer: &Printer) -> CommandResult {
        ServerName::parse(&self.name).map_err(|error| CommandError::Usage(error.to_string()))?;
        let fields = self.fields()?;
        let own = OwnFile::find(config)?;
        let mut text = own.file.text().to_owned();
        if own.server(&self.name)?.is_some() {
            if !self.replace {
                let message =
                    "there is already a server `{}`: `--replace` replaces it".replace("{}", &self.name);
                return Err(CommandError::Usage(message));
            }
            text = own.without_server(&self.name)?;
        }
        let text = own.with_server(&text, &self.name, &fields)?;
        if let Some(program) = self.command.first().filter(|program| !is_found(program)) {
            printer.print_note(&format!("warning: `{program}` was not found in PATH"));
        }
        write(own, text, "added", &self.name, printer)
    }

    fn fields(&self) -> CommandResult<Vec<(String, Tree)>> {
        let mut fields: Vec<(String, Tree)> = Vec::new();
        let mut add = |key: &str, value: Tree| fields.push((key.into(), value));
        if let Some(kind) = &self.kind {
            add("type", Tree::text(kind));
        }
        if let Some(url) = &self.url {
            add("url", Tree::text(url));
        }
        if let [program, args @ ..] = &*self.command {
            add("command", Tree::text(program));
            if !args.is_empty() {
                add("args", Tree::texts(args));
            }
        }
        if let Some(cwd) = &self.cwd {
            add("cwd", Tree::text(cwd));
        }
        for (key, pairs, separator, form) in
            [("env", &self.env, '=', "NAME=VALUE"), ("headers", &self.headers, ':', "NAME: VALUE")]
        {
            if !pairs.is_empty() {
                add(
                    key,
                    Tree::Map(
                        pairs.iter().map(|pair| split(pair, separator, form)).collect::<Result<_, _>>()?,
                    ),
                );
            }
        }
        if let Some(sandbox) = &self.sandbox {
            add("sandbox", read_sandbox(sandbox)?);
        }
        Ok(fields)
    }
}

fn split(pair: &str, separator: char, form: &str) -> CommandResult<(String, Tree)> {
    let (name, value) = pair
        .split_once(separator)
        .filter(|(name, _)| !name.trim().is_empty())
        // The value may be a secret.
        .ok_or_else(|| CommandError::Usage(format!("expected `{form}`: a `{separator}` is missing")))?;
    let value = if separator == ':' { value.trim() } else { value };
    Ok((name.trim().to_owned(), Tree::text(value)))
}

/// Rules are JSON; the names of profiles are not.
fn read_sandbox(text: &str) -> CommandResult<Tree> {
    match text.trim_start().starts_with('{') {
        false => Ok(Tree::text(text)),
        true => serde_json::from_str::<Value>(text)
            .map(Tree::from)
            .map_err(|error| CommandError::Usage(format!("`--sandbox` is not JSON: {error}"))),
    }
}

fn is_found(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut folders = std::env::split_paths(&path);
    program.contains('/')
        || folders.any(|folder| folder.join(program).is_file())
        || ProgramSearch::is_in_system_folder(program)
}

/// Remove a server from the configuration file
///
/// The file is edited in place: comments, order and indentation of the rest stay. A running bridge stops the server.
#[derive(Debug, clap::Args)]
pub(crate) struct Remove {
    /// Name of the server
    name: String,
}

impl Remove {
    pub(crate) fn run(self, config: Option<&Path>, printer: &Printer) -> CommandResult {
        let own = OwnFile::find(config)?;
        let names = own.names()?;
        if !names.contains(&self.name) {
            let near = nearest_name(names.iter().map(String::as_str), &self.name);
            let hint = near.map_or_else(String::new, |near| format!("; did you mean `{near}`?"));
            let path = own.path().display();
            return Err(CommandError::Usage(format!("there is no server `{}` in `{path}`{hint}", self.name)));
        }
        let text = own.without_server(&self.name)?;
        write(own, text, "removed", &self.name, printer)
    }
}

/// Writes the file without asking: the command names the change itself.
fn write(own: OwnFile, text: String, action: &str, name: &str, printer: &Printer) -> CommandResult {
    let (change, origin) = own.into_change(text, &[]);
    OwnFile::write(&change, origin)?;
    let path = change.file.path.display().to_string();
    match printer.json {
        true => printer.print_json(
            &json!({ "file": path, action: [name], "difference": change.difference, "written": true }),
        ),
        false => {
            change.print(printer);
            let next = if action == "added" { "; `bascule check` starts it once" } else { "" };
            printer.print_line(&format!("{action} `{name}`{next}"));
        }
    }
    Ok(ExitCode::SUCCESS)
}
