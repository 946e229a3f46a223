//! RabbitMQ beyond the contract of every bus: a real broker that is killed, cut off, full or hostile.

#![allow(clippy::unwrap_used, reason = "cases are tests")]

mod connecting;
mod losses;
mod messages;
mod requests;
mod support;
