//! The paths of the configuration that sandboxes grant: resolved once, when the file is loaded, and held open.
//!
//! A confined server may replace files in the folders that it writes. A path that was resolved again at each start could so
//! lead to more with every restart.

use std::fs::File;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bascule_sandbox::{
    Access, FileIdentity, Grant, Resolution, Secrets, ToolchainSearch, find_project_secrets, is_program,
};

use super::command_paths::{
    database_folders, existing_arguments, find_executable, search_path, working_folder,
};
use super::crossed_links::crossed_links;
use super::find::canonical_entry;
use super::settings::{CustomProfile, HomeAccess, Sandbox, ServerSettings, Settings};

/// The resolved paths of one server. They follow from its other settings, so all are equal.
#[derive(Debug, Clone, Default)]
pub struct SandboxPaths(Option<Arc<ResolvedPaths>>);

impl PartialEq for SandboxPaths {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

/// The paths that the sandbox of one server grants.
#[derive(Debug)]
pub(crate) struct ResolvedPaths {
    /// The configuration file and every `envFile`: the real path, and the path that was given, which may be a link.
    pub(crate) config: Vec<PathBuf>,
    held: Vec<HeldPath>,
    /// The reason why the server must not start.
    refused: Option<String>,
}

#[derive(Debug)]
struct HeldPath {
    named: PathBuf,
    grant: Grant,
    /// The configuration does not name it. If it is replaced, it is left out, and nothing is refused.
    is_guess: bool,
    /// It may hold secrets of a project. Installations do not, and are large.
    is_searched: bool,
    /// Keeps the number of a folder from being used again.
    _file: Option<File>,
}

/// A path in the settings of a server.
#[derive(Debug, Clone)]
struct NamedPath {
    path: PathBuf,
    access: Access,
    source: Source,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Source {
    /// `sandbox.read` or `sandbox.write`, which may name secrets.
    List,
    /// `command`, which may be a link of a virtual environment.
    Program,
    /// A folder that follows from a program: its installation, its interpreter, its project. It is left out if a server could
    /// have chosen it: by a link, by the first line of a script, or by a marker of a project.
    Derived { is_forgeable: bool },
    /// A folder of `PATH` or of a version manager, which is left out if it is not one.
    Toolchain,
    /// `cwd` or `args`.
    Other,
}

/// Resolves the paths of all servers. `file` is the configuration file.
pub(super) fn resolve_paths(settings: &mut Settings, file: &Path) {
    // No server may change the configuration, or the variables of another server.
    let env_files = settings.servers.iter().filter_map(|server| server.env_file.as_deref());
    let config: Vec<PathBuf> = std::iter::once(file)
        .chain(env_files)
        .flat_map(|file| file.canonicalize().into_iter().chain(canonical_entry(file)))
        // A folder of traces that is not in the user's state folder is closed too.
        .chain(settings.bridge.traces.path.as_deref().and_then(bascule_sandbox::resolve))
        .chain(audit_files(settings))
        .collect();
    let homes = bascule_sandbox::homes();
    let secrets = Secrets::of_homes(&homes);
    let resolver =
        Resolver { search: ToolchainSearch { homes: &homes, secrets: &secrets }, writable: Vec::new() };
    let writable = settings.servers.iter().flat_map(|server| writable_folders(server, &resolver.search));
    let resolver = Resolver { writable: writable.collect(), ..resolver };
    for server in &mut settings.servers {
        server.paths = SandboxPaths(Some(Arc::new(resolver.resolve(server, config.clone()))));
    }
}

/// Returns the audit log and its side file, which may not exist yet.
fn audit_files(settings: &Settings) -> impl Iterator<Item = PathBuf> + use<> {
    let log = settings.bridge.audit.as_ref().map(|audit| audit.path.clone());
    let files = log.into_iter().flat_map(|log| [crate::audit::head_path(&log), log]);
    files.filter_map(|file| bascule_sandbox::resolve(&file))
}

impl ServerSettings {
    /// Returns the real path of the configuration file. Settings that were not loaded from a file have none.
    pub(crate) fn config_file(&self) -> Option<&Path> {
        self.paths.0.as_ref()?.config.first().map(PathBuf::as_path)
    }

