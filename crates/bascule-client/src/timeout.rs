//! How long to wait: an option, else the environment, else thirty seconds (CL-04).

use std::collections::HashMap;
use std::time::Duration;

/// What holds where nobody says otherwise.
pub(crate) const DEFAULT: Duration = Duration::from_millis(30_000);

/// Ours, and the one that is read where ours is not set.
const VARIABLES: [&str; 2] = ["BASCULE_MCP_TIMEOUT", "COLIBRI_MCP_TIMEOUT"];

/// Replaces the process environment for configuration look-ups.
pub type Environment = HashMap<String, String>;

/// A time-out that is none.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{variable}` must be a positive number of milliseconds, is `{value}`")]
pub struct InvalidTimeout {
    /// Which variable.
    pub variable: &'static str,
    /// What stands in it.
    pub value: String,
}

/// The time-out in force.
pub(crate) fn resolve(
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
    Ok(DEFAULT)
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
        let got = resolve(None, Some(&environment)).map(|d| d.as_millis() as u64).map_err(|e| e.to_string());
        assert_eq!(got, expected.map_err(str::to_owned));
    }

    // req: CL-04
    #[test]
    fn thirty_seconds_unless_the_environment_says_otherwise() {
        check(&[], Ok(30_000));
        check(&[("BASCULE_MCP_TIMEOUT", "250")], Ok(250));
        check(&[("COLIBRI_MCP_TIMEOUT", "250")], Ok(250));
        check(&[("BASCULE_MCP_TIMEOUT", "1"), ("COLIBRI_MCP_TIMEOUT", "2")], Ok(1));
    }

    // req: CL-04
    #[test]
    fn what_is_no_positive_integer_is_a_clear_error() {
        for value in ["0", "-1", "1.5", "1e3", "soon", "", " 5", "+5", "99999999999999999999999"] {
            let said =
                format!("`BASCULE_MCP_TIMEOUT` must be a positive number of milliseconds, is `{value}`");
            check(&[("BASCULE_MCP_TIMEOUT", value), ("COLIBRI_MCP_TIMEOUT", "2")], Err(&said));
        }
    }

    // req: CL-02
    #[test]
    fn an_option_wins_and_a_map_replaces_the_environment() {
        let broken = Environment::from([("BASCULE_MCP_TIMEOUT".into(), "soon".into())]);
        assert_eq!(resolve(Some(Duration::from_secs(1)), Some(&broken)), Ok(Duration::from_secs(1)));
        assert_eq!(resolve(None, Some(&Environment::new())), Ok(DEFAULT));
    }
}
