//! Scripted MCP servers for tests, written apart from our own wire so that a bug of ours cannot hide itself.
//!
//! A [`Script`] says how a server behaves. [`ScriptedStdio`] plays it as a real child process and
//! [`ScriptedHttp`] on a loopback port; both remember every byte they were sent. Nothing here depends on
//! another crate of ours: messages are raw lines, HTTP is written by hand.
//!
//! ```no_run
//! use bascule_testkit::{Behaviour, Script, ScriptedHttp, ScriptedStdio};
//!
//! let script = Script::new().tools(["greet"]).calls("greet", [Behaviour::exit(3), Behaviour::text("hello")]);
//!
//! let child = ScriptedStdio::new(script.clone());
//! let entry = child.entry(); // {"command": …, "args": […]}, for an mcp.json
//! child.wait_for("notifications/initialized");
//!
//! let mut server = ScriptedHttp::start(script);
//! let url = server.url();
//! server.stop();
//! server.start_again(Script::new().tools(["other"]));
//! ```

mod asked;
mod behaviour;
mod binary;
mod folder;
mod fuzz;
mod http;
mod line;
mod message;
mod perform;
mod script;
mod serve;
mod stdio;
mod steps;
mod watch;

pub use behaviour::{Behaviour, IdPlace};
pub use binary::binary;
pub use fuzz::fuzz;
pub use http::{Request, ScriptedHttp, Trouble};
pub use script::{Script, SseHabit};
pub use serve::serve;
pub use stdio::ScriptedStdio;
