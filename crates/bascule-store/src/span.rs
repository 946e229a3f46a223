//! A span: one ended call or script, as it is kept.

use std::sync::Arc;

use bascule_model::{CorrelationId, Delivery, SpanContext};

/// Defines an enum whose members have a text, which is a contract, and a number, which is stored.
macro_rules! stored_enum {
    ($(#[$doc:meta])* $name:ident { $($(#[$member_doc:meta])* $member:ident = $text:literal),* $(,)? }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum $name { $($(#[$member_doc])* $member),* }

        impl $name {
            const ALL: &[Self] = &[$(Self::$member),*];

            pub fn as_str(self) -> &'static str {
                match self { $(Self::$member => $text),* }
            }

            pub(crate) fn number(self) -> i64 {
                self as i64
            }

            /// A number that a later version has written gives the first member.
            pub(crate) fn from_number(number: i64) -> Self {
                usize::try_from(number).ok().and_then(|at| Self::ALL.get(at)).copied().unwrap_or(Self::ALL[0])
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(self.as_str())
            }
        }
    };
}
pub(crate) use stored_enum;

stored_enum! {
    /// The kind of a span.
    SpanKind {
        /// A tool call.
        Call = "call",
        /// A script, the parent of its calls.
        Script = "script",
    }
}

stored_enum! {
    /// The interface through which a call or a script reached the bridge. The order is stored: add members at the end. The next
    /// one is `api`, the bridge's own API over HTTP, whose name other programs know already.
    Face {
        /// The command line, directly or over the control socket.
        Cli = "cli",
        /// An MCP client.
        Mcp = "mcp",
        Script = "script",
        /// A message bus.
        Bus = "bus",
        /// A program that embeds the bridge.
        Library = "library",
    }
}

stored_enum! {
    /// The end of a call or a script.
    Outcome {
        /// A result.
        Ok = "ok",
        /// A result in which the tool reports failure, or a script that failed by itself.
        ToolError = "tool_error",
        /// No result: the call was refused, timed out, or lost its server.
        Error = "error",
    }
}

stored_enum! {
    /// The process that made a call.
    Isolation {
        /// One process for all calls of a server.
        Shared = "shared",
        /// A process for this call alone.
        PerCall = "per-call",
    }
}

/// The MCP client behind a call.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct ClientLabel {
    pub name: String,
    pub version: String,
    /// The beginning of the session id: the whole id would be a credential.
    pub session: String,
}

/// The content of a call, if the configuration asks for it, and the rules for its error message. The writer thread asks for it,
/// so that the call does not wait for redaction.
pub trait CapturableContent: Send + Sync {
    fn capture(&self) -> Captured;
    /// Returns the error message of the span without its secrets.
    fn redact_message(&self, message: &str) -> String;
    /// The memory that it holds, in bytes.
    fn bytes(&self) -> usize;
}

/// Redacted JSON texts.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Captured {
    pub arguments: Option<String>,
    pub result: Option<String>,
}

/// One ended call or script.
#[derive(Clone)]
pub struct Span {
    pub context: SpanContext,
    pub kind: SpanKind,
    pub face: Face,
    pub client: Option<Arc<ClientLabel>>,
    /// The agent on the bus that made the call.
    pub agent: Option<Arc<str>>,
    pub correlation_id: CorrelationId,
    /// The tool as `server:tool`, or the name of the script.
    pub name: Arc<str>,
    /// Microseconds since 1970.
    pub started_at: i64,
    /// Microseconds.
    pub duration: u64,
    /// The part of the duration that was spent at the server's gate, in microseconds.
    pub waited: u64,
    /// The number of times that the call was sent.
    pub attempts: u32,
    pub isolation: Option<Isolation>,
    pub argument_bytes: u64,
    pub result_bytes: Option<u64>,
    pub outcome: Outcome,
    pub code: Option<Arc<str>>,
    pub delivery: Option<Delivery>,
    /// The error message.
    pub message: Option<String>,
    pub content: Option<Arc<dyn CapturableContent>>,
}

impl Span {
    /// Returns the server of a call.
    pub fn server(&self) -> Option<&str> {
        (self.kind == SpanKind::Call).then(|| self.name.split_once(':').map_or("", |(server, _)| server))
    }

    /// The memory that it holds, roughly.
    pub(crate) fn bytes(&self) -> usize {
        let content = self.content.as_ref().map_or(0, |content| content.bytes());
        size_of::<Self>() + self.message.as_ref().map_or(0, String::len) + content
    }
}

#[cfg(test)]
impl Span {
    /// A call that has ended.
    pub(crate) fn testing() -> Self {
        let context = SpanContext {
            trace_id: bascule_model::TraceId(1),
            span_id: bascule_model::SpanId(1),
            parent: None,
        };
        Self {
            context,
            kind: SpanKind::Call,
            face: Face::Library,
            client: None,
            agent: None,
            correlation_id: CorrelationId::from_random(1),
            name: "s:x".into(),
            started_at: 0,
            duration: 1,
            waited: 0,
            attempts: 1,
            isolation: Some(Isolation::Shared),
            argument_bytes: 2,
            result_bytes: Some(2),
            outcome: Outcome::Ok,
            code: None,
            delivery: Some(Delivery::Answered),
            message: None,
            content: None,
        }
    }
}

/// Already captured content, as a reader returns it.
impl CapturableContent for Captured {
    fn capture(&self) -> Captured {
        self.clone()
    }

    fn redact_message(&self, message: &str) -> String {
        message.to_owned()
    }

    fn bytes(&self) -> usize {
        [&self.arguments, &self.result].into_iter().flatten().map(String::len).sum()
    }
}

pub(crate) fn delivery_number(delivery: Delivery) -> i64 {
    match delivery {
        Delivery::NotSent => 0,
        Delivery::Unknown => 1,
        Delivery::Answered => 2,
    }
}

pub(crate) fn delivery_from(number: i64) -> Delivery {
    match number {
        0 => Delivery::NotSent,
        1 => Delivery::Unknown,
        _ => Delivery::Answered,
    }
}
