//! When a message was made: a moment to the millisecond, written as RFC 3339 in UTC.
//!
//! It reads no clock; whoever makes a message brings the time.

use std::fmt;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// The last millisecond of the year 9999, beyond which RFC 3339 has no words.
const LAST: u64 = 253_402_300_799_999;
const DAY: u64 = 24 * 60 * 60 * 1000;
/// Days from the first of January of the year 1 to that of 1970.
const EPOCH: u64 = days_before(1970);

/// Why a piece of text is not a moment.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("a timestamp is written as `2026-03-01T12:00:00.000Z` and lies between 1970 and 9999")]
pub struct TimestampError;

/// A moment between 1970 and 9999, to the millisecond.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Timestamp(u64);

impl Timestamp {
    /// So many milliseconds after the beginning of 1970; what lies after 9999 becomes its last moment.
    pub fn from_unix_millis(millis: u64) -> Self {
        Self(millis.min(LAST))
    }

    /// Milliseconds since the beginning of 1970.
    pub fn unix_millis(self) -> u64 {
        self.0
    }

    /// Reads RFC 3339 with any offset and any fraction of a second; what is finer than a millisecond is cut.
    pub fn parse(text: &str) -> Result<Self, TimestampError> {
        let millis = read(text).filter(|millis| *millis <= LAST);
        millis.map(Self).ok_or(TimestampError)
    }
}

impl From<SystemTime> for Timestamp {
    /// A clock that stands before 1970 is wrong; its time becomes the beginning of 1970.
    fn from(time: SystemTime) -> Self {
        let since = time.duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO);
        Self::from_unix_millis(u64::try_from(since.as_millis()).unwrap_or(LAST))
    }
}

impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (year, month, day) = date(self.0 / DAY);
        let (seconds, millis) = (self.0 % DAY / 1000, self.0 % 1000);
        let (hour, minute, second) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
        write!(f, "{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{millis:03}Z")
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

/// Year, month and day of a day since the beginning of 1970.
fn date(day: u64) -> (u64, u64, u64) {
    let day = day + EPOCH;
    // 400 years have 146,097 days. Leap days do not fall evenly, so this is the year or one of the two before.
    let mut year = day * 400 / 146_097;
    while days_before(year + 1) <= day {
        year += 1;
    }
    let mut left = day - days_before(year);
    let mut month = 1;
    while left >= days_in(year, month) {
        left -= days_in(year, month);
        month += 1;
    }
    (year, month, left + 1)
}

