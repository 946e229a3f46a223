//! Tests of the serving side over real sockets and pipes, with well-behaved and hostile clients.

mod client;
mod host;

mod access;
mod limits;
mod messages;
mod routes;
mod sessions;
mod shutdown;
mod stdio;
mod streams;
