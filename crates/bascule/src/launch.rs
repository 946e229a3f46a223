//! Starts a server's process: with the environment it is configured to have and no other, confined as its
//! `sandbox` settings ask.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use bascule_mcp::{Grace, StdioChild, TransportError};
use bascule_model::Secret;
use bascule_sandbox::{Confinement, Jail, Policy, TreeLimits, Watch};

use crate::config::{Isolation, Limits, Network, Sandbox, ServerSettings, TransportSettings};

/// What a child inherits from the bridge's environment. Everything else must be configured (`env`).
const INHERITED: [&str; 12] = [
    "PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LANGUAGE", "LC_ALL", "LC_CTYPE", "TZ", "TERM",
    "TMPDIR",
];

/// A program to start.
pub(crate) struct Program<'a> {
    pub(crate) command: &'a str,
    pub(crate) arguments: &'a [String],
    pub(crate) environment: &'a [(String, Secret<String>)],
    pub(crate) folder: Option<&'a Path>,
}

/// Why there is no process.
#[derive(Debug, thiserror::Error)]
pub(crate) enum LaunchError {
    #[error("its folder `{0}` does not exist")]
    Folder(String),
    #[error("{0}")]
    Spawn(TransportError),
}

/// A started program, and what watches over it.
pub(crate) struct Launched {
    pub(crate) child: StdioChild,
    pub(crate) watch: Option<Arc<Watch>>,
}

/// What a server may use until it has answered `initialize`: it may be a package manager that installs it first.
const START_ALLOWANCE: u64 = 1 << 30;

/// Starts a program. `jailer` is the program that understands `__jail`; without one nothing is confined.
pub(crate) fn child(
    program: &Program<'_>,
    settings: &ServerSettings,
    jailer: Option<&Path>,
) -> Result<Launched, LaunchError> {
    // The system reports a missing folder and a missing program alike.
    if let Some(folder) = program.folder.filter(|folder| !folder.is_dir()) {
        return Err(LaunchError::Folder(folder.display().to_string()));
    }
    let failed =
        |reason| LaunchError::Spawn(TransportError::Spawn { program: program.command.to_owned(), reason });
    let found = find(program).map_err(failed)?;
    let Some(jailer) = jailer else {
        let mut command = Command::new(program.command);
        command.args(program.arguments);
        furnish(&mut command, program);
        let child = StdioChild::spawn(command, grace(settings), None).map_err(LaunchError::Spawn)?;
        return Ok(Launched { child, watch: None });
    };
    make_caches(&found);
    let (policy, limits) =
        (policy(program, &found, settings), at_start(limits_of(settings, &settings.limits)));
    let Jail { mut command, lifeline, warden } =
        bascule_sandbox::launch(jailer, &policy, limits, program.command, program.arguments)
            .map_err(failed)?;
    furnish(&mut command, program);
    let child = StdioChild::spawn(command, grace(settings), Some(Box::new(lifeline)));
    let child = child.map_err(LaunchError::Spawn)?;
    let watch = child.pid().map(|pid| warden.watch(pid));
    Ok(Launched { child, watch })
}

/// A process that has made its one call has nothing left to do.
fn grace(settings: &ServerSettings) -> Grace {
    // A relay still has a session to end at the remote server.
    let is_relay = !matches!(settings.transport, TransportSettings::Stdio { .. });
    match settings.isolation {
        Isolation::PerCall if !is_relay => Grace::NONE,
        _ => Grace::default(),
    }
}

/// Gives a program its environment and its folder.
fn furnish(command: &mut Command, program: &Program<'_>) {
    command.env_clear();
    command.envs(INHERITED.iter().filter_map(|name| Some((name, std::env::var_os(name)?))));
    command.envs(program.environment.iter().map(|(name, value)| (name, value.reveal())));
    if let Some(folder) = program.folder {
        command.current_dir(folder);
    }
}

/// What holds until it has answered `initialize`.
fn at_start(limits: TreeLimits) -> TreeLimits {
    TreeLimits { memory_bytes: limits.memory_bytes.map(|most| most.max(START_ALLOWANCE)), ..limits }
}

