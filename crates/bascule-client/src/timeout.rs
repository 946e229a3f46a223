//! Resolves a timeout: the option, else the environment, else thirty seconds.

use std::collections::HashMap;
use std::time::Duration;

pub(crate) const DEFAULT_TIMEOUT: Duration = Duration::from_millis(30_000);

/// In order of precedence.
const VARIABLES: [&str; 2] = ["BASCULE_MCP_TIMEOUT", "COLIBRI_MCP_TIMEOUT"];

/// An environment that replaces the one of the process.
pub type Environment = HashMap<String, String>;

/// An environment variable contains an invalid timeout.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{variable}` must be a positive number of milliseconds, is `{value}`")]
pub struct InvalidTimeout {
    pub variable: &'static str,
    pub value: String,
}

pub(crate) fn resolve_timeout(
    option: Option<Duration>,
    environment: Option<&Environment>,
) -> Result<Duration, InvalidTimeout> {
    if let Some(timeout) = option {
        return Ok(timeout);
    }
    let look_up = |variable: &str| match environment {
        Some(map) => map.get(variable).cloned(),
        None => std::env::var_os(variable).map(|value| value.to_string_lossy().into_owned()),
    };
    for variable in VARIABLES {
        if let Some(value) = look_up(variable) {
            return parse(variable, value);
        }
    }
    Ok(DEFAULT_TIMEOUT)
}

fn parse(variable: &'static str, value: String) -> Result<Duration, InvalidTimeout> {
    let digits = value.bytes().all(|b| b.is_ascii_digit());
    match value.parse::<u64>() {
        Ok(millis @ 1..) if digits => Ok(Duration::from_millis(millis)),
        _ => Err(InvalidTimeout { variable, value }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(variables: &[(&str, &str)], expected: Result<u64, &str>) {
        let environment = variables.iter().map(|(k, v)| (k.to_string(), v.to_string())).collect();
        let actual = resolve_timeout(None, Some(&environment))
            .map(|d| d.as_millis() as u64)
            .map_err(|e| e.to_string());
        assert_eq!(actual, expected.map_err(str::to_owned));
    }

    // req: CL-04
    #[test]
    fn reads_environment_else_uses_thirty_seconds() {
        check(&[], Ok(30_000));
        check(&[("BASCULE_MCP_TIMEOUT", "250")], Ok(250));
        check(&[("COLIBRI_MCP_TIMEOUT", "250")], Ok(250));
        check(&[("BASCULE_MCP_TIMEOUT", "1"), ("COLIBRI_MCP_TIMEOUT", "2")], Ok(1));
    }

    // req: CL-04
    #[test]
    fn refuses_values_that_are_not_positive_integers() {
        for value in ["0", "-1", "1.5", "1e3", "soon", "", " 5", "+5", "99999999999999999999999"] {
            let message =
                format!("`BASCULE_MCP_TIMEOUT` must be a positive number of milliseconds, is `{value}`");
            check(&[("BASCULE_MCP_TIMEOUT", value), ("COLIBRI_MCP_TIMEOUT", "2")], Err(&message));
        }
    }

    // req: CL-02
    #[test]
    fn option_wins_and_map_replaces_environment() {
        let broken = Environment::from([("BASCULE_MCP_TIMEOUT".into(), "soon".into())]);
        assert_eq!(resolve_timeout(Some(Duration::from_secs(1)), Some(&broken)), Ok(Duration::from_secs(1)));
        assert_eq!(resolve_timeout(None, Some(&Environment::new())), Ok(DEFAULT_TIMEOUT));
    }
}
