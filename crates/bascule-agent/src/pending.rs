//! The calls that wait for their answers.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard};

use bascule_bus::{
    AnswerError, AnswerReader, AnswerStep, AnsweredResult, Envelope, MessageBody, ResultObject, ToolError,
    ToolInvokeResponse, ToolProgress, ToolResultPart,
};
use tokio::sync::{Notify, mpsc, oneshot};

use crate::call::ToolProgressUpdate;
use crate::{ProxyCounts, ProxyOptions};

/// The calls of one proxy by their ids.
pub(crate) struct PendingCalls {
    state: Mutex<State>,
    max_pending: usize,
    max_result_bytes: usize,
    max_held_bytes: usize,
    /// Answers may have been lost.
    pub(crate) resend: Notify,
}

#[derive(Default)]
struct State {
    calls: HashMap<String, PendingEntry>,
    /// The bytes of incomplete results.
    held_bytes: usize,
    /// `Some` once no answer can come any more.
    closed: Option<ClosedCause>,
    counts: ProxyCounts,
}

struct PendingEntry {
    request: Arc<Envelope>,
    reader: AnswerReader,
    answer: oneshot::Sender<CallAnswer>,
    progress: mpsc::Sender<ToolProgressUpdate>,
}

/// The end of a call, as it arrived.
pub(crate) enum CallAnswer {
    Result(AnsweredResult),
    Object { object: ResultObject, is_error: bool },
    Error(ToolError),
    Unreadable(AnswerError),
    Closed(ClosedCause),
}

/// The reason why no answer can come any more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ClosedCause {
    Proxy,
    Bus,
}

/// The reason why a call cannot be added.
pub(crate) enum AddError {
    TooMany(usize),
    Closed,
}

/// The receiving ends of a call.
pub(crate) struct CallReceivers {
    pub(crate) answer: oneshot::Receiver<CallAnswer>,
    pub(crate) progress: mpsc::Receiver<ToolProgressUpdate>,
}

/// Progress messages that wait to be read. More are dropped: the next one says more than the last.
const MAX_UNREAD_PROGRESS: usize = 64;

impl PendingCalls {
    pub(crate) fn new(options: &ProxyOptions) -> Self {
        Self {
            state: Mutex::default(),
            max_pending: options.max_pending,
            max_result_bytes: options.max_result_bytes,
            max_held_bytes: options.max_held_bytes,
            resend: Notify::new(),
        }
    }

    pub(crate) fn add(&self, id: &str, request: Arc<Envelope>) -> Result<CallReceivers, AddError> {
        let mut state = self.lock();
        if state.closed.is_some() {
            return Err(AddError::Closed);
        }
        if state.calls.len() >= self.max_pending {
            state.counts.refused += 1;
            return Err(AddError::TooMany(self.max_pending));
        }
        let (answer, answer_receiver) = oneshot::channel();
        let (progress, progress_receiver) = mpsc::channel(MAX_UNREAD_PROGRESS);
        let reader = AnswerReader::new(self.max_result_bytes);
        state.calls.insert(id.to_owned(), PendingEntry { request, reader, answer, progress });
        Ok(CallReceivers { answer: answer_receiver, progress: progress_receiver })
    }

    /// Removes a call that is given up. Returns false if its answer has come.
    pub(crate) fn give_up(&self, id: &str) -> bool {
        self.lock().take(id).is_some()
    }

    /// Returns what is missing of an answer that has come in part.
    pub(crate) fn missing(&self, id: &str) -> Option<AnswerError> {
        self.lock().calls.get(id)?.reader.missing()
    }

    /// Returns the requests of all calls.
    pub(crate) fn requests(&self) -> Vec<(String, Arc<Envelope>)> {
        self.lock().calls.iter().map(|(id, call)| (id.clone(), call.request.clone())).collect()
    }

    /// Returns true while the call waits for its answer.
    pub(crate) fn contains(&self, id: &str) -> bool {
        self.lock().calls.contains_key(id)
    }

    pub(crate) fn counts(&self) -> ProxyCounts {
        let state = self.lock();
        ProxyCounts { pending: state.calls.len(), ..state.counts }
    }

