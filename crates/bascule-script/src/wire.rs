//! What bridge and worker say to each other: JSON messages in frames that begin with their length.
//!
//! Four bytes, least significant first, then so many bytes of JSON. Neither side trusts the other with more than
//! [`FRAME_LIMIT`] bytes, and neither writes a frame that it would not read.

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

/// The longest body of a frame. What a tool may answer (64 MiB) fits in it, wrapped.
pub const FRAME_LIMIT: usize = 80 << 20;
/// What a line of the console counts besides its text.
pub const LINE_WEIGHT: usize = 32;
/// The bytes before a body.
const HEAD: usize = 4;
/// How much is read at a time, at the least.
const PIECE: usize = 32 << 10;

/// What can be read from a frame.
///
/// Serde keeps the parts of a tagged enum in a form that raw JSON cannot be read from, so the tag is read first.
pub trait Message: Sized {
    /// Reads the body of a frame.
    fn parse(body: &[u8]) -> serde_json::Result<Self>;
}

/// The message's `type`, which both sides write first. Only that much is read: the message may be long.
fn kind(body: &[u8]) -> serde_json::Result<&str> {
    let rest = body.strip_prefix(br#"{"type":""#);
    let kind = rest.and_then(|rest| rest.split(|byte| *byte == b'"').next());
    let kind = kind.and_then(|kind| std::str::from_utf8(kind).ok());
    kind.ok_or_else(|| serde::de::Error::custom("a message begins with its type"))
}

impl Message for ToWorker {
    fn parse(body: &[u8]) -> serde_json::Result<Self> {
        match kind(body)? {
            "init" => serde_json::from_slice(body).map(Self::Init),
            "rpc_result" => serde_json::from_slice(body).map(Self::RpcResult),
            other => Err(unknown(other)),
        }
    }
}

impl Message for FromWorker {
    fn parse(body: &[u8]) -> serde_json::Result<Self> {
        match kind(body)? {
            "ready" => serde_json::from_slice(body).map(Self::Ready),
            "rpc_call" => serde_json::from_slice(body).map(Self::RpcCall),
            "console" => serde_json::from_slice(body).map(Self::Console),
            "execution_complete" => serde_json::from_slice(body).map(Self::ExecutionComplete),
            other => Err(unknown(other)),
        }
    }
}

fn unknown(kind: &str) -> serde_json::Error {
    serde::de::Error::custom(format_args!("no message is called `{kind}`"))
}

/// From the bridge to the worker.
#[derive(Debug, Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum ToWorker {
    /// The first message: what to run.
    Init(Box<Init>),
    /// How a call ended.
    RpcResult(RpcResult),
}

/// A script and what it is given.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Init {
    /// Stands before the number of each call: together they are its id, which no other script's call has.
    pub id: String,
    /// What the author calls the script.
    pub name: String,
    /// The author's text.
    pub code: String,
    /// The tools that the script may call.
    pub tool_definitions: Vec<ToolDefinition>,
    /// Servers that are configured but whose tools are not known. A call of one is made, and fails for its reason.
    #[serde(default)]
    pub absent_servers: Vec<String>,
    /// A JSON object of the caller's.
    #[serde(default)]
    pub context: Option<Box<RawValue>>,
    /// What the script may use.
    pub limits: Limits,
}

/// A tool, as data. Nothing of it is ever made code.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ToolDefinition {
    /// The server's name.
    pub server: String,
    /// The tool's name, as the server spells it.
    pub name: String,
    /// What the server says of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// Its input schema.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub input_schema: Option<Box<RawValue>>,
}

/// What a script may use. The worker keeps to it; the bridge sees to it.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Limits {
    /// How long it may run, in milliseconds.
    pub time_ms: u64,
    /// What its objects may occupy.
    pub memory_bytes: usize,
    /// How long the JSON text of its value may be.
    pub output_bytes: usize,
    /// How much it may write to its console.
    pub log_bytes: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { time_ms: 30_000, memory_bytes: 512 << 20, output_bytes: 8 << 20, log_bytes: 256 << 10 }
    }
}

