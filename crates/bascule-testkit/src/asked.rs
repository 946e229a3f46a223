//! Keeps what a scripted server has asked the client and not yet been told.

use std::collections::HashMap;
use std::io;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use serde_json::Value;

use crate::line::Line;
use crate::message::Message;

/// The open questions, by the JSON text of their id.
#[derive(Default)]
pub(crate) struct Asked {
    count: AtomicU64,
    open: Mutex<HashMap<String, Sender<String>>>,
}

impl Asked {
    /// Asks, and waits for the client's whole answer. One that never comes is `null`.
    pub(crate) fn ask(
        &self,
        request: &Value,
        say: &mut dyn FnMut(&Line) -> io::Result<()>,
    ) -> io::Result<String> {
        const PATIENCE: Duration = Duration::from_secs(30);
        let (request, answer) = self.open(request.clone());
        say(&Line::from(request.to_string()))?;
        Ok(answer.recv_timeout(PATIENCE).unwrap_or_else(|_| "null".to_owned()))
    }

    /// Hands a message to whoever asked for it, if anybody did.
    pub(crate) fn hear(&self, message: &Message, text: &str) {
        let asker = message.id().and_then(|id| self.open.lock().expect("no asker panics").remove(id));
        // An asker that lost its patience is gone, and nobody misses the answer.
        let _ = asker.map(|asker| asker.send(text.to_owned()));
    }

    fn open(&self, mut request: Value) -> (Value, Receiver<String>) {
        let id = Value::from(format!("asked-{}", self.count.fetch_add(1, Ordering::Relaxed)));
        let (sender, receiver) = channel();
        self.open.lock().expect("no asker panics").insert(id.to_string(), sender);
        request["jsonrpc"] = "2.0".into();
        request["id"] = id;
        (request, receiver)
    }
}
