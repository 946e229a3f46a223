//! Describes the protections that this kernel provides for a policy, for `check` and `status`.

use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::cgroup::CgroupParent;
use crate::policy::{FileAccess, Policy};
use crate::{file_attributes, namespaces, notifications};

/// The protections of a server, each with its mechanism, as sentences for users.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Confinement {
    pub in_force: Vec<String>,
    /// Protections of the policy that this machine cannot provide.
    pub missing: Vec<String>,
}

impl Confinement {
    /// Describes what a policy results in on this machine.
    pub fn for_policy(policy: &Policy) -> Self {
        let mut confinement = Self::default();
        confinement.add("own session, reaper, no new privileges, no core dumps");
        confinement.add_files(policy);
        if policy.temporary.is_some() {
            confinement.add("own home and temporary folder");
        }
        if policy.harden {
            confinement.add("capabilities dropped; ptrace, bpf, mount, keyctl, io_uring, kernel modules, System V memory, set-uid bits and similar system calls refused (seccomp)");
            confinement.add(match policy.file_metadata {
                true => "no other process's priority or processor, no change of file flags (seccomp)",
                false => "no other process's priority or processor, no change of a file's mode, owner, times or flags (seccomp)",
            });
            confinement.add_attributes(policy);
        }
        if !policy.unix_sockets {
            confinement.add("no sockets of other programs on this machine: AF_UNIX refused (seccomp)");
        }
        if !policy.network {
            confinement.add(match namespaces::can_unshare_network() {
                true => "no sockets (seccomp, network namespace)",
                false => "no sockets (seccomp)",
            });
        }
        confinement.add_tree_limits();
        confinement.add_end_of_forks();
        if let Some(max) = policy.open_files {
            confinement.add(&format!("at most {max} open files per process (rlimit)"));
        }
        confinement
    }

    fn add_files(&mut self, policy: &Policy) {
        let wanted = match &policy.files {
            FileAccess::All => return,
            FileAccess::Granted { grants, .. } if grants.iter().any(|grant| grant.path == Path::new("/")) => {
                "homes and temporary folders closed except granted paths, writes only where granted"
            }
            FileAccess::Granted { .. } => "only listed files",
        };
        match landlock_abi() {
            0 => self.add_missing(&format!("{wanted}: this kernel has no Landlock")),
            abi => self.add(&format!("{wanted} (Landlock ABI {abi})")),
        }
        match landlock_abi() {
            6.. => self.add("no signals or abstract sockets to processes outside (Landlock)"),
            _ => {
                self.add_missing("no signals or abstract sockets to processes outside: needs Landlock ABI 6")
            }
        }
    }

    fn add_attributes(&mut self, policy: &Policy) {
        const WANTED: &str = "changes of mode, owner and times only where writes are granted";
        if !policy.checks_attributes() {
            return;
        }
        match notifications::can_listen() && file_attributes::can_answer() {
            true => self.add(&format!("{WANTED} (seccomp notifications)")),
            false => self.add_missing(&format!(
                "{WANTED}: needs seccomp notifications (Linux 5.9, and no other listener), and Yama's ptrace_scope below 2"
            )),
        }
    }

    /// A tree that can fork faster than the reaper kills would survive.
    fn add_end_of_forks(&mut self) {
        let group = CgroupParent::get().filter(|parent| parent.limits_tasks());
        match (notifications::can_listen(), group) {
            (true, _) => self.add("every fork counted by the reaper; a fork bomb ends with its server (seccomp notifications)"),
            (false, Some(_)) => self.add("a fork bomb ends with its server (cgroup)"),
            (false, None) => self.add_missing("a fork bomb ends with its server: needs seccomp notifications (Linux 5.9, and no other listener) or a control group"),
        }
    }

    fn add_tree_limits(&mut self) {
        match CgroupParent::get() {
            Some(parent) => {
                self.add(&parent.describe());
                self.add("number of processes of the whole tree (watchdog)");
            }
            None => {
                self.add_missing("kernel limits on the whole tree: no control group can be created here");
                self.add("memory and number of processes of the whole tree (watchdog); memory per process (RLIMIT_DATA)");
            }
        }
    }

    fn add(&mut self, protection: &str) {
        self.in_force.push(protection.to_owned());
    }

    fn add_missing(&mut self, protection: &str) {
        self.missing.push(protection.to_owned());
    }
}

/// The kernel's Landlock ABI version; 0 if it has no Landlock.
pub fn landlock_abi() -> i64 {
    const VERSION: libc::c_ulong = 1;
    // SAFETY: with this flag the call takes no pointer.
    let abi = unsafe { libc::syscall(libc::SYS_landlock_create_ruleset, std::ptr::null::<u8>(), 0, VERSION) };
    abi.max(0)
}
