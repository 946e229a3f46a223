//! The time after `--since`: a duration before now, a date or a time.

use std::str::FromStr;
use std::time::{Duration, SystemTime};

/// Microseconds since 1970.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Since(pub(super) i64);

impl FromStr for Since {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let now =
            SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_micros() as i64;
        if let Some(before) = parse_duration(text) {
            return Ok(Self(now.saturating_sub(i64::try_from(before.as_micros()).unwrap_or(i64::MAX))));
        }
        if let Ok(time) = text.parse::<jiff::Timestamp>() {
            return Ok(Self(time.as_microsecond()));
        }
        let local = text
            .parse::<jiff::civil::DateTime>()
            .ok()
            .or_else(|| Some(text.parse::<jiff::civil::Date>().ok()?.into()));
        let zoned = local.and_then(|local| local.to_zoned(jiff::tz::TimeZone::system()).ok());
        zoned.map(|zoned| Self(zoned.timestamp().as_microsecond())).ok_or_else(|| {
            "write a duration (30s, 15m, 2h, 7d), a date, or a time like 2026-11-18T07:00:00Z".into()
        })
    }
}

fn parse_duration(text: &str) -> Option<Duration> {
    let digits = text.find(|c: char| !c.is_ascii_digit())?;
    let number: u64 = text[..digits].parse().ok()?;
    let seconds = match &text[digits..] {
        "s" => 1,
        "m" | "min" => 60,
        "h" => 3_600,
        "d" => 86_400,
        "w" => 7 * 86_400,
        _ => return None,
    };
    Some(Duration::from_secs(number.checked_mul(seconds)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    // req: TR-01
    #[test]
    fn reads_durations_dates_and_times() {
        assert_eq!(parse_duration("15m"), Some(Duration::from_secs(900)));
        assert_eq!("1970-01-01T00:00:01Z".parse(), Ok(Since(1_000_000)));
        assert!("2026-11-18".parse::<Since>().is_ok() && "2h".parse::<Since>().is_ok());
        for text in ["", "m", "5", "yesterday", "-5m", "99999999999999999999d"] {
            text.parse::<Since>().unwrap_err();
        }
    }
}
