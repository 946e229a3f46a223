//! NATS as a bus, with a real server: what is particular to it, beside the contract of every bus.

#![allow(clippy::unwrap_used, reason = "test helpers may panic")]

mod access;
mod claims;
mod failures;
mod limits;
mod permissions;
mod storage;
mod support;
mod topics;
