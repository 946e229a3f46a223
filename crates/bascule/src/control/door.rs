//! The bridge's side of the control socket: lets in who knows the token, and answers.

use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bascule_bus::{Delivery as Told, EmbeddedBus, SubscribeOptions, TopicPattern};
use bascule_model::{
    BridgeError, BridgeResult, CallRequest, CorrelationId, Delivery, ErrorCode, Patience, ProviderAdapter,
    ServerName, ToolId,
};
use serde::{Deserialize, Serialize};
use serde_json::value::{RawValue, to_raw_value};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::unix::OwnedWriteHalf;
use tokio::net::{UnixListener, UnixStream};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::{debug, warn};

use super::ask::{ListedTool, Listing, RunningBridge};
use super::{LONGEST_QUESTION, Place, Question, Reply, What};
use crate::McpBridgeAdapter;

/// Who opens the door has so long to say what for.
const QUESTION_WITHIN: Duration = Duration::from_secs(10);
/// A listing waits so long for servers that are still starting.
const LISTING_WAITS: Duration = Duration::from_secs(30);
/// So many may be inside at once; the next one waits outside.
const MOST_VISITORS: usize = 64;

/// An open door. Dropped, it is closed and taken away.
pub(crate) struct Door {
    place: Place,
    tasks: TaskTracker,
    stop: CancellationToken,
}

/// What visitors are let see.
struct House {
    bridge: Arc<McpBridgeAdapter>,
    bus: Arc<EmbeddedBus>,
    token: String,
    config: PathBuf,
    visitors: tokio::sync::Semaphore,
}

impl Door {
    /// Opens it, unless another bridge serves the same file.
    pub(crate) async fn open(
        place: Place,
        bridge: Arc<McpBridgeAdapter>,
        bus: Arc<EmbeddedBus>,
    ) -> io::Result<Self> {
        if let Some(other) = RunningBridge::at(&place).await {
            let said =
                format!("a bridge for {} runs already (process {})", place.config.display(), other.pid);
            return Err(io::Error::new(io::ErrorKind::AddrInUse, said));
        }
        place.clear();
        let token = crate::call::fresh_id().to_string();
        place.leave_token(&token)?;
        let listener = UnixListener::bind(place.socket())?;
        std::fs::set_permissions(place.socket(), std::fs::Permissions::from_mode(0o600))?;
        let (tasks, stop) = (TaskTracker::new(), CancellationToken::new());
        let visitors = tokio::sync::Semaphore::new(MOST_VISITORS);
        let house = Arc::new(House { bridge, bus, token, config: place.config.clone(), visitors });
        tasks.spawn(receive(listener, house, tasks.clone(), stop.clone()));
        Ok(Self { place, tasks, stop })
    }

    /// Closes it and waits until the last visitor has left.
    pub(crate) async fn close(&self) {
        self.stop.cancel();
        self.tasks.close();
        self.tasks.wait().await;
    }
}

impl Drop for Door {
    fn drop(&mut self) {
        self.stop.cancel();
        self.place.clear();
    }
}

