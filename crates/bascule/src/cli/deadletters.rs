//! `bascule deadletters`: looks at messages that no bridge could handle, and queues them again.

use std::collections::HashSet;
use std::num::NonZeroUsize;
use std::process::ExitCode;

use bascule_bus::{Bus, BusError, DeadLetter, DeadLetterId, SharedTopics, StoredDeadLetter, Topic};
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use serde_json::{Value, json};

use super::bus_options::{BusArguments, broker_error, bus_error, bus_settings};
use super::context::CommandContext;
use super::error::{CommandError, CommandResult};
use super::printer::Printer;
use super::terminal::sanitize_line;
use crate::fleet::server_log::format_count;
use crate::normalise::error_chain;

/// The most letters that a command looks at.
const MAX_LETTERS: usize = 10_000;

/// List, show and requeue messages that no bridge could handle
#[derive(Debug, clap::Args)]
pub(crate) struct DeadLetters {
    #[command(subcommand)]
    command: DeadLettersCommand,
}

#[derive(Debug, clap::Subcommand)]
enum DeadLettersCommand {
    /// List the dead letters, oldest first
    List {
        #[command(flatten)]
        bus: BusArguments,
        /// List at most N
        #[arg(long, value_name = "N", default_value = "100")]
        limit: NonZeroUsize,
    },
    /// Print one dead letter with its message
    Show {
        /// The id that `list` prints
        id: String,
        #[command(flatten)]
        bus: BusArguments,
    },
    /// Publish a message to its topic again, and remove its dead letter
    Requeue {
        #[command(flatten)]
        selection: Selection,
        #[command(flatten)]
        bus: BusArguments,
    },
}

/// One dead letter, or all.
#[derive(Debug, clap::Args)]
#[group(required = true, multiple = false)]
struct Selection {
    /// The id that `list` prints
    id: Option<String>,
    /// Queue all dead letters again
    #[arg(long)]
    all: bool,
}

impl DeadLetters {
    pub(crate) async fn run(
        self,
        find: impl Fn() -> CommandResult<CommandContext>,
        printer: &Printer,
    ) -> CommandResult {
        let (DeadLettersCommand::List { bus, .. }
        | DeadLettersCommand::Show { bus, .. }
        | DeadLettersCommand::Requeue { bus, .. }) = &self.command;
        let options = bus.connection(&bus_settings(bus, find, printer)?, "bascule deadletters")?;
        let bus = Bus::connect(&options).await.map_err(bus_error)?;
        let ended = match self.command {
            DeadLettersCommand::List { limit, .. } => list(&bus, limit.get(), printer).await,
            DeadLettersCommand::Show { id, .. } => show(&bus, &id, printer).await,
            DeadLettersCommand::Requeue { selection, .. } => match selection.id {
                Some(id) => requeue(&bus, &id, printer).await,
                None => requeue_all(&bus, printer).await,
            },
        };
        bus.close().await;
        ended
    }
}

async fn list(bus: &Bus, limit: usize, printer: &Printer) -> CommandResult {
    let letters = bus.dead_letters(limit.min(MAX_LETTERS)).await.map_err(bus_error)?;
    if printer.json {
        printer.print_json(&letters.iter().map(|letter| to_json(letter, false)).collect::<Vec<_>>());
        return Ok(ExitCode::SUCCESS);
    }
    if letters.is_empty() {
        printer.print_note("no dead letters: every message was handled");
    }
    let width = letters.iter().map(|letter| letter.id.0.len()).max().unwrap_or(0);
    for StoredDeadLetter { id, time, letter } in &letters {
        let id = format!("{:>width$}", sanitize_line(&id.0));
        let (topic, reason) = (sanitize_line(&letter.topic), sanitize_line(&letter.reason));
        let time = printer.style.dim(&time.to_string());
        printer.print_line(&format!("{}  {time}  {topic}  {reason}", printer.style.bold(&id)));
    }
    if letters.len() == limit {
        printer.print_note("there may be more: use `--limit`");
    }
    Ok(ExitCode::SUCCESS)
}

async fn show(bus: &Bus, id: &str, printer: &Printer) -> CommandResult {
    let letter = find(bus, id).await?;
    if printer.json {
        printer.print_json(&to_json(&letter, true));
        return Ok(ExitCode::SUCCESS);
    }
    let StoredDeadLetter { id, time, letter } = letter;
    for (name, value) in [
        ("id", sanitize_line(&id.0)),
        ("time", time.to_string()),
        ("topic", sanitize_line(&letter.topic)),
        ("reason", sanitize_line(&letter.reason)),
    ] {
        printer.print_line(&format!("{}  {value}", printer.style.dim(&format!("{name:<6}"))));
    }
    if let Some(bytes) = letter.original_bytes {
        printer.print_note(&format!("the message had {bytes} bytes: only its beginning was kept"));
    }
    let form = if letter.base64 { "message (base64)" } else { "message" };
    printer.print_line(&printer.style.dim(form));
    printer.print_line(&sanitize_line(&letter.message));
    Ok(ExitCode::SUCCESS)
}

async fn requeue(bus: &Bus, id: &str, printer: &Printer) -> CommandResult {
    let letter = find(bus, id).await?;
    requeue_letter(bus, &letter).await?;
    if printer.json {
        printer.print_json(&json!({ "requeued": [letter.id.0], "failed": [] }));
    } else {
        printer.print_line(&format!("queued on `{}` again", sanitize_line(&letter.letter.topic)));
    }
    Ok(ExitCode::SUCCESS)
}

