//! The bus that a command uses: from its options, else from the configuration.

use std::convert::Infallible;
use std::path::PathBuf;

use bascule_bus::{AgentName, BusCredentials, BusError, BusKind, BusOptions, BusUrl};
use bascule_model::{BridgeError, Delivery, ErrorCode, Secret};

use super::context::{CommandContext, trusted_settings};
use super::error::{CommandError, CommandResult};
use super::printer::Printer;
use crate::config::BusSettings;

/// The options of commands that use the bus.
#[derive(Debug, clap::Args)]
pub(crate) struct BusArguments {
    /// Use the bus at this address instead of the configured one: nats://HOST:PORT, tls://HOST:PORT (several
    /// joined by commas), amqp://HOST:PORT, amqps://HOST:PORT
    #[arg(long, value_name = "URL", value_parser = read_secret)]
    bus: Option<Secret<String>>,
    /// Authenticate to NATS with this .creds file instead of the configured credentials
    #[arg(long, value_name = "FILE", conflicts_with = "nkey_file")]
    creds: Option<PathBuf>,
    /// Authenticate to NATS with the NKey whose seed is in this file
    #[arg(long, value_name = "FILE")]
    nkey_file: Option<PathBuf>,
    /// Trust the certificates (PEM) in this file instead of the machine's own
    #[arg(long, value_name = "FILE")]
    ca_file: Option<PathBuf>,
}

/// The address is read later: an error of the command line would repeat it with its password.
fn read_secret(text: &str) -> Result<Secret<String>, Infallible> {
    Ok(Secret::new(text.to_owned()))
}

impl BusArguments {
    /// Returns true if any option is there.
    pub(crate) fn is_given(&self) -> bool {
        let files = [&self.creds, &self.nkey_file, &self.ca_file];
        self.bus.is_some() || files.into_iter().any(Option::is_some)
    }

    fn url(&self) -> CommandResult<Option<BusUrl>> {
        let url = self.bus.as_ref().map(|text| BusUrl::parse(text.reveal()));
        url.transpose().map_err(|error| CommandError::Usage(format!("wrong value of `--bus`: {error}")))
    }

    /// Returns the connection to the bus.
    pub(crate) fn connection(&self, settings: &BusSettings, name: &str) -> CommandResult<BusOptions> {
        let missing = "name the bus with `--bus URL`, or in the configuration with `bascule.bus.url`";
        let url = self.url()?.or_else(|| settings.url.clone());
        let url = url.ok_or_else(|| CommandError::Usage(missing.into()))?;
        require_broker(&url)?;
        let mut options = settings.connection(url, name.to_owned());
        if let Some(credentials) = self.credentials()? {
            options.credentials = credentials;
        }
        options.ca_file = self.ca_file.clone().or(options.ca_file);
        options.check().map_err(bus_error)?;
        Ok(options)
    }

    fn credentials(&self) -> CommandResult<Option<BusCredentials>> {
        let Some(file) = &self.nkey_file else {
            return Ok(self.creds.clone().map(BusCredentials::CredentialsFile));
        };
        let seed = std::fs::read_to_string(file)
            .map_err(|error| CommandError::Usage(format!("could not read `{}`: {error}", file.display())))?;
        Ok(Some(BusCredentials::NKey(Secret::new(seed.trim().to_owned()))))
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
    Err(bus_error(BusError::NotBuilt { scheme, feature }))
}

/// The broker is part of the bridge: its failure is the bridge's.
pub(crate) fn bus_error(error: BusError) -> CommandError {
    match error {
        BusError::NotBuilt { .. } | BusError::Unusable { .. } => CommandError::Usage(error.to_string()),
        _ => CommandError::Bridge(broker_error(&error, error.to_string())),
    }
}

/// Returns the normalised error of a broker's failure.
pub(crate) fn broker_error(error: &BusError, message: String) -> Box<BridgeError> {
    let code = ErrorCode::ProviderUnavailable;
    let mut bridge_error = BridgeError::new(code, Delivery::NotSent, message);
    bridge_error.retryable = error.is_retryable();
    if let BusError::Connect { .. } = error {
        bridge_error.hint = Some(CONNECT_HINT.into());
    }
    bridge_error
}

const CONNECT_HINT: &str = "check that the broker runs at this address, and that `bascule.bus` in the configuration has its `user` and \
    `password` (or `token`) and, with TLS and a private authority, `caFile`";

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

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Command {
        #[command(flatten)]
        bus: BusArguments,
    }

    // req: BU-01
    #[test]
    fn each_option_means_that_a_bus_is_wanted() {
        let is_given =
            |arguments: &[&str]| Command::parse_from(["serve"].iter().chain(arguments)).bus.is_given();
        assert!(!is_given(&[]));
        for option in ["--bus", "--creds", "--nkey-file", "--ca-file"] {
            assert!(is_given(&[option, "x"]), "{option}");
        }
    }
}
