//! The protocol between bridge and worker: length-prefixed JSON messages.
//!
//! A frame is its length (four bytes, little endian) and a JSON body of at most [`FRAME_LIMIT`] bytes. Both sides refuse to
//! read or write a longer one.

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

/// Maximum length of a frame body. The longest result of a tool (64 MiB) fits in it, with its envelope.
pub const FRAME_LIMIT: usize = 80 << 20;
/// Bytes that each console line counts towards the log limit, besides its text.
pub const LOG_LINE_OVERHEAD: usize = 32;
/// The server name in calls of functions of the bridge itself. No server has it.
pub const HOST: &str = "";
/// Length of the length prefix.
const PREFIX: usize = 4;
/// Minimum room for one read.
const READ_SIZE: usize = 32 << 10;

/// A message that can be parsed from a frame.
///
/// Serde buffers the content of a tagged enum in a form that `RawValue` cannot be read from, so the tag is read first.
pub trait WireMessage: Sized {
    /// Parses the body of a frame.
    fn parse(body: &[u8]) -> serde_json::Result<Self>;
}

/// Returns the message's `type`, which both sides write first. The rest, which may be long, is not parsed.
fn message_type(body: &[u8]) -> serde_json::Result<&str> {
    let rest = body.strip_prefix(br#"{"type":""#);
    let name = rest.and_then(|rest| rest.split(|byte| *byte == b'"').next());
    let name = name.and_then(|name| std::str::from_utf8(name).ok());
    name.ok_or_else(|| serde::de::Error::custom("the message does not begin with its type"))
}

impl WireMessage for ToWorker {
    fn parse(body: &[u8]) -> serde_json::Result<Self> {
        match message_type(body)? {
            "init" => serde_json::from_slice(body).map(Self::Init),
            "rpc_result" => serde_json::from_slice(body).map(Self::RpcResult),
            other => Err(unknown_type(other)),
        }
    }
}

impl WireMessage for FromWorker {
    fn parse(body: &[u8]) -> serde_json::Result<Self> {
        match message_type(body)? {
            "ready" => serde_json::from_slice(body).map(Self::Ready),
            "rpc_call" => serde_json::from_slice(body).map(Self::RpcCall),
            "call_refused" => serde_json::from_slice(body).map(Self::CallRefused),
            "console" => serde_json::from_slice(body).map(Self::Console),
            "execution_complete" => serde_json::from_slice(body).map(Self::ExecutionComplete),
            other => Err(unknown_type(other)),
        }
    }
}

fn unknown_type(name: &str) -> serde_json::Error {
    serde::de::Error::custom(format_args!("unknown message type `{name}`"))
}

/// From the bridge to the worker.
#[derive(Debug, Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum ToWorker {
    /// The first message: the script.
    Init(Box<Init>),
    /// The result of a call.
    RpcResult(RpcResult),
}

/// A script with its tools, context and limits.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Init {
    /// Prefix of call ids: a call's id is this, a hyphen and the call's number. Unique among all scripts.
    pub id: String,
    /// File name shown in stack traces.
    pub name: String,
    /// TypeScript source.
    pub code: String,
    /// Tools that the script may call.
    pub tool_definitions: Vec<InjectedTool>,
    /// Configured servers that have not listed their tools. The worker sends calls to them, so that the script gets the
    /// reason in the error.
    #[serde(default)]
    pub absent_servers: Vec<String>,
    /// Ids of tools that exist, but that the script may not call.
    #[serde(default)]
    pub not_granted: Vec<String>,
    /// The tools were selected by a purpose (`intent`), not only by name.
    #[serde(default)]
    pub is_limited_by_intent: bool,
    /// Ids of tools that the configuration denies.
    #[serde(default)]
    pub denied: Vec<String>,
    /// JSON object for the global `context`.
    #[serde(default)]
    pub context: Option<Box<RawValue>>,
    /// Limits of the script.
    pub limits: ScriptLimits,
}

/// A tool that the script may call. It is data and never becomes code.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct InjectedTool {
    /// Server name.
    pub server: String,
    /// Tool name in the server's spelling.
    pub name: String,
    /// Description from the server.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// JSON Schema of the arguments.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub input_schema: Option<Box<RawValue>>,
    /// JSON Schema of the result, if the script may use it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output_schema: Option<Box<RawValue>>,
    /// JSON Schema of earlier results of a tool without an output schema. Later results may differ.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_schema: Option<Box<RawValue>>,
    /// The call and the type of its arguments in TypeScript, for errors about arguments.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signature: Option<String>,
    /// The bridge does not validate the arguments, because the schema cannot be used: the tool may accept others.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_unchecked: bool,
}

/// Limits of a script. The worker keeps them; the bridge enforces them.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ScriptLimits {
    /// Run time in milliseconds.
    pub time_ms: u64,
    /// Size of the JavaScript heap.
    pub memory_bytes: usize,
    /// Length of the returned value as JSON.
    pub output_bytes: usize,
    /// Console output.
    pub log_bytes: usize,
    /// Number of calls. The bridge refuses later ones.
    pub calls: u64,
}

