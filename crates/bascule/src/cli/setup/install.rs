//! `bascule install` and `bascule uninstall`: the entry of Bascule in the configuration file of an MCP client.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use serde_json::{Value, json};

use super::file_change::{
    Decision, FileChange, WriteOptions, add_decision, at_file, finish, parse_file, read_file,
};
use crate::cli::context::CommandContext;
use crate::cli::error::{CommandError, CommandResult};
use crate::cli::printer::Printer;
use crate::cli::terminal::{pad, sanitize_line};
use crate::clients::{
    CLIENTS, ClientFile, ClientProgram, EntryTarget, Machine, ProgramSearch, fields_of, is_bascule,
    stale_keys,
};
use crate::config::{Authentication, Settings, TransportSettings};
use crate::document::{Content, Document, Tree};
use crate::settings_file::SettingsFile;
use crate::token;

/// The name of the entry, unless another one is asked for.
const NAME: &str = "bascule";

/// Put Bascule into the configuration of an MCP client
///
/// Writes an entry that starts `bascule serve --stdio` with this configuration into the client's own file. Shows the
/// difference first and asks; keeps a backup beside the file; comments, order and all other entries stay as they are.
/// Without CLIENT, lists the clients that were found here.
#[derive(Debug, clap::Args)]
pub(crate) struct Install {
    /// The client
    #[arg(value_parser = client_ids())]
    client: Option<String>,
    /// List the clients that were found here
    #[arg(long, conflicts_with = "client")]
    list: bool,
    /// Take Bascule out again
    #[arg(long, requires = "client", conflicts_with = "http")]
    remove: bool,
    /// Connect over HTTP to a running `bascule serve`. The file then contains the token
    #[arg(long, requires = "client")]
    http: bool,
    #[command(flatten)]
    target: Target,
}

/// Take Bascule out of the configuration of an MCP client
///
/// Removes the entry that `bascule install` made and leaves the rest of the file byte for byte as it is.
#[derive(Debug, clap::Args)]
pub(crate) struct Uninstall {
    /// The client
    #[arg(value_parser = client_ids())]
    client: String,
    #[command(flatten)]
    target: Target,
}

/// The entry to change.
#[derive(Debug, clap::Args)]
struct Target {
    /// Use the client's file in the working folder instead of that of the user
    #[arg(long)]
    project: bool,
    /// Name of the entry [default: bascule]
    #[arg(long)]
    name: Option<String>,
    #[command(flatten)]
    write: WriteOptions,
}

fn client_ids() -> clap::builder::PossibleValuesParser {
    clap::builder::PossibleValuesParser::new(
        CLIENTS.iter().map(|client| clap::builder::PossibleValue::new(client.id).help(client.title)),
    )
}

impl Install {
    pub(crate) fn run(
        self,
        find: impl FnOnce() -> CommandResult<CommandContext>,
        printer: &Printer,
    ) -> CommandResult {
        let machine = this_machine(&crate::config::process_environment)?;
        match self.client.as_deref().and_then(ClientProgram::by_id) {
            None => list(&machine, printer),
            Some(client) if self.remove => self.target.remove(client, &machine, printer),
            Some(client) => self.target.install(client, &machine, self.http, &find()?, printer),
        }
    }
}

impl Uninstall {
    pub(crate) fn run(self, printer: &Printer) -> CommandResult {
        let machine = this_machine(&crate::config::process_environment)?;
        let client =
            ClientProgram::by_id(&self.client).ok_or_else(|| CommandError::Usage("no such client".into()))?;
        self.target.remove(client, &machine, printer)
    }
}