    /// Returns the resolved paths. Settings that were not loaded from a file have none yet.
    pub(crate) fn resolved_paths(&self) -> Arc<ResolvedPaths> {
        self.paths.0.clone().unwrap_or_else(|| {
            let homes = bascule_sandbox::homes();
            let secrets = Secrets::of_homes(&homes);
            let search = ToolchainSearch { homes: &homes, secrets: &secrets };
            let writable = writable_folders(self, &search);
            Arc::new(Resolver { search, writable }.resolve(self, Vec::new()))
        })
    }
}

impl ResolvedPaths {
    pub(crate) fn grants(&self) -> Vec<Grant> {
        let valid = self.held.iter().filter(|held| !(held.is_guess && held.is_replaced()));
        valid.map(|held| held.grant.clone()).collect()
    }

    /// Returns the secrets below the granted folders, except those that the configuration names.
    pub(crate) fn project_secrets(&self, secrets: &Secrets) -> Vec<PathBuf> {
        let searched = self.held.iter().filter(|held| held.is_searched && held.grant.path.is_dir());
        let folders: Vec<PathBuf> = searched.map(|held| held.grant.path.clone()).collect();
        let is_named = |path: &PathBuf| self.held.iter().any(|held| held.grant.path == *path);
        let mut found = find_project_secrets(&folders, secrets);
        found.retain(|path| !is_named(path));
        found
    }

    /// Fails if a path no longer leads to the file that it led to when the configuration was loaded.
    pub(crate) fn check(&self) -> Result<(), String> {
        if let Some(reason) = &self.refused {
            return Err(reason.clone());
        }
        let replaced = self.held.iter().find(|held| !held.is_guess && held.is_replaced());
        replaced.map_or(Ok(()), |held| {
            Err(format!(
                "`{}` leads to another file than when the configuration was loaded; a server may have replaced it. \
                 Restart the bridge to accept the change",
                held.named.display()
            ))
        })
    }
}

impl HeldPath {
    /// A path that is gone grants nothing.
    fn is_replaced(&self) -> bool {
        let Ok(real) = self.named.canonicalize() else { return false };
        let identity = || real.metadata().ok().map(|metadata| FileIdentity::from_metadata(&metadata));
        match self.grant.resolution {
            Resolution::Earlier(Some(expected)) => real != self.grant.path || identity() != Some(expected),
            _ => real != self.grant.path,
        }
    }
}

struct Resolver<'a> {
    search: ToolchainSearch<'a>,
    /// The folders that confined servers may write.
    writable: Vec<PathBuf>,
}

impl Resolver<'_> {
    fn resolve(&self, server: &ServerSettings, config: Vec<PathBuf>) -> ResolvedPaths {
        let mut named = self.named_paths(server);
        // A path may be justified by those before it, so links follow paths without links, and guesses come last.
        named.sort_by_key(|named| match named.source {
            Source::Derived { .. } | Source::Toolchain => 2,
            _ => usize::from(self.replaceable_link(&named.path).is_some()),
        });
        let mut resolved = ResolvedPaths { config, held: Vec::new(), refused: None };
        for named in named {
            match self.hold(&named, &resolved, is_standard(&server.sandbox)) {
                Ok(held) => resolved.held.extend(held),
                Err(reason) => resolved.refused = Some(reason),
            }
        }
        resolved
    }

    /// Opens a path. Returns `None` if it does not exist or may not be granted.
    fn hold(
        &self,
        named: &NamedPath,
        so_far: &ResolvedPaths,
        reads_system: bool,
    ) -> Result<Option<HeldPath>, String> {
        let Ok(real) = named.path.canonicalize() else { return Ok(None) };
        if so_far.config.contains(&real) {
            return Ok(None);
        }
        let is_harmless = || self.is_harmless(&real, named, so_far, reads_system);
        let is_guess = match named.source {
            Source::Toolchain => Some(self.replaceable_link(&named.path).is_none()),
            Source::Derived { is_forgeable } => Some(!is_forgeable || is_harmless()),
            _ => None,
        };
        if let Some(is_safe) = is_guess {
            return Ok(is_safe.then(|| self.hold_guess(named, real)).flatten());
        }
        if self.search.secrets.contain(&real) {
            return self.hold_secret(named, real);
        }
        if let Some((link, folder)) = self.replaceable_link(&named.path)
            && !is_harmless()
        {
            return Err(format!(
                "`{}` leads through the link `{}` to `{}`, and a server that may write `{}` could change the link: \
                 name the target itself",
                named.path.display(),
                link.display(),
                real.display(),
                folder.display()
            ));
        }
        Ok(Some(hold_path(named, real)))
    }

