//! Judges the refusals of a traced server, and proposes the smallest entry that would allow them.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use bascule_sandbox::{Access, FileNeed, FileVerdict, Policy, RefusedOperation, RefusedSyscall};
use serde::Serialize;

use super::proposal::Additions;
use super::remedy::{FileRemedy, PathGrant, RemedySearch, name_of};
use crate::config::ServerSettings;

/// The part of a traced run in which a refusal happened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) enum TracePhase {
    Start,
    Call,
}

/// The authority that refused an operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) enum RefusedBy {
    Sandbox,
    Limit,
    /// Permissions of files, or other rules of the operating system.
    System,
}

/// Equal refusals, with the setting that would allow them.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct TracedRefusal {
    pub(crate) operation: &'static str,
    /// The path, the family of a socket, or the system call.
    pub(crate) object: String,
    pub(crate) syscall: String,
    pub(crate) error: String,
    pub(crate) count: usize,
    pub(crate) phase: TracePhase,
    pub(crate) refused_by: RefusedBy,
    /// True for an operation that programs try and do without.
    pub(crate) tolerated: bool,
    /// The setting, or `None` if there is none but `"sandbox": "off"`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) allowed_by: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) note: Option<String>,
    #[serde(skip)]
    remedy: Remedy,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Remedy {
    None,
    Path(PathGrant),
    Network,
    UnixSockets,
    Attributes,
    Memory,
    Processes,
    OpenFiles,
}

/// A proposal, with the reasons to think twice.
#[derive(Debug, Default)]
pub(crate) struct Proposal {
    pub(crate) additions: Additions,
    pub(crate) warnings: Vec<String>,
}

/// The decision about one refused call.
struct Judgement {
    refused_by: RefusedBy,
    tolerated: bool,
    remedy: Remedy,
    note: Option<String>,
}

impl Judgement {
    fn new(refused_by: RefusedBy, remedy: Remedy) -> Self {
        Self { refused_by, tolerated: false, remedy, note: None }
    }

    /// The sandbox refused it, and no setting but `"off"` allows it.
    fn without_setting(tolerated: bool) -> Self {
        let note = Some("only `\"sandbox\": \"off\"` allows it".to_owned());
        Self { tolerated, note, ..Self::new(RefusedBy::Sandbox, Remedy::None) }
    }
}

/// Judges the refusals of one server.
pub(crate) struct TraceJudge<'a> {
    policy: &'a Policy,
    search: RemedySearch<'a>,
}

impl<'a> TraceJudge<'a> {
    pub(crate) fn new(policy: &'a Policy, settings: &ServerSettings) -> Self {
        Self { policy, search: RemedySearch::new(policy, settings) }
    }

    /// Groups equal calls, the most telling first. The first `at_start` calls belong to the start.
    pub(crate) fn judge(&self, calls: &[RefusedSyscall], at_start: usize) -> Vec<TracedRefusal> {
        let mut groups = BTreeMap::<_, (&RefusedSyscall, usize)>::new();
        for (index, call) in calls.iter().enumerate() {
            let phase = if index < at_start { TracePhase::Start } else { TracePhase::Call };
            // Several system calls serve one operation, such as `openat` and `execve`.
            let key = (phase, describe_operation(&call.operation), describe_object(call), call.errno);
            groups.entry(key).or_insert((call, 0)).1 += 1;
        }
        let mut refusals: Vec<_> =
            groups.into_iter().map(|((phase, ..), (call, count))| self.refusal(call, phase, count)).collect();
        refusals
            .sort_by_key(|refusal| (refusal.tolerated, refusal.refused_by, std::cmp::Reverse(refusal.count)));
        refusals
    }

    fn refusal(&self, call: &RefusedSyscall, phase: TracePhase, count: usize) -> TracedRefusal {
        let Judgement { refused_by, tolerated, remedy, note } = self.decide(call);
        TracedRefusal {
            operation: describe_operation(&call.operation),
            object: describe_object(call),
            syscall: call.call.clone(),
            error: describe_error(call.errno),
            count,
            phase,
            refused_by,
            tolerated,
            allowed_by: describe_remedy(&remedy),
            note,
            remedy,
        }
    }

