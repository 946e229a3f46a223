//! What a script has under way: calls, timers, lines of its console, and what is to be sent.

use std::cell::{Cell, OnceCell, RefCell};
use std::collections::HashMap;
use std::io;
use std::os::fd::AsFd;
use std::time::Instant;

use rquickjs::{Persistent, Value};
use serde::Serialize;
use serde_json::value::RawValue;

use crate::directory::Directory;
use crate::timers::Timers;
use crate::typescript::Translated;
use crate::wire::{self, Completed, FromWorker, Limits, LogLine, RpcCall, ScriptError};

/// How much is gathered before it is sent although the script is still running: some thirty calls, at which the bridge can
/// be while the script makes the next.
const GATHERED: usize = 4 << 10;

/// The arguments of a call may be so long: a frame holds them and what stands around them.
const LONGEST_CALL: usize = wire::FRAME_LIMIT - 4096;
/// So many failures that nobody hears of are remembered.
const MOST_UNHEARD: usize = 20;

/// One script's, shared by the worker and the functions that the harness calls.
pub(crate) struct State {
    /// Where the bridge is.
    link: OnceCell<Box<dyn AsFd>>,
    outgoing: RefCell<Vec<u8>>,
    /// Stands before the number of every call.
    pub(crate) id: OnceCell<String>,
    /// What the author calls the script.
    pub(crate) name: OnceCell<String>,
    pub(crate) directory: OnceCell<Directory>,
    pub(crate) translated: OnceCell<Translated>,
    pub(crate) timers: RefCell<Timers>,
    calls: RefCell<HashMap<u64, Flight>>,
    last_call: Cell<u64>,
    log_left: Cell<usize>,
    dropped: Cell<u64>,
    /// The bridge does not read any more.
    is_cut: Cell<bool>,
    /// Promises that failed and that nobody listens to, with what each failed with.
    unheard: RefCell<Vec<(Kept, Kept)>>,
    pub(crate) began: Instant,
}

/// The last message, borrowed.
#[derive(Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum Last<'a> {
    ExecutionComplete(&'a Completed),
}

/// A value of the engine's.
pub(crate) type Kept = Persistent<Value<'static>>;

/// A call that is out.
#[derive(Default)]
pub(crate) struct Flight {
    /// Whether the script wants the result whole.
    pub(crate) wants_whole: bool,
}

impl State {
    pub(crate) fn new() -> Self {
        Self {
            link: OnceCell::new(),
            outgoing: RefCell::default(),
            id: OnceCell::new(),
            name: OnceCell::new(),
            directory: OnceCell::new(),
            translated: OnceCell::new(),
            timers: RefCell::default(),
            calls: RefCell::default(),
            last_call: Cell::new(0),
            log_left: Cell::new(Limits::default().log_bytes),
            dropped: Cell::new(0),
            is_cut: Cell::new(false),
            unheard: RefCell::default(),
            began: Instant::now(),
        }
    }

    pub(crate) fn connect(&self, link: impl AsFd + 'static) {
        let _ = self.link.set(Box::new(link));
    }

    pub(crate) fn link(&self) -> &dyn AsFd {
        self.link.get().expect("the link is set before anything is said or read").as_ref()
    }

    pub(crate) fn allow_log(&self, bytes: usize) {
        self.log_left.set(bytes);
    }

    /// Nothing is out and nothing is due: what the script still waits for cannot come.
    pub(crate) fn is_idle(&self) -> bool {
        self.calls.borrow().is_empty() && self.timers.borrow().is_empty()
    }

    pub(crate) fn is_cut(&self) -> bool {
        self.is_cut.get()
    }

    /// Says something, with the next flush. A message too long to be sent is the sender's mistake: what can become
    /// long is measured before.
    pub(crate) fn say(&self, message: &FromWorker) {
        let gathered = {
            let mut outgoing = self.outgoing.borrow_mut();
            let _ = wire::push(&mut outgoing, message);
            outgoing.len()
        };
        if gathered > GATHERED {
            self.flush();
        }
    }

    /// Says how the script ended, in any case.
    pub(crate) fn say_last(&self, completed: &Completed) {
        let mut outgoing = self.outgoing.borrow_mut();
        if wire::push(&mut outgoing, &Last::ExecutionComplete(completed)).is_err() {
            let error = ScriptError {
                name: "OutputLimitError".into(),
                code: Some("OUTPUT_LIMIT".into()),
                message: "what the script came to is too long to be told".into(),
                ..ScriptError::default()
            };
            let short = Completed { success: false, result: None, error: Some(error) };
            let _ = wire::push(&mut outgoing, &Last::ExecutionComplete(&short));
        }
        drop(outgoing);
        self.flush();
    }