impl Default for ScriptLimits {
    fn default() -> Self {
        Self {
            time_ms: 30_000,
            memory_bytes: 512 << 20,
            output_bytes: 8 << 20,
            log_bytes: 256 << 10,
            calls: 10_000,
        }
    }
}

/// The result of a call.
#[derive(Debug, Serialize, Deserialize)]
pub struct RpcResult {
    /// Id of the call.
    pub id: String,
    /// True if the tool returned a result, including one with `isError`.
    pub success: bool,
    /// The result exactly as the server sent it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub result: Option<Box<RawValue>>,
    /// The bridge's error, if there is no result.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<Box<RawValue>>,
    /// The bridge's explanation of a result with `isError`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
}

/// From the worker to the bridge.
#[derive(Debug, Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum FromWorker {
    /// The worker is locked down and waits for its script.
    Ready(Ready),
    /// The script calls a tool.
    RpcCall(RpcCall),
    /// The script has tried a call that its worker refused: there is no such tool, it is denied, or the arguments are wrong.
    CallRefused(RefusedToolCall),
    /// The script wrote to its console.
    Console(ConsoleLine),
    /// The script has ended. This is the last message.
    ExecutionComplete(Completed),
}

/// The worker's first message.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct Ready {
    /// Confinement features that the kernel lacks, as text for people.
    pub missing: Vec<String>,
}

/// A tool call by the script.
#[derive(Debug, Serialize, Deserialize)]
pub struct RpcCall {
    /// Unique id of the call.
    pub id: String,
    /// Server name.
    pub server: String,
    /// Tool name in the server's spelling.
    pub tool: String,
    /// Arguments as a JSON object.
    pub args: Box<RawValue>,
}

/// A call that was not sent.
#[derive(Debug, Serialize, Deserialize)]
pub struct RefusedToolCall {
    /// Server name in the script's spelling.
    pub server: String,
    /// Tool name in the script's spelling; `*` if there is no such server.
    pub tool: String,
    /// `TOOL_NOT_FOUND`, `POLICY_DENIED` or `INVALID_INPUT`.
    pub code: String,
    /// The reason.
    pub message: String,
}

/// The end of the line about lines above the limit.
const DROPPED: &str = " more lines dropped: the console limit was reached";

/// A line of console output.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ConsoleLine {
    /// `log`, `info`, `warn`, `error` or `debug`.
    pub level: String,
    /// The text.
    pub text: String,
}

impl ConsoleLine {
    /// The last line, which tells how many lines were above the limit.
    pub fn dropped(count: u64) -> Self {
        Self { level: "warn".into(), text: format!("{count}{DROPPED}") }
    }

    /// Returns the number of lines above the limit if this is the line that tells it.
    pub fn dropped_lines(&self) -> Option<u64> {
        self.text.strip_suffix(DROPPED)?.parse().ok()
    }
}

/// The end of a script.
#[derive(Debug, Serialize, Deserialize)]
pub struct Completed {
    /// True if the script returned.
    pub success: bool,
    /// The returned value.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub result: Option<Box<RawValue>>,
    /// The thrown error, or the limit the script exceeded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<ScriptError>,
}

/// Why a script failed.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ScriptError {
    /// Class of the error: `TypeError`, `MCPToolError`, `TimeLimitError` …
    pub name: String,
    /// The bridge's error code for a failed call, else a code such as `TIME_LIMIT`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<String>,
    /// Description for people.
    pub message: String,
    /// Line in the source, counted from one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub line: Option<u32>,
    /// Column in that line, counted from one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub column: Option<u32>,
    /// Stack trace with positions in the source.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stack: Option<String>,
    /// The tool of a failed call, as `server:tool`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tool_name: Option<String>,
    /// True if the failed call may be retried.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retryable: Option<bool>,
}

/// A frame that cannot be read or written.
#[derive(Debug, thiserror::Error)]
pub enum FrameError {
    /// The body exceeds [`FRAME_LIMIT`].
    #[error("frame of {length} bytes exceeds the limit of {FRAME_LIMIT} bytes")]
    TooLong {
        /// Length of the body.
        length: usize,
    },
    /// The body is not a known message.
    #[error("frame does not contain a valid message")]
    Malformed(#[source] serde_json::Error),
}

/// Appends a message to the buffer as one frame.
pub fn push_frame<M: Serialize>(buffer: &mut Vec<u8>, message: &M) -> Result<(), FrameError> {
    let start = buffer.len();
    buffer.extend([0; PREFIX]);
    serde_json::to_writer(&mut *buffer, message).map_err(FrameError::Malformed)?;
    let length = buffer.len() - start - PREFIX;
    if length > FRAME_LIMIT {
        buffer.truncate(start);
        return Err(FrameError::TooLong { length });
    }
    let head = u32::try_from(length).expect("the limit is far below 4 GiB");
    buffer[start..start + PREFIX].copy_from_slice(&head.to_le_bytes());
    Ok(())
}

/// Splits a byte stream into messages.
#[derive(Debug, Default)]
pub struct FrameDecoder {
    bytes: Vec<u8>,
    /// Offset of the first frame that has not been returned.
    consumed: usize,
}

impl FrameDecoder {
    /// Appends received bytes.
    pub fn feed(&mut self, bytes: &[u8]) {
        self.clear_if_consumed();
        self.bytes.extend_from_slice(bytes);
    }

