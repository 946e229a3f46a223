//! Locks down a script worker: its process gives up nearly all access, for good, before it reads any input.
//!
//! `worker` started the process, which has one thread. Anything it needs from files, such as the time zone, it must load
//! before. The order of the steps matters: whatever reads `/proc` runs before Landlock closes it, and the seccomp filter,
//! which forbids all the other steps, is installed last.

use std::io;
use std::os::unix::process::parent_id;

use landlock::RulesetStatus;
use serde::{Deserialize, Serialize};

use crate::probe::landlock_abi;
use crate::{capabilities, filesystem, namespaces, rlimits, worker_syscalls};

/// The descriptor of the worker's socket to its host.
const SOCKET: i32 = 0;
/// Address space beyond the script's heap: program, stack, engine, and memory the allocator leaves unused.
const HEADROOM: u64 = 256 << 20;

/// Resource limits of a worker process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LockdownLimits {
    /// Address space of the whole process. Allocations beyond it fail.
    pub address_space_bytes: u64,
    /// Processor time over the worker's life, after which SIGXCPU ends it. A back-stop: the host's own timer fires first.
    pub cpu_seconds: u64,
}

impl LockdownLimits {
    /// Limits for scripts with this heap and this time limit on the host's clock.
    pub fn for_scripts(heap_bytes: u64, seconds: u64) -> Self {
        Self {
            address_space_bytes: heap_bytes.saturating_add(HEADROOM),
            cpu_seconds: seconds.saturating_add(5),
        }
    }
}

/// The result of a lockdown. Protections that every lockdown has are not listed.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LockdownReport {
    pub missing: Vec<MissingProtection>,
}

/// A protection, in addition to the seccomp filter, that this machine does not provide.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[serde(rename_all = "camelCase")]
pub enum MissingProtection {
    #[error("this kernel has no Landlock")]
    Landlock,
    /// The kernel's Landlock does not cover TCP ports (ABI below 4) or signals and abstract sockets (ABI below 6).
    #[error("this kernel only supports Landlock ABI {abi}")]
    LandlockPartly { abi: i64 },
    /// The worker shares the bridge's network namespace. Leaving it takes a privilege.
    #[error("no network namespace can be created here")]
    NetworkNamespace,
    /// Descriptors that the bridge inherited may still be open. The seccomp filter forbids their use.
    #[error("inherited descriptors could not be closed")]
    ClosedDescriptors,
}

/// The reason why a worker is not locked down and must not run a script.
#[derive(Debug, thiserror::Error)]
pub enum LockdownError {
    /// Nothing would kill the worker if it did not end by itself.
    #[error("the process that started the worker has ended")]
    HostEnded,
    /// Other threads would remain unconfined.
    #[error("the worker has more than one thread")]
    Threads,
    /// A protection that every worker must have could not be applied.
    #[error("could not set {protection} for the worker")]
    Refused {
        protection: &'static str,
        #[source]
        source: io::Error,
    },
}

/// Locks down this process. After an error the process is only partly confined and must exit.
pub fn lock_down(limits: &LockdownLimits) -> Result<LockdownReport, LockdownError> {
    let mut report = LockdownReport::default();
    require_single_thread()?;
    // SAFETY: takes numbers only. This process does not use any of these descriptors.
    let closed = unsafe { libc::close_range(libc::STDERR_FILENO as u32 + 1, u32::MAX, 0) } == 0;
    report.add_if(!closed, MissingProtection::ClosedDescriptors);
    report.add_if(!namespaces::has_own_network(), MissingProtection::NetworkNamespace);
    capabilities::drop_all().map_err(refused("capabilities"))?;
    die_with_host()?;
    set_process_flag(libc::PR_SET_DUMPABLE, 0, "PR_SET_DUMPABLE")?;
    set_process_flag(libc::PR_SET_NO_NEW_PRIVS, 1, "no_new_privs")?;
    rlimits::set_for_worker(limits.address_space_bytes, limits.cpu_seconds).map_err(refused("rlimits"))?;
    match filesystem::deny_all().map(|status| status.ruleset) {
        Ok(RulesetStatus::FullyEnforced) => {}
        Ok(RulesetStatus::PartiallyEnforced) => {
            report.missing.push(MissingProtection::LandlockPartly { abi: landlock_abi() });
        }
        Ok(RulesetStatus::NotEnforced) | Err(_) => report.missing.push(MissingProtection::Landlock),
    }
    worker_syscalls::restrict().map_err(refused("the seccomp filter"))?;
    Ok(report)
}

impl LockdownReport {
    fn add_if(&mut self, is_missing: bool, protection: MissingProtection) {
        self.missing.extend(is_missing.then_some(protection));
    }
}

/// The steps that follow apply to the calling thread only.
fn require_single_thread() -> Result<(), LockdownError> {
    // SAFETY: takes a number only and changes nothing: the kernel grants `unshare(CLONE_THREAD)` to a process with one
    // thread and answers EINVAL otherwise. Where the call itself is forbidden, a single thread is assumed.
    let is_single = unsafe { libc::unshare(libc::CLONE_THREAD) } == 0;
    let is_refused = io::Error::last_os_error().raw_os_error() == Some(libc::EINVAL);
    if !is_single && is_refused { Err(LockdownError::Threads) } else { Ok(()) }
}

/// Has the kernel kill this process when the host dies, even if it loops without reading its socket. The kernel watches
/// the *thread* that spawned the worker: see `spawn_thread`.
fn die_with_host() -> Result<(), LockdownError> {
    set_process_flag(libc::PR_SET_PDEATHSIG, libc::SIGKILL as libc::c_ulong, "PR_SET_PDEATHSIG")?;
    // If the host died before that call, no signal will be sent, and another process has become the parent.
    if host_pid() == Some(parent_id()) { Ok(()) } else { Err(LockdownError::HostEnded) }
}

/// The process that created the worker's socket.
fn host_pid() -> Option<u32> {
    let mut peer = libc::ucred { pid: 0, uid: 0, gid: 0 };
    let mut size = size_of::<libc::ucred>() as libc::socklen_t;
    let buffer = (&raw mut peer).cast();
    // SAFETY: `peer` has room for `size` bytes, and any bytes are a valid value of it.
    let result =
        unsafe { libc::getsockopt(SOCKET, libc::SOL_SOCKET, libc::SO_PEERCRED, buffer, &raw mut size) };
    u32::try_from(peer.pid).ok().filter(|_| result == 0)
}

fn set_process_flag(option: i32, value: libc::c_ulong, name: &'static str) -> Result<(), LockdownError> {
    // SAFETY: every option that is set here takes numbers only.
    match unsafe { libc::prctl(option, value, 0 as libc::c_ulong, 0 as libc::c_ulong, 0 as libc::c_ulong) } {
        0 => Ok(()),
        _ => Err(refused(name)(io::Error::last_os_error())),
    }
}

fn refused(protection: &'static str) -> impl Fn(io::Error) -> LockdownError {
    move |source| LockdownError::Refused { protection, source }
}