    pub(crate) fn flush(&self) {
        let mut outgoing = self.outgoing.borrow_mut();
        let mut rest = outgoing.as_slice();
        while !rest.is_empty() && !self.is_cut.get() {
            match rustix::io::write(self.link().as_fd(), rest) {
                Ok(written) => rest = &rest[written..],
                Err(rustix::io::Errno::INTR) => {}
                Err(_) => self.is_cut.set(true),
            }
        }
        outgoing.clear();
    }

    /// Waits for bytes from the bridge, at most until then. Says how many came: none if it has gone.
    pub(crate) fn wait(&self, until: Instant, buffer: &mut [u8]) -> io::Result<Option<usize>> {
        use rustix::event::{PollFd, PollFlags, Timespec, poll};
        let left = until.saturating_duration_since(Instant::now());
        let left = Timespec { tv_sec: left.as_secs() as i64, tv_nsec: left.subsec_nanos().into() };
        let mut fds = [PollFd::from_borrowed_fd(self.link().as_fd(), PollFlags::IN)];
        match poll(&mut fds, Some(&left)) {
            Ok(0) | Err(rustix::io::Errno::INTR) => return Ok(None),
            Ok(_) => {}
            Err(error) => return Err(error.into()),
        }
        match rustix::io::read(self.link().as_fd(), buffer) {
            Ok(read) => Ok(Some(read)),
            Err(rustix::io::Errno::INTR) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// A line of the console. It is sent at once: a script that is killed next has still said it.
    pub(crate) fn log(&self, level: String, text: String) {
        let Some(left) = self.log_left.get().checked_sub(text.len() + wire::LINE_WEIGHT) else {
            self.dropped.set(self.dropped.get() + 1);
            return;
        };
        self.log_left.set(left);
        self.say(&FromWorker::Console(LogLine { level, text }));
        self.flush();
    }

    /// Says how many lines there was no room for.
    pub(crate) fn close_log(&self) {
        let dropped = self.dropped.take();
        if dropped > 0 {
            let text = format!("{dropped} more lines: the script wrote more than it may");
            self.say(&FromWorker::Console(LogLine { level: "warn".into(), text }));
        }
    }

    /// Sends a call out, with the next flush, and gives its number; none if it is too long to be sent.
    pub(crate) fn call(&self, server: String, tool: String, args: Box<RawValue>) -> Option<u64> {
        let number = self.last_call.get() + 1;
        if args.get().len() + tool.len() > LONGEST_CALL {
            return None;
        }
        self.last_call.set(number);
        self.calls.borrow_mut().insert(number, Flight::default());
        let id = format!("{}-{number}", self.id.get().map_or("", String::as_str));
        self.say(&FromWorker::RpcCall(RpcCall { id, server, tool, args }));
        Some(number)
    }

    pub(crate) fn want_whole(&self, number: u64) {
        if let Some(flight) = self.calls.borrow_mut().get_mut(&number) {
            flight.wants_whole = true;
        }
    }

    /// The call that an answer belongs to, which is then no longer out.
    pub(crate) fn take_call(&self, id: &str) -> Option<(u64, Flight)> {
        let number = id.rsplit_once('-')?.1.parse().ok()?;
        self.calls.borrow_mut().remove(&number).map(|flight| (number, flight))
    }

    /// A promise has failed, and nobody listens to it.
    pub(crate) fn note_unheard(&self, promise: Kept, reason: Kept) {
        let mut unheard = self.unheard.borrow_mut();
        if unheard.len() < MOST_UNHEARD {
            unheard.push((promise, reason));
        }
    }

    /// Somebody does after all.
    pub(crate) fn was_heard(&self, promise: &Kept) {
        self.unheard.borrow_mut().retain(|(unheard, _)| unheard != promise);
    }

    /// What failed unheard, and is forgotten now.
    pub(crate) fn take_unheard(&self) -> Vec<Kept> {
        self.unheard.take().into_iter().map(|(_, reason)| reason).collect()
    }

    /// Where in the author's text a place of the translation comes from, as `line:column`.
    pub(crate) fn origin(&self, line: u32, column: u32) -> String {
        let origin = self.translated.get().and_then(|translated| translated.origin(line, column));
        let (line, column) = origin.map_or((line, column), |place| (place.line, place.column));
        format!("{line}:{column}")
    }
}