    pub(crate) fn count_resent(&self) {
        self.lock().counts.resent += 1;
    }

    pub(crate) fn count_unreadable(&self) {
        self.lock().counts.unreadable += 1;
    }

    /// Answers may be among the lost messages: the requests are sent again.
    pub(crate) fn count_lost(&self, messages: u64) {
        self.lock().counts.lost += messages;
        self.resend.notify_one();
    }

    /// Ends all calls.
    pub(crate) fn close(&self, cause: ClosedCause) {
        let calls = {
            let mut state = self.lock();
            state.closed.get_or_insert(cause);
            state.held_bytes = 0;
            std::mem::take(&mut state.calls)
        };
        for call in calls.into_values() {
            let _ = call.answer.send(CallAnswer::Closed(cause));
        }
    }

    /// Hands a message to the call that it names. Messages for no call are counted: answers that came late, or twice.
    pub(crate) fn dispatch(&self, envelope: &Envelope) {
        let body = envelope.body.get();
        let handled = match &*envelope.kind {
            ToolInvokeResponse::KIND => parse(body).map(|response| self.on_response(response)),
            ToolError::KIND => parse(body).map(|error| self.on_error(error)),
            ToolResultPart::KIND => parse(body).map(|part| self.on_part(part)),
            ToolProgress::KIND => parse(body).map(|progress| self.on_progress(progress)),
            _ => None,
        };
        if handled.is_none() {
            self.count_unreadable();
        }
    }

    fn on_response(&self, response: ToolInvokeResponse) {
        let id = response.tool_call_id.clone();
        self.read(&id, |reader| reader.read_response(response));
    }

    fn on_part(&self, part: ToolResultPart) {
        let id = part.tool_call_id.clone();
        self.read(&id, |reader| reader.read_part(part));
    }

    fn on_error(&self, error: ToolError) {
        let mut state = self.lock();
        match state.take(&error.tool_call_id) {
            Some(call) => drop(call.answer.send(CallAnswer::Error(error))),
            None => state.counts.repeated += 1,
        }
    }

    fn on_progress(&self, progress: ToolProgress) {
        let mut state = self.lock();
        match (state.calls.get(&progress.tool_call_id), ToolProgressUpdate::parse(progress.progress)) {
            (Some(call), Some(update)) => drop(call.progress.try_send(update)),
            (None, _) => state.counts.repeated += 1,
            (_, None) => state.counts.unreadable += 1,
        }
    }

    /// Reads a message of an answer, and ends the call if the answer is complete.
    fn read(&self, id: &str, read: impl FnOnce(&mut AnswerReader) -> Result<AnswerStep, AnswerError>) {
        let mut state = self.lock();
        let Some(call) = state.calls.get_mut(id) else {
            state.counts.repeated += 1;
            return;
        };
        let before = call.reader.held_bytes();
        let step = read(&mut call.reader);
        let added = call.reader.held_bytes() - before;
        state.held_bytes += added;
        let answer = match step {
            Ok(AnswerStep::Wait) if state.held_bytes <= self.max_held_bytes => return,
            Ok(AnswerStep::Wait) => CallAnswer::Unreadable(AnswerError::TooLarge {
                bytes: state.held_bytes as u64,
                limit: self.max_held_bytes,
            }),
            Ok(AnswerStep::Fetch { object, is_error }) => CallAnswer::Object { object, is_error },
            Ok(AnswerStep::Complete(answer)) => CallAnswer::Result(answer),
            Err(error) => CallAnswer::Unreadable(error),
        };
        let call = state.take(id);
        drop(state);
        if let Some(call) = call {
            // A caller that has gone meanwhile needs no answer.
            let _ = call.answer.send(answer);
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no code panics while it holds the lock")
    }
}

impl State {
    fn take(&mut self, id: &str) -> Option<PendingEntry> {
        let call = self.calls.remove(id)?;
        self.held_bytes -= call.reader.held_bytes();
        Some(call)
    }
}

fn parse<T: MessageBody>(body: &str) -> Option<T> {
    serde_json::from_str(body).ok()
}
