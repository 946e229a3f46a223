//! End-to-end tests of the built program with real processes, servers and sockets.

#![allow(
    clippy::unwrap_used,
    unreachable_pub,
    reason = "tests may panic, and no other crate depends on them"
)]

mod embedded;
mod support;

mod audit;
mod bad_configuration;
mod bad_http;
mod bad_stdio;
mod bus;
mod clients;
mod commands;
mod confinement;
mod conformance;
mod contrib;
mod fleet;
mod gateway;
mod graph;
mod isolation;
mod metrics;
mod noisy_neighbours;
mod otlp;
mod peers;
mod real_clients;
mod real_servers;
mod requirements;
mod scripts;
mod setup;
mod trace_context;
mod traces;
mod trust;
