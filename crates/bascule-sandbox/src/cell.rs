//! How a script worker locks itself in, for good, before it reads the first byte that anybody sends it.
//!
//! The process was started by `worker` and has one thread. What it needs of the machine, such as the time zone, it has to
//! fetch before: afterwards there are no files. The order matters: what reads `/proc` comes before Landlock closes it,
//! and the filter of system calls, which forbids all the other steps, comes last.

use std::fmt;
use std::io;
use std::os::unix::process::parent_id;

use landlock::RulesetStatus;
use serde::{Deserialize, Serialize};

use crate::probe::landlock_abi;
use crate::{allowed, capabilities, filesystem, limits, namespaces};

/// Where the worker's socket is.
const SOCKET: i32 = 0;
/// What comes on top of the scripts' memory: program, stack, engine, and what the allocator leaves unused.
const HEADROOM: u64 = 256 << 20;

/// What a worker may use up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CellLimits {
    /// Address space of the whole process: beyond it, no more memory is given out.
    pub address_space_bytes: u64,
    /// Processor time in its whole life; then it ends by SIGXCPU. A back-stop: the host's clock should come first.
    pub cpu_seconds: u64,
}

impl CellLimits {
    /// For scripts that may use so much memory and, by the host's clock, so many seconds.
    pub fn for_scripts(heap_bytes: u64, seconds: u64) -> Self {
        Self {
            address_space_bytes: heap_bytes.saturating_add(HEADROOM),
            cpu_seconds: seconds.saturating_add(5),
        }
    }
}

impl Default for CellLimits {
    fn default() -> Self {
        Self::for_scripts(512 << 20, 30)
    }
}

/// What came of it. What is always there is not mentioned.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CellReport {
    /// What this machine could not give.
    pub missing: Vec<Missing>,
}

/// A wall behind the filter of system calls that this machine could not give.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Missing {
    /// No Landlock at all.
    Landlock,
    /// An older Landlock, without TCP ports (before 4), or signals and abstract sockets (before 6).
    LandlockPartly {
        /// What the kernel speaks.
        abi: i64,
    },
    /// It has the network of the bridge. Leaving that takes a privilege.
    NetworkNamespace,
    /// Descriptors that the bridge inherited may still be open. None of them can be used.
    ClosedDescriptors,
}

impl fmt::Display for Missing {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Landlock => out.write_str("this kernel has no Landlock"),
            Self::LandlockPartly { abi } => write!(out, "this kernel has only revision {abi} of Landlock"),
            Self::NetworkNamespace => out.write_str("no network namespace can be made here"),
            Self::ClosedDescriptors => out.write_str("inherited descriptors could not be closed"),
        }
    }
}

/// Why a worker is not locked, and must not go on.
#[derive(Debug, thiserror::Error)]
pub enum CellError {
    /// Nobody would end the worker if it did not end itself.
    #[error("the process that started the worker has ended")]
    Abandoned,
    /// The others would stay as free as they are.
    #[error("the worker has more than one thread")]
    Threads,
    /// Something that every worker must have could not be had.
    #[error("could not set {what} for the worker")]
    Refused {
        /// What it was.
        what: &'static str,
        /// Why not.
        #[source]
        source: io::Error,
    },
}

/// Locks this process in. On an error it is no longer what it was, and not yet confined: it must end.
pub fn lock(limits: &CellLimits) -> Result<CellReport, CellError> {
    let mut report = CellReport::default();
    must_have_one_thread()?;
    // SAFETY: takes numbers only. This process has no use for any of them.
    let closed = unsafe { libc::close_range(libc::STDERR_FILENO as u32 + 1, u32::MAX, 0) } == 0;
    report.lacks(Missing::ClosedDescriptors, !closed);
    report.lacks(Missing::NetworkNamespace, !namespaces::has_left_the_network());
    capabilities::drop_all().map_err(refused("capabilities"))?;
    end_with_the_host()?;
    set(libc::PR_SET_DUMPABLE, 0, "PR_SET_DUMPABLE")?;
    set(libc::PR_SET_NO_NEW_PRIVS, 1, "no_new_privs")?;
    limits::set_for_worker(limits.address_space_bytes, limits.cpu_seconds).map_err(refused("rlimits"))?;
    match filesystem::close().map(|status| status.ruleset) {
        Ok(RulesetStatus::FullyEnforced) => {}
        Ok(RulesetStatus::PartiallyEnforced) => {
            report.lacks(Missing::LandlockPartly { abi: landlock_abi() }, true);
        }
        Ok(RulesetStatus::NotEnforced) | Err(_) => report.lacks(Missing::Landlock, true),
    }
    allowed::allow_only_what_a_worker_needs().map_err(refused("the filter of system calls"))?;
    Ok(report)
}

impl CellReport {
    fn lacks(&mut self, what: Missing, it_does: bool) {
        self.missing.extend(it_does.then_some(what));
    }
}

/// All that follows holds for one thread.
fn must_have_one_thread() -> Result<(), CellError> {
    // SAFETY: takes a number only. Changes nothing: to leave the group of threads is granted to who is alone in it. Where
    // even asking is forbidden we take the caller's word.
    let alone = unsafe { libc::unshare(libc::CLONE_THREAD) } == 0;
    let refused = io::Error::last_os_error().raw_os_error() == Some(libc::EINVAL);
    if !alone && refused { Err(CellError::Threads) } else { Ok(()) }
}

/// However violently the host ends, this process is killed, even in a loop that never looks at its socket. That holds for
/// the *thread* that started us: see `launcher`.
fn end_with_the_host() -> Result<(), CellError> {
    set(libc::PR_SET_PDEATHSIG, libc::SIGKILL as libc::c_ulong, "PR_SET_PDEATHSIG")?;
    // If it ended before that, nothing will come, and somebody else is our parent by now.
    if host() == Some(parent_id()) { Ok(()) } else { Err(CellError::Abandoned) }
}

/// The process that made our socket.
fn host() -> Option<u32> {
    let mut peer = libc::ucred { pid: 0, uid: 0, gid: 0 };
    let mut size = size_of::<libc::ucred>() as libc::socklen_t;
    let place = (&raw mut peer).cast();
    // SAFETY: `peer` has room for `size` bytes, and any bytes are a valid value of it.
    let result =
        unsafe { libc::getsockopt(SOCKET, libc::SOL_SOCKET, libc::SO_PEERCRED, place, &raw mut size) };
    u32::try_from(peer.pid).ok().filter(|_| result == 0)
}

fn set(what: i32, value: libc::c_ulong, name: &'static str) -> Result<(), CellError> {
    // SAFETY: all that we set this way takes numbers only.
    match unsafe { libc::prctl(what, value, 0 as libc::c_ulong, 0 as libc::c_ulong, 0 as libc::c_ulong) } {
        0 => Ok(()),
        _ => Err(refused(name)(io::Error::last_os_error())),
    }
}

fn refused(what: &'static str) -> impl Fn(io::Error) -> CellError {
    move |source| CellError::Refused { what, source }
}