    fn decide(&self, call: &RefusedSyscall) -> Judgement {
        use RefusedBy::{Limit, Sandbox, System};
        const FAMILIES: [i32; 3] = [2, 10, 16];
        match &call.operation {
            RefusedOperation::File { path, need } => self.decide_file(Path::new(path), *need),
            RefusedOperation::Attributes { .. } if self.policy.harden && !self.policy.file_metadata => {
                Judgement::new(Sandbox, Remedy::Attributes)
            }
            RefusedOperation::Attributes { path } => self.decide_file(Path::new(path), FileNeed::Write),
            RefusedOperation::Socket { family: 1 } if !self.policy.unix_sockets => {
                Judgement::new(Sandbox, Remedy::UnixSockets)
            }
            RefusedOperation::Socket { family } if FAMILIES.contains(family) && !self.policy.network => {
                Judgement::new(Sandbox, Remedy::Network)
            }
            RefusedOperation::Socket { family } if FAMILIES.contains(family) || *family == 1 => {
                Judgement::new(System, Remedy::None)
            }
            RefusedOperation::Process => Judgement::new(Limit, Remedy::Processes),
            RefusedOperation::Memory { .. } => Judgement::new(Limit, Remedy::Memory),
            RefusedOperation::OpenFile => Judgement::new(Limit, Remedy::OpenFiles),
            RefusedOperation::Signal => Judgement::without_setting(true),
            RefusedOperation::Other => Judgement::without_setting(is_probe(&call.call)),
            RefusedOperation::Socket { .. } | RefusedOperation::Killed => Judgement::without_setting(false),
        }
    }

    fn decide_file(&self, path: &Path, need: FileNeed) -> Judgement {
        // The bridge's own processes stand in `/proc/self`, not the server's.
        if is_kernel_file(path) {
            return self.decide_kernel_file(path, need);
        }
        let tolerated = is_usually_tolerated(path, need);
        let by_sandbox = |note: Option<String>| Judgement {
            tolerated,
            note,
            ..Judgement::new(RefusedBy::Sandbox, Remedy::None)
        };
        match self.search.find(path, Some(need)) {
            None => Judgement { tolerated, ..Judgement::new(RefusedBy::System, Remedy::None) },
            Some(FileRemedy::Grant(grant)) => {
                let note = grant.is_secret.then(|| "it holds secrets".to_owned());
                Judgement { remedy: Remedy::Path(grant), ..by_sandbox(note) }
            }
            Some(FileRemedy::Unlock(locked)) => by_sandbox(Some(format!(
                "`{}` contains the closed `{}`: nothing can be created or removed directly in it",
                locked.folder.display(),
                name_of(&locked.closed)
            ))),
            Some(FileRemedy::Unlisted(locked)) => by_sandbox(Some(format!(
                "`{}` contains the closed `{}`, so it cannot be listed",
                locked.folder.display(),
                locked.closed.display()
            ))),
            Some(FileRemedy::Configuration) => {
                by_sandbox(Some("the configuration file is closed to every server".into()))
            }
            Some(FileRemedy::Owner(path)) => by_sandbox(Some(format!(
                "`{}` belongs to another user: a confined server of root has only the rights of everyone",
                path.display()
            ))),
        }
    }

    fn decide_kernel_file(&self, path: &Path, need: FileNeed) -> Judgement {
        let is_refused = self.policy.judge(path, need) != FileVerdict::Allowed;
        let by = if is_refused { RefusedBy::Sandbox } else { RefusedBy::System };
        Judgement { tolerated: true, ..Judgement::new(by, Remedy::None) }
    }