/// How a call ended.
#[derive(Debug, Serialize, Deserialize)]
pub struct RpcResult {
    /// The call's id.
    pub id: String,
    /// Whether the tool answered, be it with `isError`.
    pub success: bool,
    /// The tool's result as the server sent it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub result: Option<Box<RawValue>>,
    /// Why there is none: the bridge's error.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<Box<RawValue>>,
}

/// From the worker to the bridge.
#[derive(Debug, Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum FromWorker {
    /// The worker is locked in and waits for its script.
    Ready(Ready),
    /// The script calls a tool.
    RpcCall(RpcCall),
    /// The script wrote to its console.
    Console(LogLine),
    /// The script has ended. Nothing comes after this.
    ExecutionComplete(Completed),
}

/// What a worker says of itself before it is given a script.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct Ready {
    /// What the kernel could not give, for people to read.
    pub missing: Vec<String>,
}

/// A call that a script makes.
#[derive(Debug, Serialize, Deserialize)]
pub struct RpcCall {
    /// Unlike that of any other call.
    pub id: String,
    /// The server's name.
    pub server: String,
    /// The tool's name, as the server spells it.
    pub tool: String,
    /// Its arguments.
    pub args: Box<RawValue>,
}

/// A line of a script's console.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LogLine {
    /// `log`, `info`, `warn`, `error` or `debug`.
    pub level: String,
    /// What was written.
    pub text: String,
}

/// How a script ended.
#[derive(Debug, Serialize, Deserialize)]
pub struct Completed {
    /// Whether it came to its end.
    pub success: bool,
    /// Its value.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub result: Option<Box<RawValue>>,
    /// What it threw, or what it ran into.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<ScriptError>,
}

/// Why a script failed.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ScriptError {
    /// The error's class: `TypeError`, `MCPToolError`, `TimeLimitError` …
    pub name: String,
    /// For a failed call the bridge's code; for a limit, which.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<String>,
    /// What went wrong.
    pub message: String,
    /// Where in the author's text, counted from one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub line: Option<u32>,
    /// Where in that line, counted from one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub column: Option<u32>,
    /// The places that led there, in the author's text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stack: Option<String>,
    /// For a failed call: the tool.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tool_name: Option<String>,
    /// For a failed call: whether it may be tried again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retryable: Option<bool>,
}

/// A frame that is not one.
#[derive(Debug, thiserror::Error)]
pub enum FrameError {
    /// Too long to be read or written.
    #[error("a frame of {length} bytes is longer than {FRAME_LIMIT}")]
    TooLong {
        /// So long.
        length: usize,
    },
    /// Not a message.
    #[error("a frame holds no message")]
    Malformed(#[source] serde_json::Error),
}

/// Puts a message at the end of what is to be written.
pub fn push<M: Serialize>(buffer: &mut Vec<u8>, message: &M) -> Result<(), FrameError> {
    let start = buffer.len();
    buffer.extend([0; HEAD]);
    serde_json::to_writer(&mut *buffer, message).map_err(FrameError::Malformed)?;
    let length = buffer.len() - start - HEAD;
    if length > FRAME_LIMIT {
        buffer.truncate(start);
        return Err(FrameError::TooLong { length });
    }
    let head = u32::try_from(length).expect("the limit is far below four gibibytes");
    buffer[start..start + HEAD].copy_from_slice(&head.to_le_bytes());
    Ok(())
}

/// Cuts bytes, as they come, into messages.
#[derive(Debug, Default)]
pub struct Frames {
    bytes: Vec<u8>,
    /// Where the first frame begins that has not been taken.
    taken: usize,
}

impl Frames {
    /// More bytes have come.
    pub fn feed(&mut self, bytes: &[u8]) {
        self.forget_all_taken();
        self.bytes.extend_from_slice(bytes);
    }

    /// Where more bytes are to be put, behind those that are there; there is room for some.
    pub fn tail(&mut self) -> &mut Vec<u8> {
        self.forget_all_taken();
        self.bytes.reserve(PIECE);
        &mut self.bytes
    }

