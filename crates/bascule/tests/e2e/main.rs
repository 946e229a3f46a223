//! The built program, from outside: real processes, real servers, real sockets.

#![allow(
    clippy::unwrap_used,
    unreachable_pub,
    reason = "a test may fail where it stands, and nobody depends on it"
)]

mod embedded;
mod support;

mod bad_configuration;
mod bad_http;
mod bad_stdio;
mod commands;
mod confinement;
mod conformance;
mod fleet;
mod gateway;
mod isolation;
mod noisy_neighbours;
mod peers;
mod promises;
mod real_clients;
mod real_servers;
mod scripts;
