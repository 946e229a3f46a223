//! Starts a server's process with its configured environment, confined by its `sandbox` settings.
//!
//! `server_folder` keeps the server's own home, `user_settings` passes on settings of the user, `package_manager` recognises
//! an installation.

mod package_manager;
mod server_folder;
mod user_settings;

use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use bascule_mcp::{ShutdownTimeouts, StdioChild, TransportError};
use bascule_sandbox::{
    Access, Confinement, Grant, Jail, Policy, Profile, Secrets, ToolchainSearch, TraceLog, TreeLimits,
    TreeWatch, toolchain_variables,
};

use crate::config::{
    CustomProfile, HomeAccess, NetworkAccess, ResourceLimits, Sandbox, ServerSettings, TransportSettings,
    find_executable, find_program, has_relative_paths, package_caches, working_folder,
};
use crate::start_hints::{find_obstacle, split_command};
pub(crate) use package_manager::find_installer;
use server_folder::ServerFolder;
pub(crate) use server_folder::{create_private, data_folder};

/// Variables that a server inherits from the bridge. All others must be configured (`env`).
const INHERITED: [&str; 12] = [
    "PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LANGUAGE", "LC_ALL", "LC_CTYPE", "TZ", "TERM",
    "TMPDIR",
];

#[derive(Debug, thiserror::Error)]
pub(crate) enum LaunchError {
    #[error("its `cwd` folder `{0}` does not exist")]
    WorkingFolder(String),
    #[error("{0}")]
    Refused(String),
    #[error("could not create its folder: {0}; `XDG_DATA_HOME` names another place for it")]
    Folder(std::io::Error),
    #[error("{0}")]
    Spawn(TransportError),
}

pub(crate) struct LaunchedServer {
    pub(crate) child: StdioChild,
    /// `None` if the server is not confined.
    pub(crate) confined: Option<ConfinedProcess>,
}

/// A process in a jail: its limits, and its policy.
#[derive(Clone)]
pub(crate) struct ConfinedProcess {
    pub(crate) watch: Arc<TreeWatch>,
    pub(crate) policy: Arc<Policy>,
}

/// The homes of the user, and the secrets in them.
pub(crate) struct UserFolders {
    pub(crate) homes: Vec<PathBuf>,
    pub(crate) secrets: Secrets,
}

impl UserFolders {
    pub(crate) fn find() -> Self {
        let homes = bascule_sandbox::homes();
        Self { secrets: Secrets::of_homes(&homes), homes }
    }
}

/// Programs that install a server, start it, and wait for it.
const PACKAGE_MANAGERS: [&str; 10] =
    ["npx", "npm", "pnpm", "pnpx", "yarn", "bun", "bunx", "uv", "uvx", "pipx"];

/// Minimum memory limit until the server responds to `initialize`: a package manager may first install it.
const STARTUP_MEMORY: u64 = 1 << 30;

