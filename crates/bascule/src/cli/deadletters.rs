//! `bascule deadletters`: looks at messages that no bridge could handle, and queues them again.

use std::process::ExitCode;

use bascule_bus::{Bus, BusError, DeadLetterId, SharedTopics, StoredDeadLetter, Topic};
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use serde_json::{Value, json};

use super::bus_options::{BusArguments, bus_settings};
use super::context::CommandContext;
use super::error::{CommandError, CommandResult};
use super::printer::Printer;
use super::terminal::sanitize_line;
use crate::fleet::server_log::format_count;

/// The most letters that a command looks at.
const MAX_LETTERS: usize = 10_000;

/// Look at messages of the bus that could not be handled, and queue them again
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
        #[arg(long, value_name = "N", default_value_t = 100)]
        limit: usize,
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
        /// The id that `list` prints
        #[arg(required_unless_present = "all")]
        id: Option<String>,
        /// Queue all dead letters again
        #[arg(long, conflicts_with = "id")]
        all: bool,
        #[command(flatten)]
        bus: BusArguments,
    },
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
            DeadLettersCommand::List { limit, .. } => list(&bus, limit, printer).await,
            DeadLettersCommand::Show { id, .. } => show(&bus, &id, printer).await,
            DeadLettersCommand::Requeue { id: Some(id), .. } => requeue(&bus, &id, printer).await,
            DeadLettersCommand::Requeue { id: None, .. } => requeue_all(&bus, printer).await,
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
    requeue_letter(bus, &letter).await.map_err(CommandError::Usage)?;
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
    for letter in &letters {
        match requeue_letter(bus, letter).await {
            Ok(()) => requeued.push(letter.id.0.as_str()),
            Err(cause) => {
                printer.print_note(&sanitize_line(&cause));
                failed.push(json!({ "id": letter.id.0, "cause": cause }));
            }
        }
    }
    let code = if failed.is_empty() { ExitCode::SUCCESS } else { ExitCode::from(3) };
    if printer.json {
        printer.print_json(&json!({ "requeued": requeued, "failed": failed }));
    } else if letters.is_empty() {
        printer.print_note("no dead letters: nothing to queue");
    } else {
        printer.print_line(&format!("{} queued again", format_count(requeued.len(), "message")));
    }
    Ok(code)
}

/// Publishes the message before it removes the letter: a failure in between leaves both, and loses none.
async fn requeue_letter(
    bus: &Bus,
    StoredDeadLetter { id, letter, .. }: &StoredDeadLetter,
) -> Result<(), String> {
    let refused = |cause: String| format!("could not queue dead letter `{}` again: {cause}", id.0);
    if let Some(bytes) = letter.original_bytes {
        return Err(refused(format!("of its {bytes} bytes only the beginning was kept")));
    }
    let topic = Topic::parse(&letter.topic).map_err(|error| refused(error.to_string()))?;
    // Whoever may publish dead letters has chosen the topic.
    if topic.as_str() != SharedTopics::REQUESTS && !topic.as_str().starts_with("tool.invoke.mcp.") {
        return Err(refused(format!("it came from `{topic}`, and only requests can be queued again")));
    }
    let message = match letter.base64 {
        true => BASE64_STANDARD.decode(&letter.message).map_err(|error| refused(error.to_string()))?,
        false => letter.message.clone().into_bytes(),
    };
    bus.publish_bytes(&topic, &message).await.map_err(|error| refused(error.to_string()))?;
    bus.remove_dead_letter(id).await.map_err(|error| refused(error.to_string()))?;
    Ok(())
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

/// The broker is part of the bridge: its failure is the bridge's.
pub(super) fn bus_error(error: BusError) -> CommandError {
    use bascule_model::{BridgeError, Delivery, ErrorCode};
    match error {
        BusError::NotBuilt { .. } => CommandError::Usage(error.to_string()),
        _ => CommandError::Bridge(BridgeError::new(
            ErrorCode::ProviderUnavailable,
            Delivery::NotSent,
            error.to_string(),
        )),
    }
}
