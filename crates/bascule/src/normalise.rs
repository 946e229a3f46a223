//! Converts every failure into the one error type of calls.

use bascule_catalog::{ResolveError, nearest_name};
use bascule_client::{ConnectError, ListError};
use bascule_mcp::{Failure, ProcessExit, ProtocolVersion, RpcError, TransportError};
pub(crate) use bascule_model::error_chain;
use bascule_model::{BridgeError, Delivery, ErrorCode, ProviderFault, ServerName, ToolId};

use crate::config::Settings;
use crate::sanitize::excerpt;

/// Returns the error of a server that could not be started.
pub(crate) fn start_error(server: &ServerName, reason: impl std::fmt::Display) -> Box<BridgeError> {
    let message = format!("could not start server `{server}`: {reason}");
    let mut error = BridgeError::new(ErrorCode::ProviderInitFailed, Delivery::NotSent, message);
    error.server = Some(server.clone());
    error
}

/// Returns the reason in the message of `start_error`.
pub(crate) fn start_reason<'a>(server: &ServerName, message: &'a str) -> &'a str {
    message.strip_prefix(&format!("could not start server `{server}`: ")).unwrap_or(message)
}

/// Returns the error of a server that is down.
pub(crate) fn unavailable_error(server: &ServerName, reason: impl std::fmt::Display) -> Box<BridgeError> {
    let message = format!("server `{server}` is down: {reason}");
    let mut error = BridgeError::new(ErrorCode::ProviderUnavailable, Delivery::NotSent, message);
    error.server = Some(server.clone());
    error
}

/// Returns the error of a server whose handshake failed.
pub(crate) fn connect_error(server: &ServerName, cause: &ConnectError) -> Box<BridgeError> {
    let mut error = start_error(server, cause);
    if let ConnectError::Failed { failure, stderr } = cause {
        error.exit = exit_of(failure).map(|exit| exit.to_string());
        error.stderr = non_empty(stderr.clone());
        if let Failure::ErrorResponse(fault) = failure {
            error.message += &describe_refusal(fault);
            error.provider_error = Some(provider_fault(fault));
        }
    }
    error
}

/// Describes the `data` of an error response to `initialize`, and the versions if the error is about them.
fn describe_refusal(fault: &RpcError) -> String {
    const MAX_DATA_CHARS: usize = 300;
    let data = fault.data.as_ref().map(|data| excerpt(data.get(), MAX_DATA_CHARS));
    let is_about_version =
        format!("{} {}", fault.message, data.as_deref().unwrap_or_default()).to_lowercase();
    let mut description = data.map(|data| format!(" with data {data}")).unwrap_or_default();
    if is_about_version.contains("version") {
        let supported = ProtocolVersion::ALL.map(|version| format!("`{version}`")).join(", ");
        description += &format!("; Bascule offered `{}` and supports {supported}", ProtocolVersion::LATEST);
    }
    description
}

fn provider_fault(fault: &RpcError) -> ProviderFault {
    ProviderFault {
        code: fault.code,
        message: fault.message.clone(),
        data: fault.data.clone(),
        raw: fault.raw.clone(),
    }
}

/// Returns the error of a server that connected and did not list its tools.
pub(crate) fn list_error(server: &ServerName, cause: &ListError, stderr: String) -> Box<BridgeError> {
    let mut error = start_error(server, cause);
    error.stderr = non_empty(stderr);
    error
}

/// Returns the error of a failed call.
pub(crate) fn call_error(failure: &Failure, stderr: String) -> Box<BridgeError> {
    let mut error = BridgeError::new(code_of(failure), failure.delivery(), failure.to_string());
    if let Failure::ErrorResponse(fault) = failure {
        error.provider_error = Some(provider_fault(fault));
    }
    error.exit = exit_of(failure).map(|exit| exit.to_string());
    error.stderr = non_empty(stderr);
    error
}

fn code_of(failure: &Failure) -> ErrorCode {
    match (exit_of(failure), failure.delivery()) {
        (Some(_), _) => ErrorCode::ProviderCrashed,
        (None, Delivery::NotSent) => ErrorCode::ProviderUnavailable,
        (None, Delivery::Unknown) => ErrorCode::OutcomeUnknown,
        (None, Delivery::Answered) => ErrorCode::ProviderError,
    }
}

fn exit_of(failure: &Failure) -> Option<ProcessExit> {
    match failure.transport_error() {
        Some(TransportError::Exited(exit)) => Some(*exit),
        _ => None,
    }
}

/// Adds server and tool to an error.
pub(crate) fn addressed(mut error: Box<BridgeError>, tool: &ToolId) -> Box<BridgeError> {
    error.server = error.server.or_else(|| ServerName::parse(tool.server()).ok());
    error.tool = Some(tool.clone());
    error
}