/// Starts a server. `jailer` is the executable that implements `__jail`; without it the server is not confined. `trace`
/// records what is refused to it.
pub(crate) fn launch(
    settings: &ServerSettings,
    jailer: Option<&Path>,
    shutdown: ShutdownTimeouts,
    trace: Option<&TraceLog>,
) -> Result<LaunchedServer, LaunchError> {
    let TransportSettings::Stdio { command, args, cwd, .. } = &settings.transport else {
        return Err(LaunchError::Refused("it has no command".into()));
    };
    // The system reports a missing folder and a missing program with the same error.
    if let Some(folder) = cwd.as_ref().filter(|folder| !folder.is_dir()) {
        return Err(LaunchError::WorkingFolder(folder.display().to_string()));
    }
    let failed = |reason| LaunchError::Spawn(TransportError::Spawn { program: command.clone(), reason });
    let program =
        find_executable(settings).map_err(|reason| failed(with_split_hint(reason, settings, command)))?;
    if let Some(obstacle) = find_obstacle(&program) {
        return Err(failed(io::Error::new(io::ErrorKind::PermissionDenied, obstacle)));
    }
    let Some(jailer) = jailer else { return launch_unconfined(settings, command, args, shutdown) };
    settings.resolved_paths().check().map_err(LaunchError::Refused)?;
    let folder = ServerFolder::from_settings(settings);
    folder.as_ref().map_or(Ok(()), ServerFolder::create).map_err(LaunchError::Folder)?;
    let user = UserFolders::find();
    let policy = build_policy(settings, folder.as_ref(), &user, find_closed_paths(settings, &user));
    let limits = startup_limits(tree_limits(settings, &settings.limits));
    let jail = Jail::new(jailer, &policy, limits, command, args, trace);
    let Jail { mut command, lifeline, watch } = jail.map_err(failed)?;
    set_environment(&mut command, settings, folder.as_ref());
    let child = StdioChild::spawn(command, shutdown, Some(Box::new(lifeline)));
    let child = child.map_err(LaunchError::Spawn)?;
    let policy = Arc::new(policy);
    let confined = child.pid().map(|pid| ConfinedProcess { watch: watch.start(pid), policy });
    Ok(LaunchedServer { child, confined })
}

fn launch_unconfined(
    settings: &ServerSettings,
    program: &str,
    args: &[String],
    shutdown: ShutdownTimeouts,
) -> Result<LaunchedServer, LaunchError> {
    let mut command = Command::new(program);
    command.args(args);
    set_environment(&mut command, settings, None);
    let child = StdioChild::spawn(command, shutdown, None).map_err(LaunchError::Spawn)?;
    Ok(LaunchedServer { child, confined: None })
}

/// Returns true if the server's command is a package manager.
pub(crate) fn runs_package_manager(settings: &ServerSettings) -> bool {
    let TransportSettings::Stdio { command, .. } = &settings.transport else { return false };
    let name = Path::new(command).file_stem().and_then(|name| name.to_str());
    name.is_some_and(|name| PACKAGE_MANAGERS.contains(&name))
}

/// Adds to the error of a missing program that the arguments may be part of `command`.
fn with_split_hint(reason: io::Error, settings: &ServerSettings, command: &str) -> io::Error {
    let is_program = |word: &str| !word.contains('/') || find_program(settings, word).is_ok();
    match split_command(command, is_program) {
        Some(hint) if reason.kind() == io::ErrorKind::NotFound => {
            io::Error::new(io::ErrorKind::NotFound, format!("{reason}; {hint}"))
        }
        _ => reason,
    }
}

fn set_environment(command: &mut Command, settings: &ServerSettings, folder: Option<&ServerFolder>) {
    let TransportSettings::Stdio { env, cwd, .. } = &settings.transport else { return };
    command.env_clear();
    command.envs(INHERITED.iter().filter_map(|name| Some((name, std::env::var_os(name)?))));
    if let Some(folder) = folder {
        // The jail sets it, unless it is configured.
        command.env_remove("TMPDIR");
        command.envs(folder.home.as_deref().map_or_else(Vec::new, own_variables));
        command.envs(user_settings::variables(folder, settings));
    }
    command.envs(env.iter().map(|(name, value)| (name, value.reveal())));
    if let Some(folder) = start_folder(settings, cwd.as_deref(), folder) {
        command.current_dir(folder);
    }
}

/// The folder in which the server starts, if it is not the bridge's. A server cannot read the bridge's folder if that is
/// the home; then it starts in its own home, unless its arguments name files in the bridge's folder.
fn start_folder<'a>(
    settings: &ServerSettings,
    cwd: Option<&'a Path>,
    folder: Option<&'a ServerFolder>,
) -> Option<&'a Path> {
    let is_closed = || {
        let UserFolders { homes, secrets } = UserFolders::find();
        let search = ToolchainSearch { homes: &homes, secrets: &secrets };
        working_folder(settings, &search).is_none() && !has_relative_paths(settings)
    };
    cwd.or_else(|| folder?.home.as_deref().filter(|_| is_closed()))
}

