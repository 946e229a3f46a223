//! Confines tool servers and script workers with Linux kernel mechanisms, and kills them when the bridge (the
//! program `bascule`) ends.
//!
//! **Servers.** The bridge starts its own program again as `bascule __jail`. [`jail::main`] forks: the parent is the
//! reaper, which kills every process the server leaves behind; the child confines itself and executes the server.
//! [`policy`] defines the permissions. [`probe`] reports which of them this kernel can enforce. Each mechanism has one
//! file: `capabilities`, `filesystem` (Landlock; `secrets`, `project_secrets`, `mounts` and
//! `toolchains` find its paths), `server_syscalls`
//! (seccomp), `rlimits`, `namespaces`, `reaper`, and for whole process trees `fork_gate`, `cgroup` and `watchdog`.
//! `notifications` passes forks to `fork_gate` and changes of file attributes to `file_attributes`. `peers` checks if a
//! connection comes from a confined process. `file_verdict` and `tracer` find what was refused, for messages.
//!
//! **Script workers.** [`spawn_worker`] starts a worker process (`worker`, `spawn_thread`). The worker calls
//! [`lockdown::lock_down`] (`lockdown`, `worker_syscalls`) before it reads any input.

#![allow(unsafe_code, reason = "confinement is system calls; every block states why it is sound")]

pub mod jail;
pub mod lockdown;
pub mod policy;
pub mod probe;

mod attribute_calls;
mod capabilities;
mod cgroup;
mod disk_usage;
mod file_attributes;
mod file_verdict;
mod filesystem;
mod fork_gate;
mod homes;
mod launch;
mod lifeline;
mod mounts;
mod namespaces;
mod notifications;
mod notified_thread;
mod peers;
mod process_tree;
mod project_secrets;
mod reaper;
mod rlimits;
mod seccomp;
mod secrets;
mod server_syscalls;
mod sockets;
mod spawn_thread;
mod syscall_names;
mod syscall_result;
mod temporary;
mod toolchains;
mod trace_log;
mod traced_calls;
mod tracer;
mod watchdog;
mod worker;
mod worker_syscalls;

pub use file_verdict::{FileNeed, FileVerdict, LockedFolder};
pub use homes::{homes, own_home};
pub use launch::{Jail, PendingWatch};
pub use lifeline::Lifeline;
pub use peers::{is_confined, is_trusted_peer};
pub use policy::{Access, FileAccess, Grant, Policy, Profile, Resolution};
pub use probe::Confinement;
pub use process_tree::descendants_of;
pub use project_secrets::find_project_secrets;
pub use rlimits::raise_open_files;
pub use secrets::{FileIdentity, Secrets, resolve};
pub use toolchains::{ToolchainSearch, is_program, toolchain_variables};
pub use trace_log::{RefusedOperation, RefusedSyscall, TraceLog};
pub use watchdog::{LimitHit, TreeLimits, TreeWatch, resident_bytes};
pub use worker::{WorkerExit, WorkerOutput, WorkerProcess, spawn_worker};
