//! Servers behind a URL that misbehave, from the socket up.
//!
//! Each gets a clear error in bounded time, and whatever can go on goes on.

mod client;
mod responses;
mod session;

use bascule_testkit::{Behaviour, Script, ScriptedHttp};
use serde_json::{Value, json};

use crate::bad_stdio::check;
use crate::support::Bascule;

/// A server with one tool, `x`, that echoes its arguments.
fn echoing() -> Script {
    Script::new().tools(["x"])
}

/// A server with one tool, `x`, whose calls are answered so, one after another.
fn tool_x<const N: usize>(behaviours: [Behaviour; N]) -> Script {
    echoing().calls("x", behaviours)
}

/// `bascule` with one server, `s`, that plays this script.
fn served(script: Script) -> (Bascule, ScriptedHttp) {
    served_with(script, json!({}))
}

/// The same, its entry in the configuration also saying this.
fn served_with(script: Script, also: Value) -> (Bascule, ScriptedHttp) {
    let server = ScriptedHttp::start(script);
    let mut entry = server.entry();
    entry.as_object_mut().unwrap().extend(also.as_object().unwrap().clone());
    (Bascule::with_server("s", entry), server)
}
