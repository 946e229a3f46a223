//! Attacks by confined servers: real processes against the real kernel, as root and as `nobody`.

#![allow(clippy::print_stdout, reason = "measurements, shown with `--nocapture`")]

pub mod hostile_server;

mod attributes;
mod bombs;
mod cgroups;
mod cleanup;
mod crashes;
mod escapes;
mod files;
mod floods;
mod hints;
mod home;
mod limits;
mod memory;
mod network;
mod trace;
