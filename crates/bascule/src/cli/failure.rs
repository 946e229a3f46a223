//! Why a command ended without doing its job, and the exit code that says so.

use std::process::ExitCode;

use bascule_model::BridgeError;
use serde::{Serialize, Serializer};
use serde_json::{Value, json};

use crate::config::{ConfigError, Problem};

/// A command that failed.
#[derive(Debug)]
pub(crate) enum Failure {
    /// It was asked for something that makes no sense.
    Usage(String),
    /// The configuration cannot be used.
    Config(ConfigError),
    /// The call's arguments are not even JSON: wrong usage, told as a wrong input.
    Arguments(Box<BridgeError>),
    /// The bridge, or a server behind it, failed.
    Bridge(Box<BridgeError>),
    /// The user had enough.
    Interrupted(Box<BridgeError>),
}

impl From<Box<BridgeError>> for Failure {
    fn from(error: Box<BridgeError>) -> Self {
        Failure::Bridge(error)
    }
}

impl Failure {
    pub(crate) fn exit_code(&self) -> ExitCode {
        ExitCode::from(match self {
            Failure::Usage(_) | Failure::Config(_) | Failure::Arguments(_) => 2,
            Failure::Bridge(_) => 3,
            Failure::Interrupted(_) => 130,
        })
    }
}

/// The one JSON document of a failed command.
#[derive(Serialize)]
struct Document<E> {
    error: E,
}

impl Serialize for Failure {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let error = match self {
            // As it is: it may call_with a result, whose spelling must not change.
            Failure::Bridge(error) | Failure::Arguments(error) | Failure::Interrupted(error) => {
                return Document { error }.serialize(serializer);
            }
            Failure::Usage(said) => plain("USAGE", said.clone()),
            Failure::Config(error) => {
                let mut shown = plain("CONFIG_INVALID", said(error));
                if let ConfigError::Invalid(problems) = error {
                    shown["problems"] = problems.0.iter().map(problem_json).collect();
                }
                shown
            }
        };
        Document { error }.serialize(serializer)
    }
}

/// A problem of the configuration file, as JSON shows it.
pub(crate) fn problem_json(problem: &Problem) -> Value {
    json!({
        "line": problem.line,
        "column": problem.column,
        "path": problem.path,
        "message": problem.message,
        "text": problem.to_string(),
    })
}

/// An error and its causes, joined by colons.
pub(crate) fn said(error: &dyn std::error::Error) -> String {
    match error.source() {
        Some(cause) => format!("{error}: {}", said(cause)),
        None => error.to_string(),
    }
}

fn plain(code: &str, message: String) -> Value {
    json!({ "code": code, "message": message, "retryable": false, "delivery": "not_sent" })
}
