//! Faulty servers behind a URL, from the TCP connection up.
//!
//! Every fault ends in a specific error within a bounded time and does not affect other calls and servers.

mod client;
mod responses;
mod session;

use bascule_testkit::{Behaviour, Script, ScriptedHttp};
use serde_json::{Value, json};

use crate::bad_stdio::check;
use crate::support::{Bascule, with_settings};

/// A server with one tool, `x`, that echoes its arguments.
fn echoing() -> Script {
    Script::new().tools(["x"])
}

/// A server with one tool, `x`, whose calls get these behaviours in turn.
fn tool_x<const N: usize>(behaviours: [Behaviour; N]) -> Script {
    echoing().calls("x", behaviours)
}

/// Starts a scripted server and configures it as `s`.
fn served(script: Script) -> (Bascule, ScriptedHttp) {
    served_with(script, json!({}))
}

/// Like [`served`], with additional settings.
fn served_with(script: Script, settings: Value) -> (Bascule, ScriptedHttp) {
    let server = ScriptedHttp::start(script);
    (Bascule::with_server("s", with_settings(server.entry(), settings)), server)
}