    /// Proposes what allows the refusals of the phase that failed, or of the other one if that has none.
    pub(crate) fn propose(&self, refusals: &[TracedRefusal], failed: TracePhase) -> Proposal {
        let is_telling =
            |refusal: &&TracedRefusal| !refusal.tolerated && refusal.refused_by != RefusedBy::System;
        let telling: Vec<&TracedRefusal> = refusals.iter().filter(is_telling).collect();
        let of_phase: Vec<&TracedRefusal> =
            telling.iter().copied().filter(|refusal| refusal.phase == failed).collect();
        let chosen = if of_phase.is_empty() { telling } else { of_phase };
        let mut proposal = Proposal::default();
        let mut grants = Vec::new();
        for refusal in &chosen {
            if let (Some(note), None) = (&refusal.note, &refusal.allowed_by) {
                proposal.warnings.push(format!("{} {}: {note}", refusal.operation, refusal.object));
            }
            match &refusal.remedy {
                Remedy::Path(grant) if grant.is_secret => proposal.warnings.push(format!(
                    "`{}` holds secrets, so it is left out: list it only if this server may have them",
                    grant.path.display()
                )),
                Remedy::Path(grant) => grants.push(grant.clone()),
                other => add_setting(&mut proposal.additions, other),
            }
        }
        self.add_grants(&mut proposal, grants);
        // Resolvers of names and users try a socket of a daemon first, and do without.
        let others = Additions { unix_sockets: false, ..proposal.additions.clone() };
        proposal.additions.unix_sockets &= others == Additions::default();
        proposal.warnings.dedup();
        proposal
    }

    fn add_grants(&self, proposal: &mut Proposal, grants: Vec<PathGrant>) {
        for grant in &grants {
            let path = grant.path.display();
            if grant.is_missing {
                proposal
                    .warnings
                    .push(format!("create `{path}` first: a path that does not exist is not granted"));
            } else if grant.is_shared {
                proposal.warnings.push(format!("`{path}` holds files of other programs, too"));
            }
        }
        let paths = |access| {
            grants.iter().filter(move |grant| grant.access == access).map(|grant| grant.path.clone())
        };
        let additions = &mut proposal.additions;
        additions.write = self.smallest(paths(Access::Write).collect());
        let is_new = |path: &PathBuf| !additions.write.iter().any(|above| path.starts_with(above));
        additions.read = self.smallest(paths(Access::Read).filter(is_new).collect());
    }

    /// Replaces many entries of one folder by the folder, and leaves out paths below others.
    fn smallest(&self, mut paths: Vec<PathBuf>) -> std::collections::BTreeSet<PathBuf> {
        const MAX_SIBLINGS: usize = 3;
        loop {
            paths.sort();
            paths.dedup();
            let mut siblings = BTreeMap::<PathBuf, usize>::new();
            for parent in paths.iter().filter_map(|path| path.parent()) {
                *siblings.entry(parent.to_path_buf()).or_default() += 1;
            }
            let is_joined = |(parent, count): &(PathBuf, usize)| {
                *count > MAX_SIBLINGS && !paths.contains(parent) && self.search.may_be_granted_whole(parent)
            };
            match siblings.into_iter().find(is_joined) {
                Some((parent, _)) => paths.push(parent),
                None => break,
            }
        }
        let is_outermost =
            |path: &&PathBuf| !paths.iter().any(|above| above != *path && path.starts_with(above));
        paths.iter().filter(is_outermost).cloned().collect()
    }
}

fn add_setting(additions: &mut Additions, remedy: &Remedy) {
    match remedy {
        Remedy::None | Remedy::Path(_) => {}
        Remedy::Network => additions.network = true,
        Remedy::UnixSockets => additions.unix_sockets = true,
        Remedy::Attributes => additions.attributes = true,
        Remedy::Memory => additions.memory = true,
        Remedy::Processes => additions.processes = true,
        Remedy::OpenFiles => additions.open_files = true,
    }
}