/// What a server's processes may use up together.
pub(crate) fn limits_of(settings: &ServerSettings, limits: &Limits) -> TreeLimits {
    let processes = match settings.sandbox {
        Sandbox::Custom { processes, .. } => processes,
        _ => None,
    };
    TreeLimits {
        memory_bytes: Some(u64::from(limits.max_memory_mb) << 20),
        processes: processes.or(limits.max_processes).map(u64::from),
    }
}

/// What confines a server of these settings, and what this machine cannot give; nothing where there is no jailer.
pub(crate) fn confinement(program: &Program<'_>, settings: &ServerSettings) -> Confinement {
    let found = find(program).unwrap_or_else(|_| program.command.into());
    Confinement::of(&policy(program, &found, settings))
}

/// Whether a server of these settings may write a file.
pub(crate) fn may_write(program: &Program<'_>, settings: &ServerSettings, file: &Path) -> bool {
    let found = find(program).unwrap_or_else(|_| program.command.into());
    policy(program, &found, settings).lets_write(file)
}

/// Where a program is. The jail could only say that it is nowhere when it is too late to say so well.
fn find(program: &Program<'_>) -> std::io::Result<PathBuf> {
    let missing = |what: &str| std::io::Error::new(std::io::ErrorKind::NotFound, what);
    let base = program.folder.map_or_else(|| std::env::current_dir().unwrap_or_default(), Path::to_path_buf);
    if program.command.contains('/') {
        let path = base.join(program.command);
        return match path.metadata() {
            Ok(found) if found.is_dir() => Err(missing("it is a folder")),
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

fn policy(program: &Program<'_>, found: &Path, settings: &ServerSettings) -> Policy {
    let home = std::env::var_os("HOME").map(PathBuf::from).filter(|home| home.is_absolute());
    let mut policy = match &settings.sandbox {
        Sandbox::Off => Policy::off(),
        Sandbox::Standard => Policy::standard(home.as_deref(), writable(program, home.as_deref())),
        Sandbox::Strict => Policy::strict(home.as_deref(), found, named(program), Vec::new()),
        Sandbox::Custom { read, write, network, files, .. } => {
            let mut policy = Policy::strict(home.as_deref(), found, read.clone(), write.clone());
            policy.network = *network == Network::Full;
            policy.open_files = files.map(u64::from);
            policy
        }
    };
    if settings.sandbox != Sandbox::Off {
        policy.open_files = policy.open_files.or(settings.limits.max_open_files.map(u64::from));
    }
    policy
}

/// Its folder, unless that holds the whole home, and whatever its arguments name.
fn writable(program: &Program<'_>, home: Option<&Path>) -> Vec<PathBuf> {
    let folder = program.folder.map(Path::to_path_buf).or_else(|| std::env::current_dir().ok());
    let too_much = |folder: &PathBuf| home.is_some_and(|home| home.starts_with(folder));
    let folder = folder.filter(|folder| program.folder.is_some() || !too_much(folder));
    folder.into_iter().chain(named(program)).collect()
}

/// The existing files and folders that the arguments name.
fn named(program: &Program<'_>) -> Vec<PathBuf> {
    let base = program.folder.map_or_else(|| std::env::current_dir().unwrap_or_default(), Path::to_path_buf);
    let values =
        program.arguments.iter().map(|argument| argument.split_once('=').map_or(&**argument, |(_, v)| v));
    values.map(|value| base.join(value)).filter(|path| path.exists()).collect()
}

/// What is not there cannot be granted: a package manager's first run needs its cache to exist.
fn make_caches(program: &Path) {
    let home = std::env::var_os("HOME").map(PathBuf::from);
    let name = program.file_name().unwrap_or_default().to_string_lossy();
    let folders: &[&str] = match &*name {
        "npx" | "npm" | "pnpm" | "node" => &[".npm"],
        "uvx" | "uv" | "pipx" => &[".cache", ".local/share/uv"],
        _ => &[],
    };
    for folder in folders.iter().filter_map(|folder| Some(home.as_ref()?.join(folder))) {
        // Where this fails the package manager will say more about it than we could.
        let _ = std::fs::create_dir_all(folder);
    }
}
