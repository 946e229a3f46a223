//! The built program, from outside: real processes, real servers, real sockets.

mod embedded;
mod support;

mod bad_configuration;
mod bad_http;
mod bad_stdio;
mod commands;
mod peers;
mod real_servers;