    /// Opens a path that nobody has configured: never a secret, nor a folder that holds far more than the server needs.
    fn hold_guess(&self, named: &NamedPath, real: PathBuf) -> Option<HeldPath> {
        if self.search.secrets.contain(&real) || self.search.is_broad(&real) {
            return None;
        }
        let is_project = named.source != Source::Toolchain
            && self.search.is_private(&real)
            && !self.is_toolchain(&real)
            && !real.ends_with("node_modules");
        Some(HeldPath { is_searched: is_project, ..hold_path(named, real) })
    }

    /// Opens a secret if the configuration names the secret itself.
    fn hold_secret(&self, named: &NamedPath, real: PathBuf) -> Result<Option<HeldPath>, String> {
        let is_named = self.search.secrets.are_named_by(&named.path);
        match (named.source, is_named) {
            (Source::List | Source::Program, true) => Ok(Some(hold_path(named, real))),
            (Source::List, false) => Err(format!(
                "`{}` in `sandbox` is a link to the secret `{}`: name the secret itself",
                named.path.display(),
                real.display()
            )),
            _ => Ok(None),
        }
    }

    /// A path that a server can choose gains nothing if its target is accessible anyway, or holds only programs.
    fn is_harmless(
        &self,
        real: &Path,
        named: &NamedPath,
        so_far: &ResolvedPaths,
        reads_system: bool,
    ) -> bool {
        let covers =
            |held: &HeldPath| held.grant.access >= named.access && real.starts_with(&held.grant.path);
        let is_program = matches!(named.source, Source::Program | Source::Derived { .. });
        let is_of_system = || (reads_system || is_program) && !self.search.is_private(real);
        let is_packages = || is_program && real.ends_with("node_modules");
        so_far.held.iter().any(covers)
            || (named.access == Access::Read && (is_of_system() || is_packages() || self.is_toolchain(real)))
    }

    /// Returns true for a path of a version manager that no server can replace.
    fn is_toolchain(&self, real: &Path) -> bool {
        let folders = self.search.home_folders(&[]).into_iter();
        let fixed = folders.filter(|folder| self.replaceable_link(folder).is_none());
        fixed.filter_map(|folder| folder.canonicalize().ok()).any(|folder| real.starts_with(folder))
    }

    /// Returns true if a confined server may write the file, or a link that leads to it.
    fn is_forgeable(&self, file: &Path) -> bool {
        let is_writable = |file: PathBuf| self.writable.iter().any(|folder| file.starts_with(folder));
        self.replaceable_link(file).is_some() || file.canonicalize().is_ok_and(is_writable)
    }

    /// Returns the first link in a path that lies in a folder which a confined server may write.
    fn replaceable_link(&self, path: &Path) -> Option<(PathBuf, PathBuf)> {
        crossed_links(path).into_iter().find_map(|link| {
            let folder = self.writable.iter().find(|folder| link.starts_with(folder))?;
            Some((link, folder.clone()))
        })
    }

    fn named_paths(&self, server: &ServerSettings) -> Vec<NamedPath> {
        let mut named = Vec::new();
        let lists = |named: &mut Vec<NamedPath>, read: &[PathBuf], write: &[PathBuf]| {
            named.extend(read.iter().map(|path| NamedPath::new(path, Access::Read, Source::List)));
            named.extend(write.iter().map(|path| NamedPath::new(path, Access::Write, Source::List)));
        };
        match &server.sandbox {
            Sandbox::Off => return named,
            Sandbox::Standard => self.add_writable(server, &mut named),
            Sandbox::Strict => {
                let arguments = existing_arguments(server);
                named.extend(arguments.iter().map(|path| NamedPath::new(path, Access::Read, Source::Other)));
            }
            Sandbox::Custom { profile, read, write, .. } => {
                if *profile == CustomProfile::Standard {
                    self.add_writable(server, &mut named);
                }
                lists(&mut named, read, write);
            }
        }
        if let Ok(program) = find_executable(server) {
            let folders = self.search.program_folders(&program, &search_path(server));
            let source = Source::Derived { is_forgeable: self.is_forgeable(&program) };
            named.extend(folders.iter().map(|path| NamedPath::new(path, Access::Read, source)));
            named.push(NamedPath::new(&program, Access::Read, Source::Program));
        }
        if is_standard(&server.sandbox) {
            let toolchains = self.search.home_folders(&search_path(server));
            named.extend(toolchains.iter().map(|path| NamedPath::new(path, Access::Read, Source::Toolchain)));
        }
        named
    }