    /// Returns the buffer to append received bytes to, with spare capacity.
    pub fn read_buffer(&mut self) -> &mut Vec<u8> {
        self.clear_if_consumed();
        self.bytes.reserve(READ_SIZE);
        &mut self.bytes
    }

    fn clear_if_consumed(&mut self) {
        if self.consumed == self.bytes.len() {
            self.bytes.clear();
            self.consumed = 0;
        }
    }

    /// Returns the body of the next frame, if it is complete.
    pub fn next_body(&mut self) -> Result<Option<&[u8]>, FrameError> {
        let rest = &self.bytes[self.consumed..];
        let Some((head, rest)) = rest.split_first_chunk::<PREFIX>() else { return Ok(None) };
        let length = u32::from_le_bytes(*head) as usize;
        if length > FRAME_LIMIT {
            return Err(FrameError::TooLong { length });
        }
        if rest.len() < length {
            self.discard_consumed();
            return Ok(None);
        }
        let start = self.consumed + PREFIX;
        self.consumed = start + length;
        Ok(Some(&self.bytes[start..start + length]))
    }

    /// Returns the next message, if it is complete.
    pub fn next_message<M: WireMessage>(&mut self) -> Result<Option<M>, FrameError> {
        match self.next_body()? {
            Some(body) => M::parse(body).map(Some).map_err(FrameError::Malformed),
            None => Ok(None),
        }
    }

    /// Without this, a long frame that arrives in pieces would keep all earlier frames in memory.
    fn discard_consumed(&mut self) {
        if self.consumed > 0 {
            self.bytes.drain(..self.consumed);
            self.consumed = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn line(text: &str) -> FromWorker {
        FromWorker::Console(ConsoleLine { level: "log".into(), text: text.into() })
    }

    // req: CM-03
    #[test]
    fn messages_match_protocol_spelling() {
        let call = FromWorker::RpcCall(RpcCall {
            id: "s-1".into(),
            server: "github".into(),
            tool: "list_commits".into(),
            args: RawValue::from_string(r#"{"n":1.0}"#.into()).unwrap(),
        });
        let json = serde_json::to_string(&call).unwrap();
        assert_eq!(
            json,
            r#"{"type":"rpc_call","id":"s-1","server":"github","tool":"list_commits","args":{"n":1.0}}"#
        );
        let init =
            br#"{"type":"init","id":"s","name":"a.ts","code":"return 1","toolDefinitions":[],"context":{},
                "limits":{"timeMs":1,"memoryBytes":1,"outputBytes":1,"logBytes":1,"calls":1}}"#;
        let init = ToWorker::parse(init).unwrap();
        assert!(matches!(init, ToWorker::Init(init) if init.code == "return 1"));
    }

    // req: CM-03
    #[test]
    fn refuses_oversized_frame_before_reading_it() {
        let mut decoder = FrameDecoder::default();
        decoder.feed(&u32::MAX.to_le_bytes());
        assert!(matches!(decoder.next_body(), Err(FrameError::TooLong { .. })));
    }

    // req: CM-03
    #[test]
    fn refuses_frame_without_message() {
        let mut decoder = FrameDecoder::default();
        decoder.feed(&[2, 0, 0, 0, b'{', b']']);
        assert!(matches!(decoder.next_message::<FromWorker>(), Err(FrameError::Malformed(_))));
    }

    proptest! {
        // req: CM-03
        #[test]
        fn decodes_messages_from_any_chunks(
            texts in proptest::collection::vec(".{0,40}", 0..8),
            cut in 1usize..50,
        ) {
            let mut bytes = Vec::new();
            for text in &texts {
                push_frame(&mut bytes, &line(text)).unwrap();
            }
            let (mut decoder, mut read) = (FrameDecoder::default(), Vec::new());
            for piece in bytes.chunks(cut) {
                decoder.feed(piece);
                while let Some(message) = decoder.next_message::<FromWorker>().unwrap() {
                    let FromWorker::Console(line) = message else { panic!("{message:?}") };
                    read.push(line.text);
                }
            }
            prop_assert_eq!(read, texts);
        }

        // req: CM-03
        #[test]
        fn random_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let mut decoder = FrameDecoder::default();
            decoder.feed(&bytes);
            while let Ok(Some(_)) = decoder.next_message::<FromWorker>() {}
        }
    }
}