    fn forget_all_taken(&mut self) {
        if self.taken == self.bytes.len() {
            self.bytes.clear();
            self.taken = 0;
        }
    }

    /// The body of the next whole frame, if it is there.
    pub fn next_body(&mut self) -> Result<Option<&[u8]>, FrameError> {
        let rest = &self.bytes[self.taken..];
        let Some((head, rest)) = rest.split_first_chunk::<HEAD>() else { return Ok(None) };
        let length = u32::from_le_bytes(*head) as usize;
        if length > FRAME_LIMIT {
            return Err(FrameError::TooLong { length });
        }
        if rest.len() < length {
            self.forget_taken();
            return Ok(None);
        }
        let start = self.taken + HEAD;
        self.taken = start + length;
        Ok(Some(&self.bytes[start..start + length]))
    }

    /// The next message, if it is there.
    pub fn next_message<M: Message>(&mut self) -> Result<Option<M>, FrameError> {
        match self.next_body()? {
            Some(body) => M::parse(body).map(Some).map_err(FrameError::Malformed),
            None => Ok(None),
        }
    }

    /// A long frame that comes in pieces must not drag along what was read before it.
    fn forget_taken(&mut self) {
        if self.taken > 0 {
            self.bytes.drain(..self.taken);
            self.taken = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn line(text: &str) -> FromWorker {
        FromWorker::Console(LogLine { level: "log".into(), text: text.into() })
    }

    // req: CM-03
    #[test]
    fn messages_are_spelled_as_the_contract_says() {
        let call = FromWorker::RpcCall(RpcCall {
            id: "s-1".into(),
            server: "github".into(),
            tool: "list_commits".into(),
            args: RawValue::from_string(r#"{"n":1.0}"#.into()).unwrap(),
        });
        let said = serde_json::to_string(&call).unwrap();
        assert_eq!(
            said,
            r#"{"type":"rpc_call","id":"s-1","server":"github","tool":"list_commits","args":{"n":1.0}}"#
        );
        let init =
            br#"{"type":"init","id":"s","name":"a.ts","code":"return 1","toolDefinitions":[],"context":{},
                "limits":{"timeMs":1,"memoryBytes":1,"outputBytes":1,"logBytes":1}}"#;
        let init = ToWorker::parse(init).unwrap();
        assert!(matches!(init, ToWorker::Init(init) if init.code == "return 1"));
    }

    // req: CM-03
    #[test]
    fn a_frame_that_claims_too_much_is_refused_before_it_is_read() {
        let mut frames = Frames::default();
        frames.feed(&u32::MAX.to_le_bytes());
        assert!(matches!(frames.next_body(), Err(FrameError::TooLong { .. })));
    }

    // req: CM-03
    #[test]
    fn a_frame_that_holds_no_message_is_refused() {
        let mut frames = Frames::default();
        frames.feed(&[2, 0, 0, 0, b'{', b']']);
        assert!(matches!(frames.next_message::<FromWorker>(), Err(FrameError::Malformed(_))));
    }

    proptest! {
        // req: CM-03
        #[test]
        fn however_the_bytes_are_cut_the_messages_are_the_same(
            texts in proptest::collection::vec(".{0,40}", 0..8),
            cut in 1usize..50,
        ) {
            let mut bytes = Vec::new();
            for text in &texts {
                push(&mut bytes, &line(text)).unwrap();
            }
            let (mut frames, mut read) = (Frames::default(), Vec::new());
            for piece in bytes.chunks(cut) {
                frames.feed(piece);
                while let Some(message) = frames.next_message::<FromWorker>().unwrap() {
                    let FromWorker::Console(line) = message else { panic!("{message:?}") };
                    read.push(line.text);
                }
            }
            prop_assert_eq!(read, texts);
        }

        // req: CM-03
        #[test]
        fn random_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let mut frames = Frames::default();
            frames.feed(&bytes);
            while let Ok(Some(_)) = frames.next_message::<FromWorker>() {}
        }
    }
}
