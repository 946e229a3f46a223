//! The state of one script: calls in flight, timers, console output and the messages to send.

use std::cell::{Cell, OnceCell, RefCell};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::io;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use rquickjs::{Persistent, Value};
use serde::Serialize;
use serde_json::value::RawValue;

use crate::last_results::LastResults;
use crate::result_reads::ReadMembers;
use crate::timers::Timers;
use crate::tool_lookup::ToolLookup;
use crate::typescript::TranspiledScript;
use crate::unawaited::UnawaitedCalls;
use crate::wire::{
    self, Completed, ConsoleLine, FromWorker, RefusedToolCall, RpcCall, ScriptError, ScriptLimits,
};

/// Buffered messages are sent at this size even if the script is still running: the bridge can work on these calls, some
/// thirty, while the script makes more.
const FLUSH_SIZE: usize = 4 << 10;

/// Maximum length of a call's arguments: a frame without room for the envelope.
const MAX_CALL_LENGTH: usize = wire::FRAME_LIMIT - 4096;
/// Number of different warnings about arguments.
const MAX_ARGUMENT_WARNINGS: usize = 10;
/// Number of different warnings about results.
const MAX_RESULT_WARNINGS: usize = 10;
/// Number of unhandled rejections to report.
const MAX_UNHANDLED: usize = 20;

/// Shared by the worker and the native functions of the prelude.
pub(crate) struct ScriptState {
    socket: OnceCell<Box<dyn AsFd>>,
    outgoing: RefCell<Vec<u8>>,
    /// Prefix of call ids.
    pub(crate) id: OnceCell<String>,
    /// File name shown in stack traces.
    pub(crate) name: OnceCell<String>,
    pub(crate) tools: OnceCell<ToolLookup>,
    pub(crate) transpiled: OnceCell<TranspiledScript>,
    pub(crate) timers: RefCell<Timers>,
    calls: RefCell<HashMap<u64, PendingCall>>,
    last_call: Cell<u64>,
    /// `None` until the script returns.
    unawaited: RefCell<Option<UnawaitedCalls>>,
    limits: Cell<ScriptLimits>,
    /// The source of the script.
    pub(crate) source: OnceCell<String>,
    pub(crate) last_results: RefCell<LastResults>,
    pub(crate) read_members: RefCell<ReadMembers>,
    /// Warnings about arguments so far.
    argument_warnings: RefCell<HashSet<String>>,
    /// Warnings about results so far: the tool, and the kind of warning.
    result_warnings: RefCell<HashSet<(String, &'static str)>>,
    log_bytes_left: Cell<usize>,
    dropped_lines: Cell<u64>,
    /// The bridge has closed the socket.
    is_disconnected: Cell<bool>,
    /// Rejected promises without a handler, each with its reason.
    unhandled_rejections: RefCell<Vec<(SavedValue, SavedValue)>>,
    pub(crate) started: Instant,
}

/// The last message, with a borrowed body.
#[derive(Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum LastMessage<'a> {
    ExecutionComplete(&'a Completed),
}

pub(crate) type SavedValue = Persistent<Value<'static>>;

#[derive(Default)]
pub(crate) struct PendingCall {
    /// The tool, as `server:tool`.
    pub(crate) tool: String,
    /// The script asked for the result as the server sent it (`bascule.raw`).
    pub(crate) wants_raw: bool,
    /// Names the arguments that the tool does not have.
    pub(crate) advice: Option<String>,
}

impl ScriptState {
    pub(crate) fn new() -> Self {
        Self {
            socket: OnceCell::new(),
            outgoing: RefCell::default(),
            id: OnceCell::new(),
            name: OnceCell::new(),
            tools: OnceCell::new(),
            transpiled: OnceCell::new(),
            timers: RefCell::default(),
            calls: RefCell::default(),
            last_call: Cell::new(0),
            unawaited: RefCell::default(),
            limits: Cell::new(ScriptLimits::default()),
            source: OnceCell::new(),
            last_results: RefCell::default(),
            read_members: RefCell::default(),
            argument_warnings: RefCell::default(),
            result_warnings: RefCell::default(),
            log_bytes_left: Cell::new(ScriptLimits::default().log_bytes),
            dropped_lines: Cell::new(0),
            is_disconnected: Cell::new(false),
            unhandled_rejections: RefCell::default(),
            started: Instant::now(),
        }
    }