/// Days from the first of January of the year 1 to that of `year`.
const fn days_before(year: u64) -> u64 {
    let past = year - 1;
    past * 365 + past / 4 - past / 100 + past / 400
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

/// Milliseconds since 1970, if the text is well formed and lies after that.
fn read(text: &str) -> Option<u64> {
    let (date, rest) = (text.get(..10)?, text.get(10..)?);
    let (time, rest) = (rest.strip_prefix(['T', 't'])?.get(..8)?, rest.get(9..)?);
    let (millis, offset) = fraction(rest)?;
    let local = read_date(date)? * DAY + read_time(time)? * 1000 + millis;
    local.checked_add_signed(-read_offset(offset)?)
}

/// The milliseconds of `.123456Z`, and what follows the digits. No point, no fraction.
fn fraction(text: &str) -> Option<(u64, &str)> {
    let Some(digits) = text.strip_prefix('.') else { return Some((0, text)) };
    let end = digits.find(|c: char| !c.is_ascii_digit()).filter(|end| *end > 0)?;
    let millis = format!("{:0<3}", &digits[..end.min(3)]);
    Some((millis.parse().ok()?, &digits[end..]))
}

/// Days since 1970 of `2026-03-01`.
fn read_date(text: &str) -> Option<u64> {
    let [year, month, day] = numbers(text, [4, 2, 2], '-')?;
    let legal = year >= 1970 && (1..=12).contains(&month) && (1..=days_in(year, month)).contains(&day);
    legal.then(|| {
        days_before(year) - EPOCH + (1..month).map(|month| days_in(year, month)).sum::<u64>() + day - 1
    })
}

/// Seconds of `12:30:59`. A leap second, `:60`, is the first of the next minute.
fn read_time(text: &str) -> Option<u64> {
    let [hour, minute, second] = numbers(text, [2, 2, 2], ':')?;
    (hour < 24 && minute < 60 && second <= 60).then_some((hour * 60 + minute) * 60 + second)
}

/// Milliseconds that `Z` or `+01:30` is ahead of UTC.
fn read_offset(text: &str) -> Option<i64> {
    let sign = match text.chars().next()? {
        'Z' | 'z' => return (text.len() == 1).then_some(0),
        '+' => 1,
        '-' => -1,
        _ => return None,
    };
    let [hour, minute] = numbers(&text[1..], [2, 2], ':')?;
    (hour < 24 && minute < 60).then_some(sign * (hour * 60 + minute) as i64 * 60_000)
}

/// Numbers of exactly these many digits, and what stands between them.
fn numbers<const N: usize>(text: &str, digits: [usize; N], between: char) -> Option<[u64; N]> {
    let mut parts = text.split(between);
    let mut found = [0; N];
    for (number, digits) in found.iter_mut().zip(digits) {
        let part = parts.next().filter(|part| part.len() == digits)?;
        *number = part.bytes().all(|c| c.is_ascii_digit()).then(|| part.parse().ok())??;
    }
    parts.next().is_none().then_some(found)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn check(millis: u64, text: &str) {
        assert_eq!(Timestamp::from_unix_millis(millis).to_string(), text);
        assert_eq!(Timestamp::parse(text), Ok(Timestamp(millis)));
    }

    // req: BU-03
    #[test]
    fn moments_are_written_in_utc_with_milliseconds() {
        check(0, "1970-01-01T00:00:00.000Z");
        check(951_868_799_999, "2000-02-29T23:59:59.999Z");
        check(1_709_164_800_000, "2024-02-29T00:00:00.000Z");
        check(1_735_689_599_001, "2024-12-31T23:59:59.001Z");
        check(4_107_542_400_000, "2100-03-01T00:00:00.000Z");
        check(LAST, "9999-12-31T23:59:59.999Z");
        assert_eq!(Timestamp::from_unix_millis(u64::MAX), Timestamp(LAST));
    }

    #[test]
    fn every_day_follows_the_one_before() {
        let mut expected = (1970, 1, 1);
        for day in 0..=LAST / DAY {
            assert_eq!(date(day), expected);
            let (year, month, day) = expected;
            expected = match (month, day == days_in(year, month)) {
                (_, false) => (year, month, day + 1),
                (12, true) => (year + 1, 1, 1),
                (_, true) => (year, month + 1, 1),
            };
        }
        assert_eq!(expected, (10_000, 1, 1));
    }

    #[test]
    fn what_others_write_is_understood() {
        let noon = Timestamp::parse("2024-02-29T12:00:00Z");
        for same in
            ["2024-02-29T12:00:00.000999Z", "2024-02-29t14:30:00+02:30", "2024-02-28T23:00:00.0-13:00"]
        {
            assert_eq!(Timestamp::parse(same), noon, "{same}");
        }
        assert_eq!(Timestamp::parse("2024-02-29T12:00:00.5Z").unwrap().unix_millis() % 1000, 500);
        assert_eq!(Timestamp::parse("2016-12-31T23:59:60Z"), Timestamp::parse("2017-01-01T00:00:00Z"));
    }

    #[test]
    fn what_is_no_moment_is_refused() {
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
            "1970-01-01T00:00:00+01:00",
            "9999-12-31T23:59:59-01:00",
            "2024-01-01é12:00:00Z",
        ] {
            assert_eq!(Timestamp::parse(text), Err(TimestampError), "{text}");
        }
    }

    #[test]
    fn a_clock_before_1970_gives_its_beginning() {
        assert_eq!(Timestamp::from(UNIX_EPOCH - Duration::from_secs(1)), Timestamp(0));
        assert_eq!(Timestamp::from(UNIX_EPOCH + Duration::from_micros(1999)), Timestamp(1));
    }

    proptest! {
        // req: BU-03
        #[test]
        fn what_is_written_is_read_and_later_is_greater(one in 0..=LAST, other in 0..=LAST) {
            let (one, other) = (Timestamp(one), Timestamp(other));
            prop_assert_eq!(Timestamp::parse(&one.to_string()), Ok(one));
            prop_assert_eq!(one.to_string().cmp(&other.to_string()), one.cmp(&other));
        }

        #[test]
        fn any_text_is_a_moment_or_refused(text in "[0-9T:.Zé+-]{0,30}") {
            let _ = Timestamp::parse(&text);
        }
    }
}
