//! `bascule import`: copies the servers of other MCP clients into the configuration file.

use std::path::Path;

use serde_json::{Value, json};

use super::file_change::{Decision, WriteOptions, add_decision, finish, parse_file, read_file};
use super::install::this_machine;
use super::own_file::OwnFile;
use crate::cli::error::{CommandError, CommandResult};
use crate::cli::printer::Printer;
use crate::cli::terminal::sanitize_line;
use crate::clients::{CLIENTS, ClientFile, ClientProgram, Imported, Machine, ProgramSearch, translate};
use crate::document::{Document, Tree};

/// Copy the servers of other MCP clients into the configuration file
///
/// Reads the files of the clients, which are not changed, and translates their entries. Programs such as `npx` get the
/// absolute path that your login shell finds. Shows the difference first and asks. A server that is already there is
/// skipped; another one with the same name gets the client's name as a suffix.
#[derive(Debug, clap::Args)]
pub(crate) struct Import {
    /// The clients to read [default: all that are found]
    #[arg(value_parser = clap::builder::PossibleValuesParser::new(CLIENTS.iter().map(|client| client.id)))]
    clients: Vec<String>,
    /// Also read the clients' files in the working folder
    #[arg(long)]
    project: bool,
    #[command(flatten)]
    write: WriteOptions,
}

/// Servers that were read, and the rest.
#[derive(Default)]
pub(super) struct Collected {
    servers: Vec<(&'static ClientProgram, Imported)>,
    /// Lines for the user: files and servers that were left out, and changes.
    notes: Vec<String>,
}

impl Collected {
    pub(super) fn is_empty(&self) -> bool {
        self.servers.is_empty()
    }

