//! The error of a command, its exit code and its JSON.

use std::fmt;
use std::process::ExitCode;

use bascule_model::BridgeError;
use serde::{Serialize, Serializer};
use serde_json::{Value, json};

use crate::config::{ConfigError, Problem};
use crate::normalise::error_chain;

/// A command failed.
#[derive(Debug)]
pub(crate) enum CommandError {
    /// The command line is wrong, or the command cannot run here.
    Usage(String),
    /// The configuration is missing or wrong.
    Config(ConfigError),
    /// The arguments of a call are no JSON object. A usage error that is reported as `INVALID_INPUT`.
    Arguments(Box<BridgeError>),
    /// The bridge, or a server behind it, failed.
    Bridge(Box<BridgeError>),
    /// SIGINT or SIGTERM ended the command.
    Interrupted(Box<BridgeError>),
}

pub(crate) type CommandResult<T = ExitCode> = Result<T, CommandError>;

impl From<Box<BridgeError>> for CommandError {
    fn from(error: Box<BridgeError>) -> Self {
        CommandError::Bridge(error)
    }
}

impl CommandError {
    /// Returns the error of an operation that this machine refused, for example `open the control socket`. The exit code is 2.
    pub(crate) fn failed_operation(operation: &str, error: impl fmt::Display) -> Self {
        Self::Usage(format!("could not {operation}: {error}"))
    }

    pub(crate) fn exit_code(&self) -> ExitCode {
        ExitCode::from(match self {
            CommandError::Usage(_) | CommandError::Config(_) | CommandError::Arguments(_) => 2,
            CommandError::Bridge(_) => 3,
            CommandError::Interrupted(_) => 130,
        })
    }
}

#[derive(Serialize)]
struct ErrorDocument<E> {
    error: E,
}

impl Serialize for CommandError {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let error = match self {
            // Serialized directly: it may contain a server's result, whose bytes must not change.
            CommandError::Bridge(error)
            | CommandError::Arguments(error)
            | CommandError::Interrupted(error) => {
                return ErrorDocument { error }.serialize(serializer);
            }
            CommandError::Usage(message) => error_json("USAGE", message),
            CommandError::Config(error) => {
                let mut json = error_json("CONFIG_INVALID", &error_chain(error));
                if let ConfigError::Invalid(problems) = error {
                    json["problems"] = problems.0.iter().map(problem_json).collect();
                }
                json
            }
        };
        ErrorDocument { error }.serialize(serializer)
    }
}

/// Returns a problem of the configuration file as JSON.
pub(crate) fn problem_json(problem: &Problem) -> Value {
    json!({
        "line": problem.line,
        "column": problem.column,
        "path": problem.path,
        "message": problem.message,
        "severity": problem.severity,
        "text": problem.to_string(),
    })
}

fn error_json(code: &str, message: &str) -> Value {
    json!({ "code": code, "message": message, "retryable": false, "delivery": "not_sent" })
}
