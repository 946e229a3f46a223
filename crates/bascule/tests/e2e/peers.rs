//! An independent peer: rmcp, the official Rust SDK, on the other side of our wire.
//!
//! `servers` are built with rmcp and stand behind our client; `clients` are rmcp's, and talk to our demo
//! servers. What the servers do is in `rmcp_server`.

mod clients;
mod rmcp_server;
mod servers;