pub(crate) fn this_machine(environment: crate::config::EnvLookup<'_>) -> CommandResult<Machine<'_>> {
    Machine::this(environment)
        .map_err(|error| CommandError::Usage(format!("could not find the working folder: {error}")))
}

impl Target {
    fn install(
        self,
        client: &'static ClientProgram,
        machine: &Machine,
        is_http: bool,
        context: &CommandContext,
        printer: &Printer,
    ) -> CommandResult {
        let ClientFile { form, path } = self.file(client, machine)?;
        // The entry names the file, and thereby trusts it.
        let config = context.load(printer)?;
        context.require_trust(&config, true, printer)?;
        let endpoint = endpoint(is_http, context, &config.settings)?;
        let file = read_file(&path)?;
        let document = parse_file(&file, form.format)?;
        let (name, is_known) = self.choose_name(form, &file, &document)?;
        let existing = existing_entry(form, &file, &document, &name)?;
        let Some(fields) = fields_of(form, &name, &endpoint, &existing) else {
            return Err(CommandError::Usage(format!(
                "{} starts processes only: leave out `--http`",
                client.title
            )));
        };
        let text = document.set_server(form.place, &name, &fields, &stale_keys(form, &endpoint, &fields));
        let text = text.map_err(|error| at_file(&file, &error))?;
        drop(document);
        let token = match &endpoint {
            EntryTarget::Http { token: Some(token), .. } => vec![token.clone()],
            _ => Vec::new(),
        };
        let mut change = FileChange::new(file, Some(text), form.format, &token);
        change.is_private = !token.is_empty();
        let notes = notes(client, &endpoint, &config.settings, &path);
        let action = match is_known {
            _ if change.is_empty() => "none",
            true => "updated",
            false => "added",
        };
        self.report(client, &name, change, action, notes, printer)
    }

    fn remove(self, client: &'static ClientProgram, machine: &Machine, printer: &Printer) -> CommandResult {
        let ClientFile { form, path } = self.file(client, machine)?;
        let file = read_file(&path)?;
        let document = parse_file(&file, form.format)?;
        let Some(name) = self.installed_name(form, &file, &document)? else {
            drop(document);
            let text = file.exists().then(|| file.text().to_owned());
            let change = FileChange::new(file, text, form.format, &[]);
            return self.report(client, NAME, change, "none", Vec::new(), printer);
        };
        let text = match original(form, &file, &document, &name) {
            Some(original) => original,
            None => Some(document.remove_server(form.place, &name).map_err(|error| at_file(&file, &error))?),
        };
        drop(document);
        let change = FileChange::new(file, text, form.format, &[]);
        self.report(client, &name, change, "removed", vec![next_start(client)], printer)
    }

    fn file(&self, client: &'static ClientProgram, machine: &Machine) -> CommandResult<ClientFile> {
        let file = if self.project { machine.project_file(client) } else { machine.user_file(client) };
        file.ok_or_else(|| {
            CommandError::Usage(match self.project {
                true => format!("{} has no file for a project: leave out `--project`", client.title),
                false => format!("{} keeps no file on this system", client.title),
            })
        })
    }

    /// Returns the name of the entry, and true if the file has it already.
    fn choose_name(
        &self,
        form: &ClientProgram,
        file: &SettingsFile,
        document: &Document,
    ) -> CommandResult<(String, bool)> {
        if let Some(name) = self.installed_name(form, file, document)? {
            return Ok((name, true));
        }
        let name = self.name.as_deref().unwrap_or(NAME);
        let servers = document.servers(form.place).map_err(|error| at_file(file, &error))?;
        match servers.iter().any(|(own, _)| own == name) {
            true => Err(CommandError::Usage(format!(
                "`{}` has another server named `{name}`: choose a name with `--name`",
                file.path.display()
            ))),
            false => Ok((name.to_owned(), false)),
        }
    }

    /// Finds the entry of Bascule: the one with the name that was asked for, else any.
    fn installed_name(
        &self,
        form: &ClientProgram,
        file: &SettingsFile,
        document: &Document,
    ) -> CommandResult<Option<String>> {
        let servers = document.servers(form.place).map_err(|error| at_file(file, &error))?;
        let mut ours = servers.iter().filter(|(name, node)| {
            let asked = self.name.as_ref().is_some_and(|asked| asked == name);
            (self.name.is_none() || asked) && is_bascule(if asked { NAME } else { name }, &node.to_json())
        });
        Ok(ours.next().map(|(name, _)| name.clone()))
    }

    fn report(
        self,
        client: &ClientProgram,
        name: &str,
        change: FileChange,
        action: &str,
        notes: Vec<String>,
        printer: &Printer,
    ) -> CommandResult {
        let decision = match action {
            "none" => Decision::Show,
            _ => change.decide(self.write, printer),
        };
        let backup = match decision {
            Decision::Write if action == "removed" => write_removal(&change)?,
            Decision::Write => change.write(true)?,
            _ => None,
        };
        let path = change.file.path.display().to_string();
        if printer.json {
            let mut document = json!({
                "client": client.id, "file": path, "name": name, "action": action,
                "difference": change.difference, "backup": backup, "notes": notes,
            });
            add_decision(&mut document, &decision);
            printer.print_json(&document);
        } else {
            print_result(client, &path, action, &decision, backup.as_deref(), &notes, printer);
        }
        finish(&decision, printer)
    }
}

fn print_result(
    client: &ClientProgram,
    path: &str,
    action: &str,
    decision: &Decision,
    backup: Option<&Path>,
    notes: &[String],
    printer: &Printer,
) {
    match (action, decision) {
        ("none", _) => printer.print_line(&format!("nothing to change for {} in {path}", client.title)),
        (_, Decision::Write) => {
            let preposition = match action {
                "added" => "to",
                "removed" => "from",
                _ => "in",
            };
            printer.print_line(&format!("{action} Bascule {preposition} {}", client.title));
            if let Some(backup) = backup {
                printer.print_line(&format!("the file before: {}", backup.display()));
            }
            notes.iter().for_each(|note| printer.print_line(&format!("note: {note}")));
        }
        _ => notes.iter().for_each(|note| printer.print_line(&format!("note: {note}"))),
    }
}

/// Returns the entry with this name; null if there is none.
fn existing_entry(
    form: &ClientProgram,
    file: &SettingsFile,
    document: &Document,
    name: &str,
) -> CommandResult<Value> {
    let servers = document.servers(form.place).map_err(|error| at_file(file, &error))?;
    let entry = servers.iter().find(|(own, _)| own == name);
    Ok(entry.map_or(Value::Null, |(_, node)| node.to_json()))
}

fn next_start(client: &ClientProgram) -> String {
    format!("{} leaves it out from its next start", client.title)
}

/// Removes the entry. A file that is as it was before the installation needs no backup any more.
fn write_removal(change: &FileChange) -> CommandResult<Option<PathBuf>> {
    let is_restored = change.text.is_none() || change.text == change.file.backup_text();
    if !is_restored {
        return change.write(true);
    }
    change.write(false)?;
    let _ = std::fs::remove_file(change.file.backup_path());
    Ok(None)
}

/// Returns the text from before the installation (`None`: there was no file), if nothing else has changed since.
fn original(
    form: &ClientProgram,
    file: &SettingsFile,
    document: &Document,
    name: &str,
) -> Option<Option<String>> {
    let servers = document.servers(form.place).ok()?;
    let entry = servers.iter().find(|(own, _)| own == name).map(|(_, node)| *node)?;
    let Content::Map(members) = &entry.content else { return None };
    let fields: Vec<(String, Tree)> =
        members.iter().map(|member| (member.key.clone(), member.node.to_tree())).collect();
    let with_entry = |text: &str| {
        let document = Document::parse(form.format, text).ok()?;
        let is_new = !document.servers(form.place).ok()?.iter().any(|(own, _)| own == name);
        document.set_server(form.place, name, &fields, &[]).ok().filter(|_| is_new)
    };
    let is_original = |text: &str| with_entry(text).as_deref() == Some(file.text());
    match file.backup_text() {
        Some(backup) if is_original(&backup) => Some(Some(backup)),
        _ if is_original("") => Some(None),
        _ => None,
    }
}

fn endpoint(is_http: bool, context: &CommandContext, settings: &Settings) -> CommandResult<EntryTarget> {
    let failed = |error: std::io::Error| CommandError::Usage(format!("could not prepare the entry: {error}"));
    if !is_http {
        let config = std::path::absolute(context.path()).map_err(failed)?;
        let program = own_program().map_err(failed)?;
        let words = ["serve", "--stdio", "--config"].map(str::to_owned);
        let args = words.into_iter().chain([as_text(&config)?]).collect();
        return Ok(EntryTarget::Stdio { command: as_text(&program)?, args });
    }
    let bridge = &settings.bridge;
    let token = match bridge.auth {
        Authentication::None => None,
        Authentication::Token => {
            Some(token::load_or_create(context.path()).map_err(failed)?.reveal().clone())
        }
    };
    Ok(EntryTarget::Http { url: format!("http://{}/mcp", bridge.listen), token })
}

fn as_text(path: &Path) -> CommandResult<String> {
    let text = path.to_str().map(str::to_owned);
    text.ok_or_else(|| CommandError::Usage(format!("the path `{}` is not UTF-8", path.display())))
}

/// Returns the path of this program: the one in PATH, which an update keeps, if it leads to the same file.
fn own_program() -> std::io::Result<PathBuf> {
    let program = std::env::current_exe()?;
    let real = program.canonicalize()?;
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut in_path =
        std::env::split_paths(&path).filter(|folder| folder.is_absolute()).map(|folder| folder.join(NAME));
    let known = in_path.find(|path| path.canonicalize().is_ok_and(|path| path == real));
    Ok(known.unwrap_or(program))
}

/// Facts that the user should know, and the next step.
fn notes(client: &ClientProgram, endpoint: &EntryTarget, settings: &Settings, path: &Path) -> Vec<String> {
    let mut notes = Vec::new();
    match endpoint {
        EntryTarget::Http { token, .. } => {
            if token.is_some() {
                notes.push(format!(
                    "`{}` contains the token now: do not share the file or put it under version control",
                    path.display()
                ));
            }
            notes.push("`bascule serve` must run whenever the client does".into());
        }
        EntryTarget::Stdio { .. } => {
            let bare: Vec<&str> = settings
                .servers
                .iter()
                .filter_map(|server| match &server.transport {
                    TransportSettings::Stdio { command, .. } if !command.contains('/') => {
                        Some(command.as_str())
                    }
                    _ => None,
                })
                .filter(|command| !ProgramSearch::is_in_system_folder(command))
                .collect();
            if !bare.is_empty() {
                notes.push(format!(
                    "a desktop program may not find {}: write absolute paths in your configuration",
                    bare.iter().map(|command| format!("`{command}`")).collect::<Vec<_>>().join(", ")
                ));
            }
        }
    }
    notes.push(client.next_step.to_owned());
    notes
}

/// The state of a client on this machine.
struct ClientState {
    client: &'static ClientProgram,
    is_found: bool,
    path: Option<PathBuf>,
    /// The name of our entry, or the error of the file.
    entry: Result<Option<String>, String>,
}

fn list(machine: &Machine, printer: &Printer) -> CommandResult {
    let states: Vec<ClientState> = CLIENTS.iter().map(|client| state(client, machine)).collect();
    if printer.json {
        printer.print_json(&states.iter().map(state_json).collect::<Vec<_>>());
        return Ok(ExitCode::SUCCESS);
    }
    states.iter().filter(|state| state.is_found).for_each(|state| print_state(state, printer));
    let absent: Vec<&str> =
        states.iter().filter(|state| !state.is_found).map(|state| state.client.id).collect();
    if !absent.is_empty() {
        printer.print_line(&printer.style.dim(&format!("not found here: {}", absent.join(", "))));
    }
    Ok(ExitCode::SUCCESS)
}

fn print_state(state: &ClientState, printer: &Printer) {
    let path = state.path.as_ref().map(|path| path.display().to_string()).unwrap_or_default();
    let text = match &state.entry {
        Ok(Some(_)) => printer.style.green("installed    "),
        Ok(None) => "not installed".into(),
        Err(_) => printer.style.red("broken file  "),
    };
    printer.print_line(&format!("{}  {text}  {path}", pad(state.client.id, 14)));
    if let Err(error) = &state.entry {
        printer.print_line(&format!("                {}", sanitize_line(&error.to_string())));
    }
}

fn state(client: &'static ClientProgram, machine: &Machine) -> ClientState {
    let path = machine.user_file(client).map(|file| file.path);
    let entry = path.as_deref().map_or(Ok(None), |path| find_entry(client, path));
    ClientState { client, is_found: machine.has(client), path, entry }
}

fn find_entry(client: &ClientProgram, path: &Path) -> Result<Option<String>, String> {
    let file = SettingsFile::read(path).map_err(|error| error.to_string())?;
    let document = Document::parse(client.format, file.text()).map_err(|error| error.to_string())?;
    let servers = document.servers(client.place).map_err(|error| error.to_string())?;
    let mut ours = servers.iter().filter(|(name, node)| is_bascule(name, &node.to_json()));
    Ok(ours.next().map(|(name, _)| name.clone()))
}

fn state_json(state: &ClientState) -> Value {
    json!({
        "client": state.client.id,
        "title": state.client.title,
        "found": state.is_found,
        "file": state.path,
        "installed": matches!(state.entry, Ok(Some(_))),
        "name": state.entry.as_ref().ok().cloned().flatten(),
        "problem": state.entry.as_ref().err(),
    })
}
