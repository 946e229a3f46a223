//! The bridge's side of the control socket: lets in who knows the token, and answers.

use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bascule_bus::{EmbeddedBus, SubscribeOptions, SubscriptionItem, TopicPattern};
use bascule_model::{
    BridgeError, BridgeResult, CallRequest, CallTimeout, CorrelationId, Delivery, ErrorCode, ProviderAdapter,
    ServerName, ToolId,
};
use serde::{Deserialize, Serialize};
use serde_json::value::{RawValue, to_raw_value};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::unix::OwnedWriteHalf;
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::{debug, warn};

use super::ask::{ListedTool, Listing, RunningBridge};
use super::{LONGEST_QUESTION, Place, Question, Reply, What};
use crate::McpBridgeAdapter;

/// Who opens the door has so long to show the token, and then to say what for.
const TOKEN_WITHIN: Duration = Duration::from_secs(2);
const QUESTION_WITHIN: Duration = Duration::from_secs(10);
/// No line that may be a token is longer.
const LONGEST_TOKEN: u64 = 128;
/// A listing waits so long for servers that are still starting.
const LISTING_WAITS: Duration = Duration::from_secs(30);
/// How long the last ones may take to hear their answer.
const FAREWELL: Duration = Duration::from_secs(1);
/// So many may be inside at once; the next one waits outside.
const MOST_VISITORS: usize = 64;
/// So many may be about to show the token. A server that knows the socket can be all of them, so they take no place
/// from anybody; the next one is turned away.
const MOST_STRANGERS: usize = 512;

/// An open door. Dropped, it is closed and taken away.
pub(crate) struct Door {
    place: Place,
    tasks: TaskTracker,
    /// Nobody comes in any more.
    shut: CancellationToken,
    /// Nobody stays.
    stop: CancellationToken,
    _claim: Claim,
}

/// The right to open a door at a place; nobody else has it meanwhile.
pub(crate) struct Claim(#[allow(dead_code, reason = "held, not used")] std::fs::File);

/// What visitors are let see.
struct House {
    bridge: Arc<McpBridgeAdapter>,
    bus: Arc<EmbeddedBus>,
    token: String,
    config: PathBuf,
    shut: CancellationToken,
    visitors: Semaphore,
    /// Those who stay to hear more take no place from those who come to do something.
    followers: Semaphore,
    strangers: Arc<Semaphore>,
}

impl Door {
    /// Takes the place of a door; fails if another bridge serves the same file.
    pub(crate) async fn claim(place: &Place) -> io::Result<Claim> {
        match place.take() {
            Ok(lock) => Ok(Claim(lock)),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                let other = RunningBridge::at(place)
                    .await
                    .map_or_else(String::new, |other| format!(" (process {})", other.pid));
                let said = format!("a bridge for {} runs already{other}", place.config.display());
                Err(io::Error::new(io::ErrorKind::AddrInUse, said))
            }
            Err(error) => Err(error),
        }
    }

    /// Opens it. What another bridge left here goes.
    pub(crate) fn open(
        place: Place,
        claim: Claim,
        bridge: Arc<McpBridgeAdapter>,
        bus: Arc<EmbeddedBus>,
    ) -> io::Result<Self> {
        place.clear();
        let token = fresh_token()?;
        place.leave_token(&token)?;
        let listener = UnixListener::bind(place.socket())?;
        std::fs::set_permissions(place.socket(), std::fs::Permissions::from_mode(0o600))?;
        let (tasks, shut, stop) = (TaskTracker::new(), CancellationToken::new(), CancellationToken::new());
        let (visitors, strangers) = (Semaphore::new(MOST_VISITORS), Arc::new(Semaphore::new(MOST_STRANGERS)));
        let config = place.config.clone();
        let followers = Semaphore::new(MOST_VISITORS);
        let house = Arc::new(House {
            bridge,
            bus,
            token,
            config,
            shut: shut.clone(),
            visitors,
            followers,
            strangers,
        });
        tasks.spawn(receive(listener, house, tasks.clone(), stop.clone()));
        Ok(Self { place, tasks, shut, stop, _claim: claim })
    }

    /// Lets nobody in any more, and ends what would go on for ever. Who waits for an answer may stay for it.
    pub(crate) fn shut(&self) {
        self.shut.cancel();
    }

    /// Waits until the last visitor has left; who does not take the answer is shown out.
    pub(crate) async fn close(&self) {
        self.shut();
        self.tasks.close();
        let _ = timeout(FAREWELL, self.tasks.wait()).await;
        self.stop.cancel();
        self.tasks.wait().await;
    }
}