    /// The server's folder and the paths in its arguments. A program among them is only readable, with its project.
    fn add_writable(&self, server: &ServerSettings, named: &mut Vec<NamedPath>) {
        let new = |path: &PathBuf, access| NamedPath::new(path, access, Source::Other);
        named.extend(working_folder(server, &self.search).iter().map(|folder| new(folder, Access::Write)));
        named.extend(database_folders(server, &self.search).iter().map(|folder| new(folder, Access::Write)));
        for path in existing_arguments(server) {
            if is_program(&path) {
                let source = Source::Derived { is_forgeable: self.is_forgeable(&path) };
                let project = self.search.project_folders(&path).into_iter().chain(own_folder(&path));
                named.extend(project.map(|folder| NamedPath::new(&folder, Access::Read, source)));
                named.push(new(&path, Access::Read));
            } else {
                named.push(new(&path, Access::Write));
            }
        }
    }
}

/// The folder of a script, from which it may import others.
fn own_folder(script: &Path) -> Option<PathBuf> {
    script.canonicalize().ok()?.parent().map(Path::to_path_buf)
}

impl NamedPath {
    fn new(path: &Path, access: Access, source: Source) -> Self {
        Self { path: path.to_path_buf(), access, source }
    }
}

/// Opens a path for its identity only. A file may be replaced by another one: editors do so. So may an installation, in a
/// folder that no server writes.
fn hold_path(named: &NamedPath, real: PathBuf) -> HeldPath {
    let flags = (rustix::fs::OFlags::PATH | rustix::fs::OFlags::NOFOLLOW).bits().cast_signed();
    let file = File::options().read(true).custom_flags(flags).open(&real).ok();
    let metadata = file.as_ref().and_then(|file| file.metadata().ok());
    let is_guess = matches!(named.source, Source::Derived { .. } | Source::Toolchain);
    let metadata = metadata.filter(|metadata| metadata.is_dir() && !is_guess);
    let identity = metadata.map(|metadata| FileIdentity::from_metadata(&metadata));
    let grant = Grant { path: real, access: named.access, resolution: Resolution::Earlier(identity) };
    HeldPath { named: named.path.clone(), grant, is_guess, is_searched: !is_guess, _file: file }
}

fn is_standard(sandbox: &Sandbox) -> bool {
    matches!(sandbox, Sandbox::Standard | Sandbox::Custom { profile: CustomProfile::Standard, .. })
}

/// The folders that a server may write, links resolved.
fn writable_folders(server: &ServerSettings, search: &ToolchainSearch<'_>) -> Vec<PathBuf> {
    let mut folders = match &server.sandbox {
        Sandbox::Custom { write, .. } => write.clone(),
        _ => Vec::new(),
    };
    if is_standard(&server.sandbox) {
        folders.extend(working_folder(server, search));
        folders.extend(database_folders(server, search));
        folders.extend(existing_arguments(server).into_iter().filter(|path| path.is_dir()));
    }
    if let Sandbox::Custom { home: HomeAccess::User, .. } = server.sandbox {
        folders.extend(package_caches(search.homes));
    }
    canonical(folders)
}

/// The caches of package managers in the user's home.
pub(crate) fn package_caches(homes: &[PathBuf]) -> Vec<PathBuf> {
    const CACHES: [&str; 3] = [".npm", ".cache", ".bun/install/cache"];
    homes.first().map_or_else(Vec::new, |home| CACHES.iter().map(|name| home.join(name)).collect())
}

fn canonical(paths: Vec<PathBuf>) -> Vec<PathBuf> {
    paths.into_iter().filter_map(|path| path.canonicalize().ok()).collect()
}

#[cfg(test)]
mod tests;
