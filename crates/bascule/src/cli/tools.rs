//! `bascule tools [SERVER]`: the catalog.

use std::process::ExitCode;

use bascule_model::BridgeError;

use super::failure::Failure;
use super::output::Output;
use super::session::Session;
use super::terminal::{clean_line, pad};

#[derive(Debug, clap::Args)]
pub(crate) struct Tools {
    /// Only this server's tools
    server: Option<String>,
}

/// How much of a description fits on its line.
const SHOWN: usize = 90;

impl Tools {
    pub(crate) async fn run(self, session: Session, output: &Output) -> Result<ExitCode, Failure> {
        let server = self.server.as_deref().map(|name| session.server(name)).transpose()?;
        let server = server.map(|server| server.name.clone());
        let wanted = server.as_ref().map_or(session.settings.servers.len(), |_| 1);
        let only = server.clone().map(|server| vec![server]);
        session
            .with_bridge(only, output, async |bridge| {
                let (tools, missing) = bridge.tools(server.as_ref()).await?;
                say_what_is_missing(&missing, output);
                // Where nothing could be started there is no catalog to show, and the first reason is the answer.
                if let (true, Some(error)) = (missing.len() == wanted, missing.into_iter().next()) {
                    return Err(Failure::Bridge(Box::new(error)));
                }
                if output.json {
                    output.document(&tools.iter().map(|tool| &**tool).collect::<Vec<_>>());
                    return Ok(ExitCode::SUCCESS);
                }
                let names: Vec<String> = tools.iter().map(|tool| clean_line(tool.id().as_str())).collect();
                let width = names.iter().map(|name| name.chars().count()).max().unwrap_or(0);
                for (tool, name) in tools.iter().zip(&names) {
                    let name = pad(name, width);
                    let about = first_line(tool.definition().description.as_deref().unwrap_or_default());
                    output.line(format!("{}  {about}", output.paint.strong(&name)).trim_end());
                }
                Ok(ExitCode::SUCCESS)
            })
            .await
    }
}

fn say_what_is_missing(missing: &[BridgeError], output: &Output) {
    for error in missing {
        output.remark(&format!("{} {}", output.aside.bad("missing:"), clean_line(&error.message)));
    }
}

fn first_line(text: &str) -> String {
    let line = clean_line(text.trim().lines().next().unwrap_or_default());
    match line.chars().count() > SHOWN {
        true => format!("{}…", line.chars().take(SHOWN).collect::<String>().trim_end()),
        false => line,
    }
}
