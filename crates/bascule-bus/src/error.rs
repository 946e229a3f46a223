//! The error of an operation on a bus.

use crate::BusUrl;

#[derive(Debug, thiserror::Error)]
pub enum BusError {
    #[error("could not connect to the bus at `{url}`: {reason}")]
    Connect { url: BusUrl, reason: String },
    /// The address, a file or the credentials are wrong: no broker is asked.
    #[error("the bus at `{url}` cannot be used: {reason}")]
    Unusable { url: BusUrl, reason: String },
    /// The broker could not be reached in time. It may be back soon.
    #[error("could not {operation}: the broker did not respond within {seconds} s")]
    Timeout { operation: &'static str, seconds: u64 },
    #[error("could not {operation}: {reason}")]
    Refused { operation: &'static str, reason: String },
    #[error("the message has {bytes} bytes; the bus takes at most {limit}")]
    TooLarge { bytes: usize, limit: usize },
    /// Nobody takes the requests as fast as they come.
    #[error("the queue of requests is full")]
    Full,
    #[error("the bus is closed")]
    Closed,
    #[error(
        "this program was built without support for `{scheme}`: build it with the cargo feature `{feature}`"
    )]
    NotBuilt { scheme: &'static str, feature: &'static str },
}

impl BusError {
    /// Returns true if the same operation may succeed later.
    pub fn is_retryable(&self) -> bool {
        matches!(self, Self::Connect { .. } | Self::Timeout { .. } | Self::Full)
    }
}