    pub(crate) fn set_socket(&self, socket: impl AsFd + 'static) {
        let _ = self.socket.set(Box::new(socket));
    }

    fn socket(&self) -> &dyn AsFd {
        self.socket.get().expect("the socket is set before the first read or write").as_ref()
    }

    pub(crate) fn set_limits(&self, limits: ScriptLimits) {
        self.limits.set(limits);
        self.log_bytes_left.set(limits.log_bytes);
    }

    pub(crate) fn limits(&self) -> ScriptLimits {
        self.limits.get()
    }

    /// No call and no timer is pending, so nothing can settle the promises of the script any more.
    pub(crate) fn is_idle(&self) -> bool {
        !self.has_calls() && self.timers.borrow().is_empty()
    }

    /// A call is pending, or a timer that keeps a script running which has returned.
    pub(crate) fn has_work(&self) -> bool {
        self.has_calls() || self.timers.borrow().has_held()
    }

    /// Some calls are in flight.
    pub(crate) fn has_calls(&self) -> bool {
        !self.calls.borrow().is_empty()
    }

    /// Returns the tools of the calls in flight, with the number of calls of each.
    pub(crate) fn tools_in_flight(&self) -> BTreeMap<String, usize> {
        self.tools_of_calls(|_| true)
    }

    /// Returns the tools of the calls in flight that the bridge may have started: it refuses those above the limit.
    pub(crate) fn tools_started(&self) -> BTreeMap<String, usize> {
        let limit = self.limits().calls;
        self.tools_of_calls(|number| number <= limit)
    }

    fn tools_of_calls(&self, counts: impl Fn(u64) -> bool) -> BTreeMap<String, usize> {
        let mut tools = BTreeMap::new();
        for (_, call) in self.calls.borrow().iter().filter(|(number, _)| counts(**number)) {
            *tools.entry(call.tool.clone()).or_default() += 1;
        }
        tools
    }

    /// From now on calls count as not awaited: the script has returned. So do the calls in flight.
    pub(crate) fn note_unawaited_calls(&self) {
        *self.unawaited.borrow_mut() = Some(UnawaitedCalls::new(self.tools_in_flight(), Instant::now()));
    }

    /// Returns the time with calls in flight since the script returned.
    pub(crate) fn waited_for_calls(&self) -> Duration {
        self.unawaited.borrow().as_ref().map_or(Duration::ZERO, UnawaitedCalls::waited)
    }

    /// Returns a warning about the calls that the script did not await, if there are any.
    pub(crate) fn unawaited_warning(&self) -> Option<String> {
        self.unawaited.borrow().as_ref()?.warning()
    }

    pub(crate) fn is_disconnected(&self) -> bool {
        self.is_disconnected.get()
    }

    /// Queues a message for the next flush. The caller makes sure that it fits in a frame.
    pub(crate) fn send(&self, message: &FromWorker) {
        let buffered = {
            let mut outgoing = self.outgoing.borrow_mut();
            let _ = wire::push_frame(&mut outgoing, message);
            outgoing.len()
        };
        if buffered > FLUSH_SIZE {
            self.flush();
        }
    }

