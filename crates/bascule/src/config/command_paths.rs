//! The paths in the command of a server: its executable, its arguments, its working folder and its `PATH`.

use std::path::{Path, PathBuf};

use bascule_sandbox::ToolchainSearch;

use super::settings::{ServerSettings, TransportSettings};

/// The folder that the server starts in, unless it is the bridge's own and contains a home or other programs' files.
pub(crate) fn working_folder(server: &ServerSettings, search: &ToolchainSearch<'_>) -> Option<PathBuf> {
    let TransportSettings::Stdio { cwd, .. } = &server.transport else { return None };
    // A server that starts in the root does not need to write there.
    let configured = cwd.clone().filter(|folder| folder != Path::new("/"));
    configured.or_else(|| {
        let own = std::env::current_dir().ok().filter(|_| cwd.is_none());
        own.filter(|folder| !search.is_broad(folder))
    })
}

/// The existing files and folders in the arguments.
pub(crate) fn existing_arguments(server: &ServerSettings) -> Vec<PathBuf> {
    argument_paths(server).into_iter().filter(|path| path.exists()).collect()
}

/// The arguments as paths, of `PATH` or `OPTION=PATH`.
fn argument_paths(server: &ServerSettings) -> Vec<PathBuf> {
    let TransportSettings::Stdio { args, .. } = &server.transport else { return Vec::new() };
    let base = server.base_folder();
    let values = args.iter().map(|argument| argument.split_once('=').map_or(&**argument, |(_, value)| value));
    values.filter(|value| !value.is_empty()).map(|value| base.join(value)).collect()
}

/// Returns true if the command or an argument names an existing file relative to the working folder.
pub(crate) fn has_relative_paths(server: &ServerSettings) -> bool {
    let TransportSettings::Stdio { command, args, .. } = &server.transport else { return false };
    let is_relative = |text: &str| !text.is_empty() && Path::new(text).is_relative();
    let names_file = |text: &String| {
        let value = text.split_once('=').map_or(&**text, |(_, value)| value);
        is_relative(value) && server.base_folder().join(value).exists()
    };
    (command.contains('/') && is_relative(command)) || args.iter().any(names_file)
}

/// Finds the executable before the jail starts: the jail could report a missing one only as an exit code.
pub(crate) fn find_executable(server: &ServerSettings) -> std::io::Result<PathBuf> {
    let TransportSettings::Stdio { command, .. } = &server.transport else {
        return Err(not_found("the server has no command"));
    };
    find_program(server, command)
}

/// Finds a program as the system does for this server.
pub(crate) fn find_program(server: &ServerSettings, command: &str) -> std::io::Result<PathBuf> {
    if command.contains('/') {
        let path = server.base_folder().join(command);
        return match path.metadata() {
            Ok(metadata) if metadata.is_dir() => Err(not_found("it is a folder")),
            Ok(_) => Ok(path),
            Err(error) => Err(error),
        };
    }
    let candidates = search_path(server).into_iter().map(|folder| folder.join(command));
    let files: Vec<PathBuf> = candidates.filter(|candidate| candidate.is_file()).collect();
    // The system passes over files that it cannot execute.
    let executable = files.iter().find(|file| is_executable(file)).or(files.first());
    executable.cloned().ok_or_else(|| not_found("No such file in PATH"))
}

/// Returns true if someone may execute the file.
pub(crate) fn is_executable(file: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt;
    file.metadata().is_ok_and(|file| file.permissions().mode() & 0o111 != 0)
}

fn not_found(reason: &str) -> std::io::Error {
    std::io::Error::new(std::io::ErrorKind::NotFound, reason)
}

/// The absolute folders of the server's `PATH`.
pub(crate) fn search_path(server: &ServerSettings) -> Vec<PathBuf> {
    let TransportSettings::Stdio { env, .. } = &server.transport else { return Vec::new() };
    let configured = env.iter().find(|(name, _)| name == "PATH").map(|(_, value)| value.reveal().into());
    let path = configured.or_else(|| std::env::var_os("PATH")).unwrap_or_default();
    let base = server.base_folder();
    std::env::split_paths(&path).map(|folder| base.join(folder)).collect()
}

/// The folders of databases in the arguments, which need not exist: a database has further files beside it.
pub(super) fn database_folders(server: &ServerSettings, search: &ToolchainSearch<'_>) -> Vec<PathBuf> {
    const ENDINGS: [&str; 6] = ["db", "db3", "sqlite", "sqlite3", "duckdb", "kuzu"];
    let is_database = |path: &PathBuf| {
        let ending = path.extension().unwrap_or_default().to_string_lossy().to_lowercase();
        ENDINGS.contains(&&*ending) && !path.is_dir()
    };
    let folders = argument_paths(server).into_iter().filter(is_database);
    let folders = folders.filter_map(|path| path.parent().map(Path::to_path_buf));
    folders.filter(|folder| folder.is_dir() && !search.is_broad(folder)).collect()
}
