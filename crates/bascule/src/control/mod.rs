//! How the command line reaches a bridge that is running: a socket that only its user can open, and a token that a
//! confined server cannot read.
//!
//! Landlock does not keep a process from connecting to a socket in the file system. The token lies extra it in a
//! folder that no sandbox grants, and changes with every start. The token is a line, one line of JSON asks, one or more
//! answer.

mod ask;
mod door;
mod place;

pub(crate) use ask::{ListedTool, Listing, RunningBridge};
pub(crate) use door::Door;
pub(crate) use place::Place;

use bascule_model::BridgeError;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

/// No question is longer: the arguments of a call are part of it.
const LONGEST_QUESTION: u64 = 64 << 20;

/// A question, in one line.
#[derive(Serialize, Deserialize)]
struct Question {
    what: What,
    #[serde(skip_serializing_if = "Option::is_none")]
    params: Option<Box<RawValue>>,
}

/// What can be asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) enum What {
    /// Which process, of which configuration.
    Identity,
    /// How the servers are; with `watch`, again at every change.
    Status,
    /// List the tools of one server again, or of all.
    Refresh,
    /// What happens from now on, and what happened lately.
    Events,
    /// The tools there are.
    Tools,
    /// One tool, or why it cannot be had.
    Tool,
    /// Make a call. Who hangs up cancels it.
    Call,
    /// Run a script. Who hangs up kills it.
    Run,
}

/// An answer, in one line.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
enum Reply {
    Ok(Box<RawValue>),
    Error(Box<BridgeError>),
}
