//! The time of a message, to the millisecond, written as RFC 3339 in UTC. Reads no clock.

use std::fmt;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use jiff::civil::{DateTime, date};
use jiff::fmt::temporal::Pieces;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Civil time, not `jiff::Timestamp`: that one ends a day before the end of 9999.
const EPOCH: DateTime = date(1970, 1, 1).at(0, 0, 0, 0);
/// The last millisecond of 9999, the last year of RFC 3339.
const MAX_MILLIS: u64 = 253_402_300_799_999;

/// The text is not a valid timestamp.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("invalid timestamp: expected RFC 3339, such as `2026-03-01T12:00:00.000Z`, between 1970 and 9999")]
pub struct TimestampError;

/// A time between 1970 and 9999, to the millisecond.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Timestamp(u64);

impl Timestamp {
    /// Times after 9999 become the last millisecond of 9999.
    pub fn from_unix_millis(millis: u64) -> Self {
        Self(millis.min(MAX_MILLIS))
    }

    pub fn unix_millis(self) -> u64 {
        self.0
    }

    /// Parses RFC 3339 with any offset and any fraction of a second; truncates to milliseconds.
    pub fn parse(text: &str) -> Result<Self, TimestampError> {
        let millis = parse_unix_millis(text).filter(|millis| *millis <= MAX_MILLIS);
        millis.map(Self).ok_or(TimestampError)
    }
}

impl From<SystemTime> for Timestamp {
    /// Times before 1970 become the beginning of 1970.
    fn from(time: SystemTime) -> Self {
        let since = time.duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO);
        Self::from_unix_millis(u64::try_from(since.as_millis()).unwrap_or(MAX_MILLIS))
    }
}

impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.3}Z", EPOCH + Duration::from_millis(self.0))
    }
}

impl fmt::Debug for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

impl Serialize for Timestamp {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Timestamp {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Self::parse(&String::deserialize(deserializer)?).map_err(serde::de::Error::custom)
    }
}

fn parse_unix_millis(text: &str) -> Option<u64> {
    let pieces = Pieces::parse(text).ok()?;
    let local = DateTime::from_parts(pieces.date(), pieces.time()?);
    let offset = i128::from(pieces.to_numeric_offset()?.seconds());
    // `jiff` reads a leap second, `:60`, as `:59`. Here it is the first second of the next minute.
    let leap = i128::from(text.get(16..19) == Some(":60"));
    let millis = local.duration_since(EPOCH).as_nanos().div_euclid(1_000_000);
    u64::try_from(millis + (leap - offset) * 1000).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const DAY: u64 = 24 * 60 * 60 * 1000;

    fn check(millis: u64, text: &str) {
        assert_eq!(Timestamp::from_unix_millis(millis).to_string(), text);
        assert_eq!(Timestamp::parse(text), Ok(Timestamp(millis)));
    }

    // req: BU-03
    #[test]
    fn formats_utc_with_milliseconds() {
        check(0, "1970-01-01T00:00:00.000Z");
        check(951_868_799_999, "2000-02-29T23:59:59.999Z");
        check(1_709_164_800_000, "2024-02-29T00:00:00.000Z");
        check(1_735_689_599_001, "2024-12-31T23:59:59.001Z");
        check(4_107_542_400_000, "2100-03-01T00:00:00.000Z");
        check(MAX_MILLIS, "9999-12-31T23:59:59.999Z");
        assert_eq!(Timestamp::from_unix_millis(u64::MAX), Timestamp(MAX_MILLIS));
    }

    fn days_in(year: u64, month: u64) -> u64 {
        let leap = year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400));
        match month {
            2 if leap => 29,
            2 => 28,
            4 | 6 | 9 | 11 => 30,
            _ => 31,
        }
    }

    /// 400 years contain every kind of leap year.
    #[test]
    fn formats_every_day_of_400_years() {
        let mut expected = (1970, 1, 1);
        for day in 0..146_097 {
            let (year, month, day_of_month) = expected;
            assert_eq!(
                Timestamp(day * DAY).to_string(),
                format!("{year:04}-{month:02}-{day_of_month:02}T00:00:00.000Z")
            );
            expected = match (month, day_of_month == days_in(year, month)) {
                (_, false) => (year, month, day_of_month + 1),
                (12, true) => (year + 1, 1, 1),
                (_, true) => (year, month + 1, 1),
            };
        }
        assert_eq!(expected, (2370, 1, 1));
    }

    #[test]
    fn parses_other_spellings() {
        let noon = Timestamp::parse("2024-02-29T12:00:00Z");
        for same in
            ["2024-02-29T12:00:00.000999Z", "2024-02-29t14:30:00+02:30", "2024-02-28T23:00:00.0-13:00"]
        {
            assert_eq!(Timestamp::parse(same), noon, "{same}");
        }
        assert_eq!(Timestamp::parse("2024-02-29T12:00:00.5Z").unwrap().0 % 1000, 500);
        assert_eq!(Timestamp::parse("2016-12-31T23:59:60Z"), Timestamp::parse("2017-01-01T00:00:00Z"));
    }

    #[test]
    fn refuses_invalid_timestamps() {
        for text in [
            "",
            "now",
            "2024-02-29",
            "2024-02-29T12:00:00",
            "2023-02-29T12:00:00Z",
            "2024-13-01T12:00:00Z",
            "2024-00-01T12:00:00Z",
            "2024-01-01T24:00:00Z",
            "2024-01-01T12:00:00.Z",
            "2024-01-01T12:00:00ZZ",
            "2024-01-01T12:00:00+1:00",
            "+024-01-01T12:00:00Z",
            "1969-12-31T23:59:59Z",
            "1969-12-31T23:59:59.9999Z",
            "1970-01-01T00:00:00+01:00",
            "9999-12-31T23:59:59-01:00",
            "2024-01-01é12:00:00Z",
        ] {
            assert_eq!(Timestamp::parse(text), Err(TimestampError), "{text}");
        }
    }

    #[test]
    fn clamps_clock_before_1970() {
        assert_eq!(Timestamp::from(UNIX_EPOCH - Duration::from_secs(1)), Timestamp(0));
        assert_eq!(Timestamp::from(UNIX_EPOCH + Duration::from_micros(1999)), Timestamp(1));
    }

    proptest! {
        // req: BU-03
        #[test]
        fn round_trips_and_sorts_like_its_text(one in 0..=MAX_MILLIS, other in 0..=MAX_MILLIS) {
            let (one, other) = (Timestamp(one), Timestamp(other));
            prop_assert_eq!(Timestamp::parse(&one.to_string()), Ok(one));
            prop_assert_eq!(one.to_string().cmp(&other.to_string()), one.cmp(&other));
        }

        #[test]
        fn parses_or_refuses_any_text(text in "[0-9T:.Zé+-]{0,30}") {
            let _ = Timestamp::parse(&text);
        }
    }
}