    /// Sends the last message. One that is too long is replaced by an error.
    pub(crate) fn send_completed(&self, completed: &Completed) {
        let mut outgoing = self.outgoing.borrow_mut();
        if wire::push_frame(&mut outgoing, &LastMessage::ExecutionComplete(completed)).is_err() {
            let error = ScriptError {
                name: "OutputLimitError".into(),
                code: Some("OUTPUT_LIMIT".into()),
                message: "the result of the script is too long to send".into(),
                ..ScriptError::default()
            };
            let failed = Completed { success: false, result: None, error: Some(error) };
            let _ = wire::push_frame(&mut outgoing, &LastMessage::ExecutionComplete(&failed));
        }
        drop(outgoing);
        self.flush();
    }

    pub(crate) fn flush(&self) {
        let mut outgoing = self.outgoing.borrow_mut();
        let mut rest = outgoing.as_slice();
        while !rest.is_empty() && !self.is_disconnected.get() {
            match rustix::io::write(self.socket().as_fd(), rest) {
                Ok(written) => rest = &rest[written..],
                Err(rustix::io::Errno::INTR) => {}
                Err(_) => self.is_disconnected.set(true),
            }
        }
        outgoing.clear();
    }

    /// Waits for bytes from the bridge. Returns their number, which is zero if the bridge has disconnected, or `None` at the
    /// deadline.
    pub(crate) fn read(&self, deadline: Instant, buffer: &mut [u8]) -> io::Result<Option<usize>> {
        use rustix::event::{PollFd, PollFlags, Timespec, poll};
        let left = deadline.saturating_duration_since(Instant::now());
        let left = Timespec { tv_sec: left.as_secs() as i64, tv_nsec: left.subsec_nanos().into() };
        let mut fds = [PollFd::from_borrowed_fd(self.socket().as_fd(), PollFlags::IN)];
        match poll(&mut fds, Some(&left)) {
            Ok(0) | Err(rustix::io::Errno::INTR) => return Ok(None),
            Ok(_) => {}
            Err(error) => return Err(error.into()),
        }
        match rustix::io::read(self.socket().as_fd(), buffer) {
            Ok(read) => Ok(Some(read)),
            Err(rustix::io::Errno::INTR) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Sends a line of console output at once, so that it is not lost if the script is killed next.
    pub(crate) fn log(&self, level: String, text: String) {
        let Some(left) = self.log_bytes_left.get().checked_sub(text.len() + wire::LOG_LINE_OVERHEAD) else {
            self.dropped_lines.set(self.dropped_lines.get() + 1);
            return;
        };
        self.log_bytes_left.set(left);
        self.send(&FromWorker::Console(ConsoleLine { level, text }));
        self.flush();
    }

    /// Keeps what warnings and errors tell of the result of a call.
    pub(crate) fn keep_result(&self, tool: &str, is_text: bool, value: &str) {
        let mut results = self.last_results.borrow_mut();
        results.keep(tool, is_text, value);
        let Some(script) = self.transpiled.get() else { return };
        let of_tool = script.mistakes.iter().filter(|mistake| mistake.finding.tool.as_deref() == Some(tool));
        results.note_members(tool, of_tool.filter_map(|mistake| mistake.finding.missing_member.as_deref()));
        self.read_members.borrow_mut().note(&script.reads, tool, is_text, value);
    }

    /// Warns of arguments that the tool does not have: it has probably ignored them.
    pub(crate) fn warn_of_arguments(&self, call: &PendingCall) {
        let Some(advice) = &call.advice else { return };
        let warning = format!("{}: {advice}", call.tool);
        let is_new = self.argument_warnings.borrow().len() < MAX_ARGUMENT_WARNINGS
            && self.argument_warnings.borrow_mut().insert(warning.clone());
        if is_new {
            self.log("warn".into(), warning);
        }
    }

    /// Warns of something that the value of a call does not have, once for each tool and kind of warning.
    pub(crate) fn warn_of_result(
        &self,
        tool: &str,
        kind: &'static str,
        warning: impl FnOnce() -> Option<String>,
    ) {
        let key = (tool.to_owned(), kind);
        let is_told = {
            let told = self.result_warnings.borrow();
            told.len() >= MAX_RESULT_WARNINGS || told.contains(&key)
        };
        if !is_told && let Some(warning) = warning() {
            self.result_warnings.borrow_mut().insert(key);
            self.log("warn".into(), warning);
        }
    }

    /// Reports a call that was refused here. Names and reasons of any length come from the script: they are cut.
    pub(crate) fn refuse_call(&self, mut refused: RefusedToolCall) {
        const MAX_TEXT: usize = 1_024;
        for text in [&mut refused.server, &mut refused.tool, &mut refused.message] {
            text.truncate(text.floor_char_boundary(MAX_TEXT));
        }
        self.send(&FromWorker::CallRefused(refused));
        self.flush();
    }

    /// Reports the number of lines above the log limit.
    pub(crate) fn report_dropped_lines(&self) {
        let dropped = self.dropped_lines.take();
        if dropped > 0 {
            self.send(&FromWorker::Console(ConsoleLine::dropped(dropped)));
        }
    }

    /// Queues a call for the next flush and returns its number, or `None` if the arguments are too long.
    pub(crate) fn call(
        &self,
        server: String,
        tool: String,
        args: Box<RawValue>,
        advice: Option<String>,
    ) -> Option<u64> {
        let number = self.last_call.get() + 1;
        if args.get().len() + tool.len() > MAX_CALL_LENGTH {
            return None;
        }
        self.last_call.set(number);
        let name = match (server.as_str(), tool.as_str()) {
            (wire::HOST, "result") => "bascule.result".into(),
            (wire::HOST, query) => format!("mcp.{query}"),
            _ => format!("{server}:{tool}"),
        };
        if let Some(unawaited) = self.unawaited.borrow_mut().as_mut() {
            unawaited.add(&name, Instant::now());
        }
        self.calls.borrow_mut().insert(number, PendingCall { tool: name, wants_raw: false, advice });
        let id = format!("{}-{number}", self.id.get().map_or("", String::as_str));
        self.send(&FromWorker::RpcCall(RpcCall { id, server, tool, args }));
        Some(number)
    }

    pub(crate) fn request_raw(&self, number: u64) {
        if let Some(call) = self.calls.borrow_mut().get_mut(&number) {
            call.wants_raw = true;
        }
    }

    /// Removes and returns the pending call with this id.
    pub(crate) fn take_call(&self, id: &str) -> Option<(u64, PendingCall)> {
        let number = id.rsplit_once('-')?.1.parse().ok()?;
        let call = self.calls.borrow_mut().remove(&number)?;
        if !self.has_calls()
            && let Some(unawaited) = self.unawaited.borrow_mut().as_mut()
        {
            unawaited.end_wait(Instant::now());
        }
        Some((number, call))
    }

    pub(crate) fn add_unhandled_rejection(&self, promise: SavedValue, reason: SavedValue) {
        let mut unhandled = self.unhandled_rejections.borrow_mut();
        if unhandled.len() < MAX_UNHANDLED {
            unhandled.push((promise, reason));
        }
    }

    pub(crate) fn remove_unhandled_rejection(&self, promise: &SavedValue) {
        self.unhandled_rejections.borrow_mut().retain(|(unhandled, _)| unhandled != promise);
    }

    /// Removes all unhandled rejections and returns their reasons.
    pub(crate) fn take_unhandled_rejections(&self) -> Vec<SavedValue> {
        self.unhandled_rejections.take().into_iter().map(|(_, reason)| reason).collect()
    }

    /// Maps a position in the transpiled code to the source, as `line:column`; empty if it is not in the source.
    pub(crate) fn origin(&self, line: u32, column: u32) -> String {
        let origin = self.transpiled.get().and_then(|script| script.origin(line, column));
        origin.map(|position| format!("{}:{}", position.line, position.column)).unwrap_or_default()
    }
}
