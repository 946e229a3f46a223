//! Who answers what clients say.

use std::sync::Arc;

use super::Lane;

/// What a client has come to.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Place {
    /// All servers as one: `/mcp`.
    Together,
    /// One server by its name: `/servers/{name}/mcp`.
    Alone(String),
}

/// Answers. There is one per program; it is called from many tasks at once, and only [`begin`](Host::begin) may wait.
///
/// Frames come as one line each and have been read as a JSON-RPC message, so reading them again cannot fail.
pub trait Host: Send + Sync + 'static {
    /// A client wants to begin with this `initialize` request. The answer, or the error, is finished on the lane.
    /// Returns the id of the session that was begun, in visible ASCII; none if there is none.
    fn begin(
        self: &Arc<Self>,
        place: Place,
        frame: Vec<u8>,
        lane: Lane,
    ) -> impl Future<Output = Option<String>> + Send;

    /// One message of a session. A request's answer is finished on the lane, after what is to be heard before it.
    /// For notifications and answers the lane means nothing. False if there is no such session at this place.
    fn deliver(self: &Arc<Self>, place: &Place, session: &str, frame: Vec<u8>, lane: Lane) -> bool;

    /// A new lane for what is said unasked. It is closed when the client leaves, or asks for another one.
    /// None if there is no such session.
    fn listen(self: &Arc<Self>, place: &Place, session: &str) -> Option<Lane>;

    /// The client is done. False if there is no such session.
    fn end(self: &Arc<Self>, place: &Place, session: &str) -> bool;
}
