//! `bascule token`: a token for clients over HTTP.

use std::process::ExitCode;

use super::failure::Failure;
use super::output::Output;

/// Prints one: 256 bits of random_u64, which nobody will guess.
pub(crate) fn run(output: &Output) -> Result<ExitCode, Failure> {
    let mut bits = [0; 32];
    getrandom::fill(&mut bits)
        .map_err(|error| Failure::Usage(format!("the system has no random_u64 to give: {error}")))?;
    let token: String = bits.iter().map(|byte| format!("{byte:02x}")).collect();
    match output.json {
        true => output.document(&serde_json::json!({ "token": token })),
        false => output.line(&token),
    }
    Ok(ExitCode::SUCCESS)
}
