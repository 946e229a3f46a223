//! Confines tool servers and script workers with Linux kernel mechanisms, and kills them when the bridge ends.
//!
//! **Servers.** The bridge starts its own program again as `bascule __jail`. [`jail::main`] forks: the parent is the
//! reaper, which kills every process the server leaves behind; the child confines itself and executes the server.
//! [`policy`] defines the permissions. [`probe`] reports which of them this kernel can enforce. Each mechanism has one
//! file: `capabilities`, `filesystem` (Landlock), `server_syscalls` (seccomp), `rlimits`, `namespaces`, `reaper`, and
//! for whole process trees `cgroup` and `watchdog`. `peers` tells whether a connection comes from a confined process.
//!
//! **Script workers.** [`spawn_worker`] starts a worker process (`worker`, `spawn_thread`). The worker calls
//! [`lockdown::lock_down`] (`lockdown`, `worker_syscalls`) before it reads any input.

#![allow(unsafe_code, reason = "confinement is system calls; every block states why it is sound")]

pub mod jail;
pub mod lockdown;
pub mod policy;
pub mod probe;

mod capabilities;
mod cgroup;
mod filesystem;
mod homes;
mod launch;
mod namespaces;
mod peers;
mod process_tree;
mod reaper;
mod rlimits;
mod seccomp;
mod server_syscalls;
mod sockets;
mod spawn_thread;
mod watchdog;
mod worker;
mod worker_syscalls;

pub use homes::{homes, own_home};
pub use launch::{Jail, Lifeline, PendingWatch};
pub use peers::{is_confined, is_trusted_peer};
pub use policy::{FileAccess, Policy};
pub use probe::Confinement;
pub use watchdog::{LimitHit, TreeLimits, TreeWatch, resident_bytes};
pub use worker::{WorkerExit, WorkerOutput, WorkerProcess, spawn_worker};
