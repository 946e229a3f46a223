//! Interoperability with rmcp, the official Rust SDK.
//!
//! `servers`: rmcp servers (`rmcp_server`) behind our client. `clients`: the rmcp client with our demo servers.

mod clients;
mod rmcp_server;
mod servers;
