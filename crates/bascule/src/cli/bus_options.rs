//! The bus that a command uses: from its options, else from the configuration.

use bascule_bus::{AgentName, BusKind, BusOptions, BusUrl};

use super::context::{CommandContext, trusted_settings};
use super::error::{CommandError, CommandResult};
use super::printer::Printer;
use crate::config::BusSettings;

/// The options of commands that use the bus.
#[derive(Debug, clap::Args)]
pub(crate) struct BusArguments {
    /// Use the bus at this address instead of the configured one: nats://HOST:PORT, tls://HOST:PORT, amqp://HOST:PORT
    #[arg(long, value_name = "URL", value_parser = read_url)]
    pub(crate) bus: Option<BusUrl>,
}

impl BusArguments {
    /// Returns the connection to the bus.
    pub(crate) fn connection(&self, settings: &BusSettings, name: &str) -> CommandResult<BusOptions> {
        let missing = "name the bus with `--bus URL`, or in the configuration with `bascule.bus.url`";
        let url = self.bus.clone().or_else(|| settings.url.clone());
        let url = url.ok_or_else(|| CommandError::Usage(missing.into()))?;
        require_broker(&url)?;
        Ok(settings.connection(url, name.to_owned()))
    }
}

/// The bus inside a process reaches nobody else, and a program may be built without a broker.
fn require_broker(url: &BusUrl) -> CommandResult<()> {
    let missing = match url.kind() {
        BusKind::Embedded => {
            let message =
                "the embedded bus is inside one program: name a broker, such as `nats://127.0.0.1:4222`";
            return Err(CommandError::Usage(message.into()));
        }
        BusKind::Nats if cfg!(not(feature = "nats")) => ("nats", "nats"),
        BusKind::RabbitMq if cfg!(not(feature = "rabbitmq")) => ("amqp", "rabbitmq"),
        BusKind::Nats | BusKind::RabbitMq => return Ok(()),
    };
    let (scheme, feature) = missing;
    Err(CommandError::Usage(bascule_bus::BusError::NotBuilt { scheme, feature }.to_string()))
}

pub(crate) fn read_url(text: &str) -> Result<BusUrl, String> {
    BusUrl::parse(text).map_err(|error| error.to_string())
}

pub(crate) fn read_agent(text: &str) -> Result<AgentName, String> {
    AgentName::parse(text).map_err(|error| error.to_string())
}

/// Returns the settings of the bus. With `--bus` no configuration is needed; a trusted one gives the credentials.
pub(crate) fn bus_settings(
    arguments: &BusArguments,
    find: impl Fn() -> CommandResult<CommandContext>,
    printer: &Printer,
) -> CommandResult<BusSettings> {
    if arguments.bus.is_some() {
        let found = find().ok().and_then(|context| trusted_settings(&context.location));
        return Ok(found.map(|settings| settings.bridge.bus).unwrap_or_default());
    }
    let context = find()?;
    let config = context.load(printer)?;
    // Its address may be anybody's, and credentials would be sent there.
    context.require_trust(&config, false, printer)?;
    Ok(config.settings.bridge.bus)
}
