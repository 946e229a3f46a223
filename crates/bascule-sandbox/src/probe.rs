//! What this kernel can give, told in words for `check` and status.

use serde::{Deserialize, Serialize};

use crate::cgroup::Place;
use crate::namespaces;
use crate::policy::{Files, Policy};

/// What confines a server, by which mechanism, and what could not be had.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Confinement {
    /// What is in force.
    pub in_force: Vec<String>,
    /// What was wanted and is missing here.
    pub missing: Vec<String>,
}

impl Confinement {
    /// What a policy comes to on this machine.
    pub fn of(policy: &Policy) -> Self {
        let mut told = Self::default();
        told.have("own session, reaper, no new privileges, no core dumps");
        told.files(policy);
        if policy.harden {
            told.have("capabilities dropped; ptrace, bpf, mount, keyctl, io_uring, modules and the like refused (seccomp)");
        }
        if !policy.network {
            let namespace = namespaces::can_leave_the_network();
            told.have(if namespace {
                "no sockets (seccomp, network namespace)"
            } else {
                "no sockets (seccomp)"
            });
        }
        match Place::here() {
            Some(place) => {
                told.have(&place.told());
                told.have("number of processes (watchdog over the whole tree)");
            }
            None => {
                told.lack("limits on the whole tree by the kernel: no control group can be made here");
                told.have(
                    "memory and number of processes (watchdog over the whole tree; RLIMIT_DATA for each)",
                );
            }
        }
        if let Some(most) = policy.open_files {
            told.have(&format!("at most {most} open files a process (rlimit)"));
        }
        told
    }

    fn files(&mut self, policy: &Policy) {
        let wanted = match &policy.files {
            Files::All => return,
            Files::AllBut { .. } => "secrets unreadable, writes only where granted",
            Files::Listed { .. } => "only listed files",
        };
        match landlock_abi() {
            0 => self.lack(&format!("{wanted}: this kernel has no Landlock")),
            abi => self.have(&format!("{wanted} (Landlock ABI {abi})")),
        }
        match landlock_abi() {
            6.. => self.have("signals and abstract sockets stay inside (Landlock)"),
            _ => self.lack("signals and abstract sockets are not confined: needs Landlock ABI 6"),
        }
    }

    fn have(&mut self, what: &str) {
        self.in_force.push(what.to_owned());
    }

    fn lack(&mut self, what: &str) {
        self.missing.push(what.to_owned());
    }
}

/// Which revision of Landlock the kernel speaks; 0 for none.
pub fn landlock_abi() -> i64 {
    const VERSION: libc::c_ulong = 1;
    // SAFETY: asked for its version, the call takes no pointer.
    let abi = unsafe { libc::syscall(libc::SYS_landlock_create_ruleset, std::ptr::null::<u8>(), 0, VERSION) };
    abi.max(0)
}
