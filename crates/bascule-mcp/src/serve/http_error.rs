//! Error responses that are sent before the host sees a message.

use http::{HeaderName, HeaderValue, StatusCode, header};

use crate::{Id, RpcError, error_response};

/// An HTTP error with a JSON-RPC error as its body, so that HTTP and JSON-RPC clients both find the reason.
#[derive(Debug)]
pub struct HttpError {
    pub(super) status: StatusCode,
    pub(super) header: Option<Box<(HeaderName, HeaderValue)>>,
    pub(super) closes_connection: bool,
    code: i64,
    reason: String,
    request_id: Option<Box<str>>,
}

impl HttpError {
    pub(super) fn new(status: StatusCode, reason: impl Into<String>) -> Self {
        Self {
            status,
            header: None,
            closes_connection: false,
            code: RpcError::INVALID_REQUEST,
            reason: reason.into(),
            request_id: None,
        }
    }

    pub(super) fn bad_request(reason: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, reason)
    }

    pub(super) fn forbidden(reason: impl Into<String>) -> Self {
        Self::new(StatusCode::FORBIDDEN, reason)
    }

    pub(super) fn not_found(reason: impl Into<String>) -> Self {
        Self::new(StatusCode::NOT_FOUND, reason)
    }

    pub(super) fn method_not_allowed(allowed: &str) -> Self {
        let error = Self::new(StatusCode::METHOD_NOT_ALLOWED, format!("this path allows only {allowed}"));
        match HeaderValue::from_str(allowed) {
            Ok(allowed) => Self { header: Some(Box::new((header::ALLOW, allowed))), ..error },
            Err(_) => error,
        }
    }

    pub(super) fn with_connection_close(self) -> Self {
        Self { closes_connection: true, ..self }
    }

    pub(super) fn with_header(self, name: HeaderName, value: &'static str) -> Self {
        Self { header: Some(Box::new((name, HeaderValue::from_static(value)))), ..self }
    }

    pub(super) fn with_code(self, code: i64) -> Self {
        Self { code, ..self }
    }

    /// Sets the id of the refused request, if it could be read.
    pub(super) fn with_request_id(self, id: Option<Box<str>>) -> Self {
        Self { request_id: id, ..self }
    }

    pub(super) fn to_json(&self) -> Vec<u8> {
        let id = self.request_id.as_deref().and_then(Id::from_json).unwrap_or(Id::NULL);
        error_response(id, self.code, &self.reason)
    }
}