fn describe_remedy(remedy: &Remedy) -> Option<String> {
    Some(match remedy {
        Remedy::None => return None,
        Remedy::Path(PathGrant { access: Access::Read, path, .. }) => format!("\"read\": [{path:?}]"),
        Remedy::Path(PathGrant { path, .. }) => format!("\"write\": [{path:?}]"),
        Remedy::Network => "\"network\": \"full\"".into(),
        Remedy::UnixSockets => "\"unixSockets\": true".into(),
        Remedy::Attributes => "\"profile\": \"standard\"".into(),
        Remedy::Memory => "limits.maxMemoryMb".into(),
        Remedy::Processes => "limits.maxProcesses".into(),
        Remedy::OpenFiles => "limits.maxOpenFiles".into(),
    })
}

fn describe_operation(operation: &RefusedOperation) -> &'static str {
    match operation {
        RefusedOperation::File { need: FileNeed::Read, .. } => "read",
        RefusedOperation::File { need: FileNeed::Write, .. } => "write",
        RefusedOperation::File { need: FileNeed::ChangeFolder, .. } => "create or remove",
        RefusedOperation::Attributes { .. } => "change attributes",
        RefusedOperation::Socket { .. } => "open a socket",
        RefusedOperation::Process => "start a process",
        RefusedOperation::Memory { .. } => "allocate",
        RefusedOperation::OpenFile => "open a file",
        RefusedOperation::Signal => "signal a process",
        RefusedOperation::Killed => "killed in",
        RefusedOperation::Other => "system call",
    }
}

fn describe_object(call: &RefusedSyscall) -> String {
    match &call.operation {
        RefusedOperation::File { path, .. } | RefusedOperation::Attributes { path } => path.clone(),
        RefusedOperation::Socket { family: 1 } => "AF_UNIX".into(),
        RefusedOperation::Socket { family: 2 } => "AF_INET".into(),
        RefusedOperation::Socket { family: 10 } => "AF_INET6".into(),
        RefusedOperation::Socket { family: 16 } => "AF_NETLINK".into(),
        RefusedOperation::Socket { family } => format!("family {family}"),
        RefusedOperation::Memory { bytes } => format!("{} MB", bytes >> 20),
        _ => call.call.clone(),
    }
}

fn describe_error(errno: i32) -> String {
    match errno {
        0 => "SIGSYS".into(),
        1 => "EPERM".into(),
        11 => "EAGAIN".into(),
        12 => "ENOMEM".into(),
        13 => "EACCES".into(),
        18 => "EXDEV".into(),
        24 => "EMFILE".into(),
        30 => "EROFS".into(),
        other => format!("error {other}"),
    }
}

/// System calls that runtimes try, with another way if they are refused.
fn is_probe(call: &str) -> bool {
    const PROBES: [&str; 12] = [
        "io_uring_setup",
        "perf_event_open",
        "userfaultfd",
        "bpf",
        "keyctl",
        "fcntl",
        "ioctl",
        "prlimit64",
        "setpriority",
        "ioprio_set",
        "sched_setaffinity",
        "sched_setscheduler",
    ];
    PROBES.contains(&call)
}

fn is_kernel_file(path: &Path) -> bool {
    ["/proc", "/sys", "/dev/tty"].iter().any(|folder| path.starts_with(folder))
}

/// Returns true for caches and settings that programs look for and do without.
fn is_usually_tolerated(path: &Path, need: FileNeed) -> bool {
    const SETTINGS: [&str; 17] = [
        "package.json",
        ".npmrc",
        "npmrc",
        "pyvenv.cfg",
        ".python-version",
        ".nvmrc",
        ".node-version",
        ".gitconfig",
        ".netrc",
        ".curlrc",
        "pip.conf",
        "uv.toml",
        "tsconfig.json",
        ".env",
        "locale.alias",
        "locale-archive",
        "gconv-modules.cache",
    ];
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    match need {
        FileNeed::Read => SETTINGS.contains(&&*name),
        _ => path.components().any(|part| part.as_os_str() == "__pycache__") || name.ends_with(".pyc"),
    }
}
