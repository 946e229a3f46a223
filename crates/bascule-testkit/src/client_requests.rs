//! The requests of a scripted server to its client that are not yet answered.

use std::collections::HashMap;
use std::io;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use serde_json::Value;

use crate::message::ParsedMessage;
use crate::padded_text::PaddedText;

/// The pending requests, by the JSON text of their id.
#[derive(Default)]
pub(crate) struct ClientRequests {
    count: AtomicU64,
    pending: Mutex<HashMap<String, Sender<String>>>,
}

impl ClientRequests {
    /// Sends the request and returns the client's whole response, or `null` after a timeout.
    pub(crate) fn request(
        &self,
        request: &Value,
        send: &mut dyn FnMut(&PaddedText) -> io::Result<()>,
    ) -> io::Result<String> {
        const TIMEOUT: Duration = Duration::from_secs(30);
        let (request, response) = self.register(request.clone());
        send(&PaddedText::from(request.to_string()))?;
        Ok(response.recv_timeout(TIMEOUT).unwrap_or_else(|_| "null".to_owned()))
    }

    /// Completes the request that this message responds to, if any.
    pub(crate) fn complete(&self, message: &ParsedMessage, text: &str) {
        let pending = |id| self.pending.lock().expect("no code panics while it holds the lock").remove(id);
        // The receiver is gone if the request timed out.
        let _ = message.id().and_then(pending).map(|sender| sender.send(text.to_owned()));
    }

    fn register(&self, mut request: Value) -> (Value, Receiver<String>) {
        let id = Value::from(format!("asked-{}", self.count.fetch_add(1, Ordering::Relaxed)));
        let (sender, receiver) = channel();
        self.pending.lock().expect("no code panics while it holds the lock").insert(id.to_string(), sender);
        request["jsonrpc"] = "2.0".into();
        request["id"] = id;
        (request, receiver)
    }
}
