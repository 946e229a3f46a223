//! Starts a server's process with its configured environment, confined by its `sandbox` settings.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use bascule_mcp::{ShutdownTimeouts, StdioChild, TransportError};
use bascule_model::Secret;
use bascule_sandbox::{Confinement, Jail, Policy, TreeLimits, TreeWatch};

use crate::config::{
    CustomProfile, Isolation, NetworkAccess, ResourceLimits, Sandbox, ServerSettings, TransportSettings,
};

/// Variables that a server inherits from the bridge. All others must be configured (`env`).
const INHERITED: [&str; 12] = [
    "PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LANGUAGE", "LC_ALL", "LC_CTYPE", "TZ", "TERM",
    "TMPDIR",
];

/// The command line, environment and working folder of a server.
pub(crate) struct ServerProgram<'a> {
    pub(crate) command: &'a str,
    pub(crate) arguments: &'a [String],
    pub(crate) environment: &'a [(String, Secret<String>)],
    pub(crate) folder: Option<&'a Path>,
}

#[derive(Debug, thiserror::Error)]
pub(crate) enum LaunchError {
    #[error("its `cwd` folder `{0}` does not exist")]
    Folder(String),
    #[error("{0}")]
    Spawn(TransportError),
}

pub(crate) struct LaunchedServer {
    pub(crate) child: StdioChild,
    /// `None` if the server is not confined.
    pub(crate) watch: Option<Arc<TreeWatch>>,
}

/// Minimum memory limit until the server responds to `initialize`: a package manager may first install it.
const STARTUP_MEMORY: u64 = 1 << 30;

/// Starts a server. `jailer` is the executable that implements `__jail`; without it the server is not confined.
pub(crate) fn launch(
    program: &ServerProgram<'_>,
    settings: &ServerSettings,
    jailer: Option<&Path>,
) -> Result<LaunchedServer, LaunchError> {
    // The system reports a missing folder and a missing program with the same error.
    if let Some(folder) = program.folder.filter(|folder| !folder.is_dir()) {
        return Err(LaunchError::Folder(folder.display().to_string()));
    }
    let failed =
        |reason| LaunchError::Spawn(TransportError::Spawn { program: program.command.to_owned(), reason });
    let executable = find_executable(program).map_err(failed)?;
    let Some(jailer) = jailer else {
        let mut command = Command::new(program.command);
        command.args(program.arguments);
        set_environment(&mut command, program);
        let child =
            StdioChild::spawn(command, shutdown_timeouts(settings), None).map_err(LaunchError::Spawn)?;
        return Ok(LaunchedServer { child, watch: None });
    };
    create_package_caches(&executable);
    let policy = build_policy(program, &executable, settings);
    let limits = startup_limits(tree_limits(settings, &settings.limits));
    let jail = Jail::new(jailer, &policy, limits, program.command, program.arguments);
    let Jail { mut command, lifeline, watch } = jail.map_err(failed)?;
    set_environment(&mut command, program);
    let child = StdioChild::spawn(command, shutdown_timeouts(settings), Some(Box::new(lifeline)));
    let child = child.map_err(LaunchError::Spawn)?;
    let watch = child.pid().map(|pid| watch.start(pid));
    Ok(LaunchedServer { child, watch })
}

/// A per-call process needs no time to end after its one call.
fn shutdown_timeouts(settings: &ServerSettings) -> ShutdownTimeouts {
    // Except a relay, which must end its session at the remote server.
    let is_relay = !matches!(settings.transport, TransportSettings::Stdio { .. });
    match settings.isolation {
        Isolation::PerCall if !is_relay => ShutdownTimeouts::NONE,
        _ => ShutdownTimeouts::default(),
    }
}

fn set_environment(command: &mut Command, program: &ServerProgram<'_>) {
    command.env_clear();
    command.envs(INHERITED.iter().filter_map(|name| Some((name, std::env::var_os(name)?))));
    command.envs(program.environment.iter().map(|(name, value)| (name, value.reveal())));
    if let Some(folder) = program.folder {
        command.current_dir(folder);
    }
}

fn startup_limits(limits: TreeLimits) -> TreeLimits {
    TreeLimits { memory_bytes: limits.memory_bytes.map(|max| max.max(STARTUP_MEMORY)), ..limits }
}

/// Returns the limits of a server's whole process tree.
pub(crate) fn tree_limits(settings: &ServerSettings, limits: &ResourceLimits) -> TreeLimits {
    let processes = match settings.sandbox {
        Sandbox::Custom { processes, .. } => processes,
        _ => None,
    };
    TreeLimits {
        memory_bytes: Some(u64::from(limits.max_memory_mb) << 20),
        processes: processes.or(limits.max_processes).map(u64::from),
    }
}