/// Returns the message for a server that does not exist.
pub(crate) fn no_server(settings: &Settings, name: &str) -> String {
    if settings.is_disabled(name) {
        return format!("server `{name}` is disabled in the configuration");
    }
    let names: Vec<&str> = settings.servers.iter().map(|server| server.name.as_str()).collect();
    match nearest_name(names.iter().copied(), name) {
        Some(near) => format!("there is no server `{name}`; did you mean `{near}`?"),
        None if names.is_empty() => format!("there is no server `{name}`; none is configured"),
        None if names.len() == 1 => format!("there is no server `{name}`; the only one is `{}`", names[0]),
        None => format!("there is no server `{name}`; there are {}", names.join(", ")),
    }
}

/// Returns the error of a request for something that does not exist.
pub(crate) fn missing(message: String) -> Box<BridgeError> {
    BridgeError::new(ErrorCode::ToolNotFound, Delivery::NotSent, message)
}

/// Returns the error of a command for a server that does not exist.
pub(crate) fn unknown_server_name(settings: &Settings, server: &ServerName) -> Box<BridgeError> {
    let mut error = missing(no_server(settings, server.as_str()));
    error.server = Some(server.clone());
    error
}

/// Returns the error of a call to a server that does not exist.
pub(crate) fn unknown_server(settings: &Settings, tool: &ToolId) -> Box<BridgeError> {
    let message = no_server(settings, tool.server());
    let mut error = BridgeError::new(ErrorCode::ToolNotFound, Delivery::NotSent, message);
    let names = settings.servers.iter().map(|server| server.name.as_str());
    let near = nearest_name(names, tool.server()).and_then(|name| settings.server(name));
    error.nearest = near.map(|server| ToolId::new(&server.name, tool.tool())).into_iter().collect();
    error
}

/// Returns the part of a message that names the nearest tools; nothing if there are none.
pub(crate) fn describe_nearest(nearest: &[impl std::fmt::Display]) -> String {
    let names: Vec<String> = nearest.iter().map(|near| format!("`{near}`")).collect();
    match &names[..] {
        [] => String::new(),
        [name] => format!("; did you mean {name}?"),
        _ => format!("; near it are {}", names.join(", ")),
    }
}

/// Returns the error of a call of a tool that does not exist, or that the configuration denies.
pub(crate) fn unknown_tool(tool: &ToolId, error: ResolveError) -> Box<BridgeError> {
    let nearest = match error {
        ResolveError::Denied => {
            let message = format!("the configuration does not allow `{tool}`");
            return BridgeError::new(ErrorCode::PolicyDenied, Delivery::NotSent, message);
        }
        ResolveError::Unknown { nearest } => nearest,
    };
    let message = format!("there is no tool `{tool}`{}", describe_nearest(&nearest));
    let mut error = BridgeError::new(ErrorCode::ToolNotFound, Delivery::NotSent, message);
    error.nearest = nearest;
    error
}

/// Returns `None` for an empty text.
pub(crate) fn non_empty(text: String) -> Option<String> {
    Some(text).filter(|text| !text.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    fn check(failure: Failure, expected: &str) {
        let error = call_error(&failure, "last words".into());
        let shown = serde_json::to_value(&error).unwrap();
        let message = format!(
            "{} {} {} {}",
            shown["code"].as_str().unwrap(),
            shown["delivery"].as_str().unwrap(),
            shown["retryable"],
            shown["exit"].as_str().unwrap_or("-")
        );
        assert_eq!((message.as_str(), error.stderr.as_deref()), (expected, Some("last words")));
    }

    // req: BR-05
    #[test]
    fn gives_every_failure_its_code() {
        let broken = |delivery, cause| Failure::Transport { delivery, cause: Arc::new(cause) };
        let exit = ProcessExit { code: Some(3), signal: None };
        check(
            broken(Delivery::Unknown, TransportError::Exited(exit)),
            "PROVIDER_CRASHED unknown true exit code 3",
        );
        check(
            broken(Delivery::NotSent, TransportError::Exited(exit)),
            "PROVIDER_CRASHED not_sent true exit code 3",
        );
        check(broken(Delivery::Unknown, TransportError::OutputClosed), "OUTCOME_UNKNOWN unknown false -");
        check(broken(Delivery::NotSent, TransportError::Closed), "PROVIDER_UNAVAILABLE not_sent true -");
        check(Failure::InvalidResponse, "PROVIDER_ERROR answered false -");
        check(Failure::TooLong { limit: 5, is_matched: true }, "PROVIDER_ERROR answered false -");
        check(Failure::TooLong { limit: 5, is_matched: false }, "OUTCOME_UNKNOWN unknown false -");
        let fault = RpcError { code: -31999, message: "no".into(), data: None, raw: None };
        check(Failure::ErrorResponse(fault.clone()), "PROVIDER_ERROR answered false -");
        assert_eq!(
            call_error(&Failure::ErrorResponse(fault), String::new()).provider_error.unwrap().code,
            -31999
        );
    }
}
