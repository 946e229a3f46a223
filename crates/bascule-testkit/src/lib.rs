//! Scripted MCP servers and real brokers for tests.
//!
//! A [`Script`] describes the behaviour of a server. [`ScriptedStdio`] runs it as a child process, [`ScriptedHttp`] on a
//! loopback port; both record every received byte. This crate shares no code with the bridge, so that a bug in the
//! bridge's protocol code cannot hide in the tests: messages are raw lines, and HTTP is written by hand.
//!
//! [`NatsServer`] and [`RabbitMqServer`] run real brokers that a test can kill and start again;
//! [`TcpProxy`] cuts the connections to them.
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
//! server.restart(Script::new().tools(["other"]));
//! ```

mod behaviour;
mod binary;
mod certificates;
mod client_requests;
mod folder;
mod fuzz;
mod http;
mod message;
mod nats;
mod padded_text;
mod perform;
mod port;
mod rabbitmq;
mod script;
mod serve;
mod stdio;
mod steps;
mod tcp_proxy;
mod wait;

pub use behaviour::{Behaviour, IdPosition};
pub use binary::binary;
pub use certificates::TestCertificates;
pub use fuzz::fuzz;
pub use http::{HttpFault, RecordedRequest, ScriptedHttp};
pub use nats::{NatsServer, NatsSetting, broker_program};
pub use rabbitmq::{RabbitMqServer, RabbitMqSetting};
pub use script::{Script, SseFeature};
pub use serve::serve;
pub use stdio::ScriptedStdio;
pub use tcp_proxy::TcpProxy;