    pub(super) fn describe(&self) -> String {
        let mut clients: Vec<&str> = self.servers.iter().map(|(client, _)| client.title).collect();
        clients.dedup();
        let plural = if self.servers.len() == 1 { "" } else { "s" };
        format!("{} server{plural} of {}", self.servers.len(), clients.join(", "))
    }
}

/// The servers that are new in the file.
pub(super) struct Merged {
    pub(super) text: String,
    pub(super) added: Vec<String>,
    pub(super) notes: Vec<String>,
}

impl Import {
    pub(crate) fn run(self, config: Option<&Path>, printer: &Printer) -> CommandResult {
        let machine = this_machine(&crate::config::process_environment)?;
        let named: Vec<&'static ClientProgram> =
            self.clients.iter().filter_map(|id| ClientProgram::by_id(id)).collect();
        let own = OwnFile::find(config)?;
        let collected = collect(&named, self.project, &machine, own.path())?;
        let merged = merge(&own, own.file.text(), collected)?;
        let (change, origin) = own.into_change(merged.text, &[]);
        let decision = match merged.added.is_empty() {
            true => Decision::Show,
            false => change.decide(self.write, printer),
        };
        if decision == Decision::Write {
            OwnFile::write(&change, origin)?;
        }
        if printer.json {
            let mut document = json!({
                "file": change.file.path, "added": merged.added, "notes": merged.notes,
                "difference": change.difference,
            });
            add_decision(&mut document, &decision);
            printer.print_json(&document);
        } else {
            merged
                .notes
                .iter()
                .for_each(|note| printer.print_line(&format!("note: {}", sanitize_line(note))));
            print_result(&merged.added, &decision, printer);
        }
        finish(&decision, printer)
    }
}

fn print_result(added: &[String], decision: &Decision, printer: &Printer) {
    match decision {
        _ if added.is_empty() => printer.print_line("there is nothing to import"),
        Decision::Write => {
            printer.print_line(&format!("imported {}; `bascule check` starts each once", added.join(", ")));
        }
        _ => {}
    }
}

/// Reads the servers of these clients; without any, of all that are found. `own` is not read.
pub(super) fn collect(
    named: &[&'static ClientProgram],
    project: bool,
    machine: &Machine,
    own: &Path,
) -> CommandResult<Collected> {
    let clients: Vec<&'static ClientProgram> = match named.is_empty() {
        true => CLIENTS.iter().filter(|client| machine.has(client)).collect(),
        false => named.to_vec(),
    };
    let programs = ProgramSearch::from_login_shell();
    let mut collected = Collected::default();
    for client in clients {
        let user = machine.user_file(client);
        let own_project = machine.project_file(client).filter(|file| project && file.form.id == client.id);
        let files: Vec<ClientFile> =
            user.into_iter().chain(own_project).filter(|file| file.path.exists()).collect();
        if files.is_empty() && !named.is_empty() {
            collected.notes.push(format!("{} has no file here", client.title));
        }
        for file in files.iter().filter(|file| !is_same_file(&file.path, own)) {
            match read_servers(file, machine, &programs, &mut collected) {
                Err(CommandError::Usage(message)) if named.is_empty() => collected.notes.push(message),
                read => read?,
            }
        }
    }
    Ok(collected)
}

fn is_same_file(one: &Path, other: &Path) -> bool {
    matches!((one.canonicalize(), other.canonicalize()), (Ok(one), Ok(other)) if one == other)
}

fn read_servers(
    ClientFile { form, path }: &ClientFile,
    machine: &Machine,
    programs: &ProgramSearch,
    collected: &mut Collected,
) -> CommandResult<()> {
    let file = read_file(path)?;
    let document = parse_file(&file, form.format)?;
    let servers = document.servers(form.place).map_err(|error| super::file_change::at_file(&file, &error))?;
    let servers = servers.into_iter().map(|(name, node)| (name, node.to_json()));
    for (name, entry) in servers.chain(folder_servers(form, &document, machine)) {
        match translate(form, &name, &entry, programs, machine.environment) {
            Ok(imported) => collected.servers.push((form, imported)),
            Err(reason) => collected.notes.push(format!("left out `{name}` of {}: {reason}", form.title)),
        }
    }
    Ok(())
}

/// Claude Code keeps the servers of a folder in the user's file.
fn folder_servers(client: &ClientProgram, document: &Document, machine: &Machine) -> Vec<(String, Value)> {
    let projects = document.get("projects").filter(|_| client.id == "claude-code").map(|node| node.to_json());
    let folder = projects.as_ref().and_then(|projects| projects.get(machine.folder.to_str()?));
    let servers = folder.and_then(|folder| folder.get("mcpServers")?.as_object());
    servers.into_iter().flatten().map(|(name, entry)| (name.clone(), entry.clone())).collect()
}

/// Adds the servers to the text of our file.
pub(super) fn merge(own: &OwnFile, text: &str, collected: Collected) -> CommandResult<Merged> {
    let mut merged = Merged { text: text.to_owned(), added: Vec::new(), notes: collected.notes };
    let mut known: Vec<(String, Value)> = Vec::new();
    for name in own.names()? {
        let entry = own.server(&name)?;
        known.push((name, entry.map_or(Value::Null, |entry| entry.to_json())));
    }
    for (client, imported) in collected.servers {
        let definition = Tree::Map(imported.fields.clone()).to_json();
        let Some(name) = free_name(&known, &imported.name, client, &definition) else {
            merged.notes.push(format!("`{}` of {} is already there", imported.name, client.title));
            continue;
        };
        match own.with_server(&merged.text, &name, &imported.fields) {
            Ok(text) => merged.text = text,
            Err(CommandError::Config(error)) => {
                merged.notes.push(format!("left out `{name}` of {}: {error}", client.title));
                continue;
            }
            Err(error) => return Err(error),
        }
        if name != imported.name {
            merged.notes.push(format!("`{}` of {} is named `{name}` here", imported.name, client.title));
        }
        merged.notes.extend(imported.notes.iter().map(|note| format!("`{name}`: {note}")));
        known.push((name.clone(), definition));
        merged.added.push(name);
    }
    Ok(merged)
}

/// Returns a name that is not taken, or `None` if the same server is there.
fn free_name(
    known: &[(String, Value)],
    name: &str,
    client: &ClientProgram,
    definition: &Value,
) -> Option<String> {
    let mut names = std::iter::once(name.to_owned())
        .chain([format!("{name}-{}", client.id)])
        .chain((2..).map(|number| format!("{name}-{}-{number}", client.id)));
    loop {
        let name = names.next()?;
        match known.iter().find(|(own, _)| *own == name) {
            None => return Some(name),
            Some((_, own)) if own == definition => return None,
            Some(_) => {}
        }
    }
}
