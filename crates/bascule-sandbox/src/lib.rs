//! Confinement: a tool server runs in a process that can do what its policy grants, and that ends with us.
//!
//! The bridge starts its own program again as `bascule __jail`: [`jail::main`] splits into a reaper, which stays
//! and sees to it that nothing survives, and the server's process, which confines itself and then becomes the
//! server. One file per mechanism: `capabilities`, `filesystem` (Landlock), `syscalls` (seccomp), `limits`
//! (rlimits), `cgroup` and `watchdog` (the whole tree), `namespaces`, `reaper`. `peers` tells who of them
//! connects to us, with the help of `sockets` and `tree`. [`policy`] says what is wanted, [`probe`] what this kernel can give.
//!
//! A script runs in a worker, which is our own code and needs next to nothing: [`spawn_worker`] starts it (`worker`,
//! `launcher`), and it locks itself with [`cell::lock`] (`cell`, `allowed`) before it reads anything.

#![allow(unsafe_code, reason = "confinement is system calls; every block states why it is sound")]

pub mod cell;
pub mod jail;
pub mod policy;
pub mod probe;

mod allowed;
mod capabilities;
mod cgroup;
mod filesystem;
mod filter;
mod launch;
mod launcher;
mod limits;
mod namespaces;
mod peers;
mod reaper;
mod sockets;
mod syscalls;
mod tree;
mod watchdog;
mod worker;

pub use launch::{Jail, Lifeline, Warden, launch};
pub use peers::{Peer, is_ours, peer};
pub use policy::{Files, Policy};
pub use probe::Confinement;
pub use watchdog::{Hit, TreeLimits, Watch, resident_bytes};
pub use worker::{End, Output, Worker, spawn_worker, spawn_worker_then};