impl Drop for Door {
    fn drop(&mut self) {
        self.shut.cancel();
        self.stop.cancel();
        self.place.clear();
    }
}

/// Without the system's random_u64 there is no secret, and without a secret no door.
fn fresh_token() -> io::Result<String> {
    let mut bits = [0; 16];
    getrandom::fill(&mut bits)
        .map_err(|error| io::Error::other(format!("no random_u64 to make a token from: {error}")))?;
    Ok(format!("{:032x}", u128::from_ne_bytes(bits)))
}

async fn receive(listener: UnixListener, house: Arc<House>, tasks: TaskTracker, stop: CancellationToken) {
    while let Some(arrived) = house.shut.run_until_cancelled(listener.accept()).await {
        match arrived {
            Ok((stream, _)) => {
                if is_our_own(&stream) {
                    continue;
                }
                let Ok(stranger) = house.strangers.clone().try_acquire_owned() else { continue };
                let (house, stop) = (house.clone(), stop.clone());
                tasks.spawn(async move {
                    let visit = stop.run_until_cancelled(visit(stream, stranger, &house)).await;
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

/// A server of ours has no business here, and is not given the time to try.
fn is_our_own(stream: &UnixStream) -> bool {
    let pid = stream.peer_cred().ok().and_then(|peer| peer.pid()).and_then(|pid| u32::try_from(pid).ok());
    // One in a container of its own has no number here; the token is all there is to go by.
    pid.is_some_and(|pid| pid > 0 && bascule_sandbox::may_be_descendant(pid))
}

/// One question and its answer. Who hangs up meanwhile is not answered, and what was asked is dropped.
async fn visit(stream: UnixStream, stranger: OwnedSemaphorePermit, house: &House) -> io::Result<()> {
    let (reader, mut writer) = stream.into_split();
    let mut reader = BufReader::new(reader);
    let token = line(&mut reader, LONGEST_TOKEN, TOKEN_WITHIN).await?;
    if !same(token.trim_ascii_end(), house.token.as_bytes()) {
        let said = "this is not the token of the bridge that runs here";
        return say(&mut writer, Err(BridgeError::new(ErrorCode::PolicyDenied, Delivery::NotSent, said)))
            .await;
    }
    drop(stranger);
    let question: Question =
        serde_json::from_slice(&line(&mut reader, LONGEST_QUESTION, QUESTION_WITHIN).await?)?;
    let places = match question.what {
        // A bridge that is busy is still the one that runs here.
        What::Identity => None,
        What::Events | What::Status => Some(&house.followers),
        _ => Some(&house.visitors),
    };
    let _inside = match places {
        Some(places) => Some(places.acquire().await),
        None => None,
    };
    let mut rest = [0; 1];
    tokio::select! {
        answered = house.answer(question, &mut writer) => answered,
        // Nothing more is expected: whatever comes, or the end, means that nobody listens any more.
        _ = reader.read(&mut rest) => Ok(()),
    }
}

async fn line(
    reader: &mut (impl AsyncBufReadExt + Unpin),
    most: u64,
    within: Duration,
) -> io::Result<Vec<u8>> {
    let mut line = Vec::new();
    timeout(within, reader.take(most).read_until(b'\n', &mut line)).await??;
    Ok(line)
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
    /// How much of that the caller had waited before it asked.
    #[serde(default)]
    waited_ms: u64,
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
        if question.what == What::Run {
            let answer = match serde_json::from_str(raw.get()) {
                Ok(request) => self.bridge.run_script(request).await.and_then(|outcome| document(&outcome)),
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
            What::Status | What::Events | What::Call | What::Run => {
                document(&crate::status::of(&self.bridge))
            }
        }
    }

    async fn call(&self, params: CallParams) -> BridgeResult<Box<RawValue>> {
        let since = Instant::now();
        let since = since.checked_sub(Duration::from_millis(params.waited_ms)).unwrap_or(since);
        let timeout =
            params.timeout_ms.map(|millis| CallTimeout { since, duration: Duration::from_millis(millis) });
        let request = CallRequest { tool: params.tool, arguments: params.arguments, timeout };
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
        while let Some(Some(told)) = self.shut.run_until_cancelled(changes.next()).await {
            let is_call = matches!(&told, SubscriptionItem::Message(message) if message.topic.as_str().starts_with("provider.mcp.tool."));
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
        while let Some(Some(told)) = self.shut.run_until_cancelled(events.next()).await {
            let line = match told {
                SubscriptionItem::Message(message) => document(&*message.envelope),
                SubscriptionItem::Lost(count) => document(&serde_json::json!({ "lost": count })),
            };
            say(writer, line).await?;
        }
        Ok(())
    }
}