/// Variables of a server with a home of its own. Version managers find their programs in the user's home.
fn own_variables(home: &Path) -> Vec<(&'static str, OsString)> {
    let user = bascule_sandbox::homes().into_iter().next();
    let mut variables = user.map_or_else(Vec::new, |user| toolchain_variables(&user));
    variables.push(("HOME", home.into()));
    variables
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
        disk_bytes: settings.limits.max_home_mb.map(|max| u64::from(max) << 20),
    }
}

/// Returns the policy that a server would start with now. Searches its folders for secrets.
pub(crate) fn policy(settings: &ServerSettings) -> Policy {
    let (folder, user) = (ServerFolder::from_settings(settings), UserFolders::find());
    build_policy(settings, folder.as_ref(), &user, find_closed_paths(settings, &user))
}

/// Describes the confinement of a server that is started with a jailer.
pub(crate) fn confinement(settings: &ServerSettings) -> Confinement {
    let (folder, user) = (ServerFolder::from_settings(settings), UserFolders::find());
    Confinement::for_policy(&build_policy(settings, folder.as_ref(), &user, Vec::new()))
}

pub(crate) fn may_write(settings: &ServerSettings, file: &Path) -> bool {
    let config = settings.resolved_paths().config.clone();
    let (folder, user) = (ServerFolder::from_settings(settings), UserFolders::find());
    build_policy(settings, folder.as_ref(), &user, config).allows_write(file)
}

/// The paths that stay closed below granted folders: the configuration and the secrets of projects.
fn find_closed_paths(settings: &ServerSettings, user: &UserFolders) -> Vec<PathBuf> {
    let paths = settings.resolved_paths();
    paths.config.iter().cloned().chain(paths.project_secrets(&user.secrets)).collect()
}

fn build_policy(
    settings: &ServerSettings,
    folder: Option<&ServerFolder>,
    user: &UserFolders,
    closed: Vec<PathBuf>,
) -> Policy {
    let UserFolders { homes, secrets } = user;
    let profile = match &settings.sandbox {
        Sandbox::Off => return Policy::off(),
        Sandbox::Standard | Sandbox::Custom { profile: CustomProfile::Standard, .. } => Profile::Standard,
        Sandbox::Strict | Sandbox::Custom { .. } => Profile::Strict,
    };
    let mut grants = settings.resolved_paths().grants();
    grants.extend(folder.into_iter().flat_map(ServerFolder::grants));
    grants.extend(user_settings::certificate_grants(secrets).into_iter().filter(|_| folder.is_some()));
    grants.extend(home_grants(settings, homes, secrets));
    let mut policy = Policy::new(profile, homes, secrets, grants, closed);
    policy.temporary = folder.map(ServerFolder::temporary);
    if let Sandbox::Custom { network, unix_sockets, files, .. } = &settings.sandbox {
        policy.network = *network == NetworkAccess::Full;
        policy.unix_sockets = *unix_sockets;
        policy.open_files = files.map(u64::from);
    }
    policy.open_files = policy.open_files.or(settings.limits.max_open_files.map(u64::from));
    policy
}

/// The user's home with its package caches, for `"home": "user"`.
fn home_grants(settings: &ServerSettings, homes: &[PathBuf], secrets: &Secrets) -> Vec<Grant> {
    let Sandbox::Custom { home: HomeAccess::User, .. } = settings.sandbox else { return Vec::new() };
    let home = homes.first().and_then(|home| Grant::resolved(home, Access::Read));
    let caches = package_caches(homes).into_iter().filter_map(|cache| {
        // If this fails, the package manager reports the cause.
        let _ = std::fs::create_dir_all(&cache);
        Grant::resolved(&cache, Access::Write)
    });
    caches.filter(|cache| !secrets.contain(&cache.path)).chain(home).collect()
}