/// Describes the confinement of a server that is started with a jailer.
pub(crate) fn confinement(program: &ServerProgram<'_>, settings: &ServerSettings) -> Confinement {
    Confinement::for_policy(&expected_policy(program, settings))
}

pub(crate) fn may_write(program: &ServerProgram<'_>, settings: &ServerSettings, file: &Path) -> bool {
    expected_policy(program, settings).allows_write(file)
}

/// Returns the policy of a server that may not be installed.
fn expected_policy(program: &ServerProgram<'_>, settings: &ServerSettings) -> Policy {
    let executable = find_executable(program).unwrap_or_else(|_| program.command.into());
    build_policy(program, &executable, settings)
}

/// Finds the executable before the jail starts: the jail could report a missing one only as an exit code.
fn find_executable(program: &ServerProgram<'_>) -> std::io::Result<PathBuf> {
    let missing = |reason: &str| std::io::Error::new(std::io::ErrorKind::NotFound, reason);
    let base = base_folder(program);
    if program.command.contains('/') {
        let path = base.join(program.command);
        return match path.metadata() {
            Ok(metadata) if metadata.is_dir() => Err(missing("it is a folder")),
            Ok(_) => Ok(path),
            Err(error) => Err(error),
        };
    }
    let configured =
        program.environment.iter().find(|(name, _)| name == "PATH").map(|(_, v)| v.reveal().into());
    let path = configured.or_else(|| std::env::var_os("PATH")).unwrap_or_default();
    let candidates = std::env::split_paths(&path).map(|folder| base.join(folder).join(program.command));
    candidates
        .into_iter()
        .find(|candidate| candidate.is_file())
        .ok_or_else(|| missing("No such file in PATH"))
}

fn build_policy(program: &ServerProgram<'_>, executable: &Path, settings: &ServerSettings) -> Policy {
    let homes = bascule_sandbox::homes();
    let mut policy = match &settings.sandbox {
        Sandbox::Off => Policy::off(),
        Sandbox::Standard => Policy::standard(&homes, writable_paths(program, &homes)),
        Sandbox::Strict => Policy::strict(&homes, executable, named_paths(program), Vec::new()),
        Sandbox::Custom { profile, read, write, network, unix_sockets, files, .. } => {
            let mut policy = match profile {
                CustomProfile::Standard => {
                    let writable = writable_paths(program, &homes).into_iter();
                    Policy::standard(&homes, writable.chain(write.clone()).collect())
                }
                CustomProfile::Strict => Policy::strict(&homes, executable, read.clone(), write.clone()),
            };
            policy.network = *network == NetworkAccess::Full;
            policy.unix_sockets = *unix_sockets;
            policy.open_files = files.map(u64::from);
            policy
        }
    };
    if settings.sandbox != Sandbox::Off {
        policy.open_files = policy.open_files.or(settings.limits.max_open_files.map(u64::from));
    }
    policy
}

/// The server's folder and the paths in its arguments. The bridge's own folder, which is the default, is left out if it
/// contains the home.
fn writable_paths(program: &ServerProgram<'_>, homes: &[PathBuf]) -> Vec<PathBuf> {
    let folder = program.folder.map(Path::to_path_buf).or_else(|| std::env::current_dir().ok());
    let contains_home = |folder: &PathBuf| homes.iter().any(|home| home.starts_with(folder));
    let folder = folder.filter(|folder| program.folder.is_some() || !contains_home(folder));
    folder.into_iter().chain(named_paths(program)).collect()
}

/// The existing files and folders in the arguments, as `PATH` or `OPTION=PATH`.
fn named_paths(program: &ServerProgram<'_>) -> Vec<PathBuf> {
    let base = base_folder(program);
    let values =
        program.arguments.iter().map(|argument| argument.split_once('=').map_or(&**argument, |(_, v)| v));
    values.map(|value| base.join(value)).filter(|path| path.exists()).collect()
}

fn base_folder(program: &ServerProgram<'_>) -> PathBuf {
    program.folder.map_or_else(|| std::env::current_dir().unwrap_or_default(), Path::to_path_buf)
}

/// Creates the caches that a package manager needs: Landlock can grant only existing folders.
fn create_package_caches(executable: &Path) {
    let home = std::env::var_os("HOME").map(PathBuf::from);
    let name = executable.file_name().unwrap_or_default().to_string_lossy();
    let folders: &[&str] = match &*name {
        "npx" | "npm" | "pnpm" | "node" => &[".npm"],
        "uvx" | "uv" | "pipx" => &[".cache", ".local/share/uv"],
        _ => &[],
    };
    for folder in folders.iter().filter_map(|folder| Some(home.as_ref()?.join(folder))) {
        // If this fails, the package manager reports the cause.
        let _ = std::fs::create_dir_all(folder);
    }
}