async fn requeue_all(bus: &Bus, printer: &Printer) -> CommandResult {
    let letters = bus.dead_letters(MAX_LETTERS).await.map_err(bus_error)?;
    let (mut requeued, mut failed) = (Vec::new(), Vec::new());
    let mut full_topics = HashSet::new();
    for letter in &letters {
        let result = match full_topics.contains(&*letter.letter.topic) {
            true => Err(RequeueError::Publish { id: letter.id.0.clone(), source: BusError::Full }),
            false => requeue_letter(bus, letter).await,
        };
        let Err(error) = result else {
            requeued.push(letter.id.0.as_str());
            continue;
        };
        let cause = error_chain(&error);
        printer.print_note(&sanitize_line(&cause));
        failed.push(json!({ "id": letter.id.0, "cause": cause }));
        match error.bus_error() {
            Some(BusError::Full) => {
                full_topics.insert(&*letter.letter.topic);
            }
            // Each of the others would wait for the broker in vain.
            Some(BusError::Connect { .. } | BusError::Timeout { .. } | BusError::Closed) => {
                printer.print_note("the other dead letters stay: the broker does not respond");
                break;
            }
            Some(_) | None => {}
        }
    }
    print_requeued(&requeued, &failed, printer);
    Ok(if failed.is_empty() { ExitCode::SUCCESS } else { ExitCode::from(3) })
}

fn print_requeued(requeued: &[&str], failed: &[Value], printer: &Printer) {
    if printer.json {
        printer.print_json(&json!({ "requeued": requeued, "failed": failed }));
    } else if requeued.is_empty() && failed.is_empty() {
        printer.print_note("no dead letters: nothing to queue");
    } else {
        printer.print_line(&format!("{} queued again", format_count(requeued.len(), "message")));
    }
}

/// The reason why a dead letter is not queued again.
#[derive(Debug, thiserror::Error)]
enum RequeueError {
    #[error("dead letter `{id}` cannot be queued again: {reason}")]
    Letter { id: String, reason: String },
    #[error("could not queue dead letter `{id}` again")]
    Publish { id: String, source: BusError },
    #[error("the message of dead letter `{id}` was queued again, but the letter could not be removed")]
    Remove { id: String, source: BusError },
}

impl RequeueError {
    fn bus_error(&self) -> Option<&BusError> {
        match self {
            Self::Letter { .. } => None,
            Self::Publish { source, .. } | Self::Remove { source, .. } => Some(source),
        }
    }
}

impl From<RequeueError> for CommandError {
    fn from(error: RequeueError) -> Self {
        match &error {
            RequeueError::Letter { .. } => Self::Usage(error.to_string()),
            RequeueError::Publish { source, .. } | RequeueError::Remove { source, .. } => {
                Self::Bridge(broker_error(source, error_chain(&error)))
            }
        }
    }
}

/// Publishes the message before it removes the letter: a failure in between leaves both, and loses none.
async fn requeue_letter(bus: &Bus, stored: &StoredDeadLetter) -> Result<(), RequeueError> {
    let id = || stored.id.0.clone();
    let (topic, message) =
        read_request(&stored.letter).map_err(|reason| RequeueError::Letter { id: id(), reason })?;
    let published = bus.publish_bytes(&topic, &message).await;
    published.map_err(|source| RequeueError::Publish { id: id(), source })?;
    let removed = bus.remove_dead_letter(&stored.id).await;
    removed.map(drop).map_err(|source| RequeueError::Remove { id: id(), source })
}

/// Returns the request in a dead letter with its topic.
fn read_request(letter: &DeadLetter) -> Result<(Topic, Vec<u8>), String> {
    if let Some(bytes) = letter.original_bytes {
        return Err(format!("of its {bytes} bytes only the beginning was kept"));
    }
    let topic = Topic::parse(&letter.topic).map_err(|error| error.to_string())?;
    // Whoever may publish dead letters has chosen the topic.
    if topic.as_str() != SharedTopics::REQUESTS && !topic.as_str().starts_with("tool.invoke.mcp.") {
        return Err(format!("it came from `{topic}`, and only requests can be queued again"));
    }
    let message = match letter.base64 {
        true => BASE64_STANDARD.decode(&letter.message).map_err(|error| error.to_string())?,
        false => letter.message.clone().into_bytes(),
    };
    Ok((topic, message))
}

async fn find(bus: &Bus, id: &str) -> CommandResult<StoredDeadLetter> {
    let letters = bus.dead_letters(MAX_LETTERS).await.map_err(bus_error)?;
    let missing = || {
        CommandError::Usage(format!("there is no dead letter `{id}`: `bascule deadletters list` shows them"))
    };
    letters.into_iter().find(|letter| letter.id == DeadLetterId(id.to_owned())).ok_or_else(missing)
}

fn to_json(StoredDeadLetter { id, time, letter }: &StoredDeadLetter, has_message: bool) -> Value {
    let mut json = json!({ "id": id.0, "time": time, "topic": letter.topic, "reason": letter.reason });
    if has_message {
        json["message"] = letter.message.clone().into();
        json["base64"] = letter.base64.into();
        json["originalBytes"] = letter.original_bytes.into();
    }
    json
}
