//! The limits of a proxy.

use std::time::Duration;

/// The limits of a [`McpToolProxy`](crate::McpToolProxy).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProxyOptions {
    /// A call without an answer fails after this time. Default: 60 s.
    pub timeout: Duration,
    /// The time-out of the agent's bridge for one call (`bascule.bus.timeoutMs`). It must be shorter than `timeout`, so that the
    /// bridge's answer comes before the proxy gives up. Default: 30 s.
    pub bridge_timeout: Duration,
    /// The calls that wait for an answer at once. More are refused. Default: 1,000.
    pub max_pending: usize,
    /// The largest result in bytes. Default: 64 MiB.
    pub max_result_bytes: usize,
    /// The bytes of all results that arrive in parts and are incomplete. Default: 256 MiB.
    pub max_held_bytes: usize,
}

impl Default for ProxyOptions {
    fn default() -> Self {
        Self {
            timeout: Duration::from_secs(60),
            bridge_timeout: Duration::from_secs(30),
            max_pending: 1_000,
            max_result_bytes: 64 << 20,
            max_held_bytes: 256 << 20,
        }
    }
}

/// The options contradict each other.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ProxyOptionsError {
    #[error(
        "the agent's time-out ({agent_ms} ms) must be longer than the bridge's ({bridge_ms} ms): otherwise the agent gives up calls that the bridge still runs"
    )]
    TimeoutTooShort { agent_ms: u128, bridge_ms: u128 },
    #[error("`{0}` must not be zero")]
    Zero(&'static str),
}

impl ProxyOptions {
    pub(crate) fn check(&self) -> Result<(), ProxyOptionsError> {
        if self.timeout <= self.bridge_timeout {
            let (agent_ms, bridge_ms) = (self.timeout.as_millis(), self.bridge_timeout.as_millis());
            return Err(ProxyOptionsError::TimeoutTooShort { agent_ms, bridge_ms });
        }
        let sizes = [
            ("max_pending", self.max_pending),
            ("max_result_bytes", self.max_result_bytes),
            ("max_held_bytes", self.max_held_bytes),
        ];
        match sizes.into_iter().find(|(_, size)| *size == 0) {
            Some((name, _)) => Err(ProxyOptionsError::Zero(name)),
            None => Ok(()),
        }
    }

    /// The time in which the bridge must answer, so that the answer arrives before the proxy gives up.
    pub(crate) fn time_to_answer(&self) -> Duration {
        const TRAVEL: Duration = Duration::from_secs(2);
        self.timeout - TRAVEL.min((self.timeout - self.bridge_timeout) / 2)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // req: BU-08
    #[test]
    fn refuses_a_time_out_that_is_not_longer_than_the_bridges() {
        assert_eq!(ProxyOptions::default().check(), Ok(()));
        for seconds in [30, 29] {
            let options = ProxyOptions { timeout: Duration::from_secs(seconds), ..ProxyOptions::default() };
            let error = options.check().unwrap_err().to_string();
            let expected =
                format!("the agent's time-out ({seconds}000 ms) must be longer than the bridge's (30000 ms)");
            assert!(error.starts_with(&expected), "{error}");
        }
    }

    #[test]
    fn refuses_limits_that_allow_nothing() {
        let options = ProxyOptions { max_pending: 0, ..ProxyOptions::default() };
        assert_eq!(options.check(), Err(ProxyOptionsError::Zero("max_pending")));
    }
}
