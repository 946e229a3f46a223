//! Turns a symptom into a sentence: the likely refusal, the permissions of the server, and the line that would allow more.

use std::fmt::Write;
use std::path::{Path, PathBuf};

use bascule_sandbox::{Access, FileAccess, FileNeed, Policy, TreeLimits};

use super::proposal::Additions;
use super::remedy::{FileRemedy, PathGrant, RemedySearch, name_of};
use super::symptom::Symptom;
use crate::config::ServerSettings;

/// Permission to look at the files that a server names, which may block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FileLookup {
    Allowed,
    Forbidden,
}

/// The source of hints about one confined server.
pub(crate) struct Hints<'a> {
    pub(crate) settings: &'a ServerSettings,
    pub(crate) policy: &'a Policy,
    /// The limits in force.
    pub(crate) limits: TreeLimits,
}

impl Hints<'_> {
    /// Returns `None` if the sandbox is not the likely cause.
    pub(crate) fn explain(&self, symptom: &Symptom, files: FileLookup) -> Option<String> {
        match symptom {
            Symptom::Permission { is_socket: true, path, .. } if !self.policy.unix_sockets => {
                Some(self.explain_sockets(path.is_none()))
            }
            Symptom::Permission { path: Some(path), need, .. } if self.is_file(path, files) => {
                self.explain_path(path, *need)
            }
            Symptom::Permission { .. } => self.explain_unknown(),
            Symptom::Network if !self.policy.network => Some(self.explain_network()),
            Symptom::Network => None,
            Symptom::Memory => self.explain_memory("`maxMemoryMb` probably met: an allocation failed"),
            Symptom::NoReason => self.explain_memory(
                "the error gives no reason, like a failed allocation in Python: `maxMemoryMb` may be met",
            ),
            Symptom::Processes => {
                let event = format!("`maxProcesses` probably met: the limit is {}", self.limits.processes?);
                self.explain_limit(&event, |additions| additions.processes = true)
            }
            Symptom::OpenFiles => {
                let event = format!("`maxOpenFiles` probably met: the limit is {}", self.policy.open_files?);
                self.explain_limit(&event, |additions| additions.open_files = true)
            }
            Symptom::Killed => self.explain_kill(),
            Symptom::NamedPaths(paths) if files == FileLookup::Allowed && self.is_confined() => {
                let search = RemedySearch::new(self.policy, self.settings);
                let remedy = paths.iter().find_map(|path| search.find_closed(path))?;
                Some(self.explain_remedy(remedy))
            }
            Symptom::NamedPaths(_) => None,
        }
    }

    fn explain_memory(&self, event: &str) -> Option<String> {
        let megabytes = self.limits.memory_bytes? >> 20;
        let event = format!("{event}, the limit is {megabytes} MB");
        self.explain_limit(&event, |additions| additions.memory = true)
    }

    /// Returns false for a name that only looks like a path, such as a part of a URL.
    fn is_file(&self, path: &Path, files: FileLookup) -> bool {
        let path = self.absolute(path);
        let first: PathBuf = path.components().take(2).collect();
        files == FileLookup::Allowed && self.is_confined() && first.exists()
    }

    fn absolute(&self, path: &Path) -> PathBuf {
        self.settings.base_folder().join(path)
    }

    fn is_confined(&self) -> bool {
        self.policy.files != FileAccess::All
    }

    fn explain_path(&self, path: &Path, need: Option<FileNeed>) -> Option<String> {
        let remedy = RemedySearch::new(self.policy, self.settings).find(&self.absolute(path), need)?;
        Some(self.explain_remedy(remedy))
    }

    fn explain_remedy(&self, remedy: FileRemedy) -> String {
        match remedy {
            FileRemedy::Grant(grant) => self.explain_grant(&grant),
            FileRemedy::Unlock(locked) => format!(
                "the sandbox may have refused this: nothing can be created, removed or replaced directly in `{}`, because it \
                 contains the closed `{}`; let the server write in a subfolder, or move what is closed",
                locked.folder.display(),
                name_of(&locked.closed)
            ),
            FileRemedy::Unlisted(locked) => format!(
                "the sandbox may have refused this: `{}` cannot be listed, because it contains the closed `{}`; let the server \
                 use the folders that it needs",
                locked.folder.display(),
                locked.closed.display()
            ),
            FileRemedy::Configuration => {
                "the sandbox refused this: the configuration file is closed to every server".into()
            }
            FileRemedy::Owner(path) => format!(
                "the sandbox may have refused this: `{}` belongs to another user, and a confined server of root has only the \
                 rights of everyone; change its owner or mode",
                path.display()
            ),
        }
    }

    fn explain_grant(&self, grant: &PathGrant) -> String {
        let PathGrant { access, path, .. } = grant;
        let action = if *access == Access::Read { "read" } else { "write" };
        let mut additions = Additions::default();
        let list = if *access == Access::Read { &mut additions.read } else { &mut additions.write };
        list.insert(path.clone());
        let path = path.display();
        let (state, condition) = match grant {
            PathGrant { is_secret: true, .. } => {
                ("holds secrets and is closed", "only if this server may have them, ")
            }
            PathGrant { is_missing: true, .. } => ("is not granted", "create it, then "),
            PathGrant { is_shared: true, .. } => {
                ("is shared with other programs and closed", "if a folder of its own will not do, ")
            }
            _ => ("is not granted", ""),
        };
        format!(
            "the sandbox may have refused to {action} here: `{path}` {state} ({}); {condition}configure {}",
            self.granted(),
            self.lines(&additions)
        )
    }

    fn explain_sockets(&self, may_be_network: bool) -> String {
        let additions = Additions { unix_sockets: true, network: may_be_network, ..Additions::default() };
        format!(
            "the sandbox may have refused a socket ({}); for a program of this machine configure {}",
            self.granted(),
            self.lines(&additions)
        )
    }

    fn explain_network(&self) -> String {
        let additions = Additions { network: true, ..Additions::default() };
        format!("the sandbox refuses the network ({}); configure {}", self.granted(), self.lines(&additions))
    }

    fn explain_unknown(&self) -> Option<String> {
        let server = &self.settings.name;
        let granted = self.is_confined().then(|| self.granted())?;
        Some(format!(
            "the sandbox may have refused this ({granted}); `bascule check --server {server} --trace`, with `--call` for a \
             call, shows what it refuses"
        ))
    }

    fn explain_limit(&self, event: &str, change: impl FnOnce(&mut Additions)) -> Option<String> {
        let mut additions = Additions::default();
        change(&mut additions);
        Some(format!("{event}; configure `{}` for more", additions.lines(self.settings).first()?))
    }

    fn explain_kill(&self) -> Option<String> {
        let server = &self.settings.name;
        self.policy.harden.then(|| {
            format!(
                "the sandbox may have killed it for a refused system call (SIGSYS), such as one of a 32-bit program; `bascule check --server {server} --trace` \
                 shows which one. A .NET program that cannot unpack itself exits with 159, too"
            )
        })
    }

    fn lines(&self, additions: &Additions) -> String {
        let lines = additions.lines(self.settings);
        lines.iter().map(|line| format!("`{line}`")).collect::<Vec<_>>().join(" and ")
    }

    /// Summarizes the permissions of the server.
    fn granted(&self) -> String {
        const SHOWN: usize = 3;
        let FileAccess::Granted { grants, .. } = &self.policy.files else {
            return "granted: all files".into();
        };
        let own = self.policy.temporary.as_deref().and_then(Path::parent);
        let is_own = |path: &Path| own.is_some_and(|own| path.starts_with(own));
        let writable = grants.iter().filter(|grant| grant.access == Access::Write && !is_own(&grant.path));
        let mut writable: Vec<String> = writable.map(|grant| format!("`{}`", grant.path.display())).collect();
        writable.dedup();
        let rest = writable.len().saturating_sub(SHOWN);
        writable.truncate(SHOWN);
        if rest > 0 {
            writable.push(format!("{rest} more"));
        }
        writable.extend(own.map(|_| "its own home and TMPDIR".to_owned()));
        let mut text = match grants.iter().any(|grant| grant.path == Path::new("/")) {
            true => "granted: reading the system".to_owned(),
            false => "granted: reading system libraries and listed paths".to_owned(),
        };
        if !writable.is_empty() {
            let _ = write!(text, ", writing {}", writable.join(", "));
        }
        text.push_str(if self.policy.network { ", network" } else { ", no network" });
        text
    }
}