async fn receive(listener: UnixListener, house: Arc<House>, tasks: TaskTracker, stop: CancellationToken) {
    while let Some(arrived) = stop.run_until_cancelled(listener.accept()).await {
        match arrived {
            Ok((stream, _)) => {
                let (house, stop) = (house.clone(), stop.clone());
                tasks.spawn(async move {
                    let visit = stop.run_until_cancelled(visit(stream, &house)).await;
                    if let Some(Err(error)) = visit {
                        debug!(%error, "a visitor at the control socket left early");
                    }
                });
            }
            Err(error) => {
                warn!(%error, "the control socket could not take a visitor");
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        }
    }
}

/// One question and its answer. Who hangs up meanwhile is not answered, and what was asked is dropped.
async fn visit(stream: UnixStream, house: &House) -> io::Result<()> {
    let _inside = house.visitors.acquire().await;
    let (reader, mut writer) = stream.into_split();
    let mut reader = BufReader::new(reader);
    let mut line = Vec::new();
    let mut bounded = (&mut reader).take(LONGEST_QUESTION as u64);
    timeout(QUESTION_WITHIN, bounded.read_until(b'\n', &mut line)).await??;
    let question: Question = serde_json::from_slice(&line)?;
    if !same(question.token.as_bytes(), house.token.as_bytes()) {
        let said = "this is not the token of the bridge that runs here";
        return say(&mut writer, Err(BridgeError::new(ErrorCode::PolicyDenied, Delivery::NotSent, said)))
            .await;
    }
    let mut rest = [0; 1];
    tokio::select! {
        answered = house.answer(question, &mut writer) => answered,
        // Nothing more is expected: whatever comes, or the end, means that nobody listens any more.
        _ = reader.read(&mut rest) => Ok(()),
    }
}

/// Takes as long for what is nearly right as for what is all wrong.
fn same(one: &[u8], other: &[u8]) -> bool {
    one.len() == other.len() && one.iter().zip(other).fold(0, |differs, (a, b)| differs | (a ^ b)) == 0
}

async fn say(writer: &mut OwnedWriteHalf, answer: BridgeResult<Box<RawValue>>) -> io::Result<()> {
    let reply = answer.map_or_else(Reply::Error, Reply::Ok);
    let mut line = serde_json::to_vec(&reply)?;
    line.push(b'\n');
    writer.write_all(&line).await
}

fn document(value: &impl Serialize) -> BridgeResult<Box<RawValue>> {
    to_raw_value(value).map_err(|error| {
        BridgeError::new(
            ErrorCode::OutcomeUnknown,
            Delivery::Answered,
            format!("could not write it: {error}"),
        )
    })
}

fn misunderstood(why: impl std::fmt::Display) -> Box<BridgeError> {
    BridgeError::new(
        ErrorCode::InvalidInput,
        Delivery::NotSent,
        format!("the question makes no sense: {why}"),
    )
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct CallParams {
    tool: ToolId,
    arguments: Box<RawValue>,
    timeout_ms: Option<u64>,
    correlation_id: Option<CorrelationId>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Params {
    server: Option<ServerName>,
    tool: Option<ToolId>,
    watch: bool,
    pattern: Option<String>,
    replay: usize,
}

impl House {
    async fn answer(&self, question: Question, writer: &mut OwnedWriteHalf) -> io::Result<()> {
        let raw = question.params.unwrap_or_else(|| RawValue::NULL.to_owned());
        if question.what == What::Call {
            let answer = match serde_json::from_str(raw.get()) {
                Ok(params) => self.call(params).await,
                Err(error) => Err(misunderstood(error)),
            };
            return say(writer, answer).await;
        }
        let params = match serde_json::from_str::<Option<Params>>(raw.get()) {
            Ok(params) => params.unwrap_or_default(),
            Err(error) => return say(writer, Err(misunderstood(error))).await,
        };
        match question.what {
            What::Status if params.watch => self.watch(writer).await,
            What::Events => self.events(params, writer).await,
            what => {
                let answer = self.one_answer(what, params).await;
                say(writer, answer).await
            }
        }
    }

    async fn one_answer(&self, what: What, params: Params) -> BridgeResult<Box<RawValue>> {
        match what {
            What::Identity => {
                document(&serde_json::json!({ "pid": std::process::id(), "config": self.config }))
            }
            What::Refresh => self.refresh(params.server).await,
            What::Tools => self.tools(params.server).await,
            What::Tool => {
                let id = params.tool.ok_or_else(|| misunderstood("which tool?"))?;
                self.bridge.first_start_of(id.server(), LISTING_WAITS).await;
                let tool = self.bridge.get_tool(&id)?;
                document(&ListedTool::of(&tool))
            }
            What::Status | What::Events | What::Call => document(&crate::status::of(&self.bridge)),
        }
    }

    async fn call(&self, params: CallParams) -> BridgeResult<Box<RawValue>> {
        let patience = params.timeout_ms.map(Duration::from_millis);
        let patience = patience.map(|length| Patience { since: Instant::now(), length });
        let request = CallRequest { tool: params.tool, arguments: params.arguments, patience };
        document(&self.bridge.execute(request, params.correlation_id).await?)
    }

    async fn refresh(&self, server: Option<ServerName>) -> BridgeResult<Box<RawValue>> {
        match server {
            Some(server) => self.bridge.refresh(&server).await?,
            // What fails shows in the status.
            None => {
                let names: Vec<_> = self.bridge.health().into_iter().map(|server| server.name).collect();
                futures_util::future::join_all(names.iter().map(|name| self.bridge.refresh(name))).await;
            }
        }
        document(&crate::status::of(&self.bridge))
    }

    async fn tools(&self, server: Option<ServerName>) -> BridgeResult<Box<RawValue>> {
        match &server {
            Some(server) => drop(self.bridge.first_start_of(server.as_str(), LISTING_WAITS).await),
            None => drop(self.bridge.first_starts(LISTING_WAITS).await),
        }
        document(&Listing::of(&self.bridge, server.as_ref()))
    }

    async fn watch(&self, writer: &mut OwnedWriteHalf) -> io::Result<()> {
        let pattern = TopicPattern::parse("provider.mcp.#").expect("it is a pattern");
        let mut changes = self.bus.subscribe(pattern, SubscribeOptions::default());
        say(writer, document(&crate::status::of(&self.bridge))).await?;
        while let Some(told) = changes.next().await {
            let is_call = matches!(&told, Told::Message(message) if message.topic.as_str().starts_with("provider.mcp.tool."));
            if !is_call {
                say(writer, document(&crate::status::of(&self.bridge))).await?;
            }
        }
        Ok(())
    }

    async fn events(&self, params: Params, writer: &mut OwnedWriteHalf) -> io::Result<()> {
        let pattern = match TopicPattern::parse(params.pattern.as_deref().unwrap_or("#")) {
            Ok(pattern) => pattern,
            Err(error) => return say(writer, Err(misunderstood(error))).await,
        };
        let options = SubscribeOptions { replay: params.replay, ..SubscribeOptions::default() };
        let mut events = self.bus.subscribe(pattern, options);
        while let Some(told) = events.next().await {
            let line = match told {
                Told::Message(message) => document(&*message.envelope),
                Told::Lost(count) => document(&serde_json::json!({ "lost": count })),
            };
            say(writer, line).await?;
        }
        Ok(())
    }
}
