//! Starts a server's process with the environment it is configured to have, and no other.

use std::path::Path;
use std::process::Command;

use bascule_client::{Grace, StdioChild, TransportError};
use bascule_model::Secret;

/// What a child inherits from the bridge's environment. Everything else must be configured (`env`).
const INHERITED: [&str; 12] = [
    "PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LANGUAGE", "LC_ALL", "LC_CTYPE", "TZ", "TERM",
    "TMPDIR",
];

/// Starts a program.
pub(crate) fn child(
    program: &str,
    arguments: &[String],
    environment: &[(String, Secret<String>)],
    folder: Option<&Path>,
) -> Result<StdioChild, LaunchError> {
    // The system reports a missing folder and a missing program alike.
    if let Some(folder) = folder.filter(|folder| !folder.is_dir()) {
        return Err(LaunchError::Folder(folder.display().to_string()));
    }
    let mut command = Command::new(program);
    command.args(arguments).env_clear();
    command.envs(INHERITED.iter().filter_map(|name| Some((name, std::env::var_os(name)?))));
    command.envs(environment.iter().map(|(name, value)| (name, value.reveal())));
    if let Some(folder) = folder {
        command.current_dir(folder);
    }
    StdioChild::spawn(command, Grace::default()).map_err(LaunchError::Spawn)
}

/// Why there is no process.
#[derive(Debug, thiserror::Error)]
pub(crate) enum LaunchError {
    #[error("its folder `{0}` does not exist")]
    Folder(String),
    #[error("{0}")]
    Spawn(TransportError),
}
