//! Why a request is turned away before any host sees it.

use http::{HeaderName, StatusCode};

use crate::{Id, RpcError, error_response};

/// An HTTP status with a JSON-RPC error in its body, so that clients of either mind find the reason.
#[derive(Debug)]
pub(super) struct Refusal {
    pub(super) status: StatusCode,
    pub(super) header: Option<(HeaderName, &'static str)>,
    /// Whether the connection ends with it.
    pub(super) closes: bool,
    code: i64,
    reason: String,
    id: Option<Box<str>>,
}

impl Refusal {
    pub(super) fn new(status: StatusCode, reason: impl Into<String>) -> Self {
        let code = RpcError::INVALID_REQUEST;
        Self { status, header: None, closes: false, code, reason: reason.into(), id: None }
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

    /// There is to be no other request on the connection.
    pub(super) fn and_close(self) -> Self {
        Self { closes: true, ..self }
    }

    pub(super) fn with(self, name: HeaderName, value: &'static str) -> Self {
        Self { header: Some((name, value)), ..self }
    }

    pub(super) fn code(self, code: i64) -> Self {
        Self { code, ..self }
    }

    /// The request that is refused, if one could be read.
    pub(super) fn of(self, id: Option<Box<str>>) -> Self {
        Self { id, ..self }
    }

    pub(super) fn text(&self) -> Vec<u8> {
        let id = self.id.as_deref().and_then(Id::from_json).unwrap_or(Id::NULL);
        error_response(id, self.code, &self.reason)
    }
}
