//! What a confined server tries, and how it fails: real processes against the real kernel, as root and as nobody.

#![allow(clippy::print_stdout, reason = "figures that are seen are worth a look: `--nocapture`")]

pub mod hostile;

mod cycles;
mod escapes;
mod files;
mod floods;
mod groups;
mod limits;
mod memory;
mod network;
mod survivors;
