//! The demo server `clock`: the time, here and elsewhere.

use jiff::civil::{DateTime, Time};
use jiff::tz::TimeZone;
use jiff::{Timestamp, Zoned};
use serde::Deserialize;
use serde_json::{Value, json};

use super::reply::{Attempt, Reply, arguments};
use super::serve::{Call, Demo};
use super::tool::{Tool, described, list_of, object, text};
use super::zones;

/// The clock, and what it looks at.
pub(super) struct Clock {
    now: fn() -> Timestamp,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Now {
    timezone: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Convert {
    time: String,
    from: String,
    to: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ListTimezones {
    contains: Option<String>,
}

impl Default for Clock {
    fn default() -> Clock {
        Clock { now: Timestamp::now }
    }
}

impl Demo for Clock {
    fn name(&self) -> &'static str {
        "clock"
    }

    fn tools(&self) -> Vec<Tool> {
        let zone = || described(text(), "An IANA name, such as Europe/Zurich");
        vec![
            Tool::new("now", "The time now, in UTC or another time zone")
                .may_take("timezone", zone())
                .returns("timezone", text())
                .returns("time", text())
                .returns("weekday", text())
                .returns("isDst", json!({"type": "boolean"}))
                .read_only(),
            Tool::new("convert", "What the time of one time zone is in another")
                .takes("time", described(text(), "2026-03-01T12:00, or 12:00 for today"))
                .takes("from", zone())
                .takes("to", zone())
                .returns("from", moment())
                .returns("to", moment())
                .read_only(),
            Tool::new("list_timezones", "The names of time zones")
                .may_take("contains", text())
                .returns("timezones", list_of(text()))
                .read_only(),
        ]
    }

    fn call(&self, tool: &str, arguments: &Value, _call: &Call) -> Reply {
        self.attempt(tool, arguments).unwrap_or_else(|failure| failure)
    }
}

impl Clock {
    fn attempt(&self, tool: &str, given: &Value) -> Attempt {
        match tool {
            "now" => self.now(arguments(given)?),
            "convert" => self.convert(&arguments(given)?),
            "list_timezones" => Ok(list(arguments(given)?)),
            _ => Err(Reply::unknown_tool(tool)),
        }
    }

    fn now(&self, asked: Now) -> Attempt {
        let zone = zone(asked.timezone.as_deref().unwrap_or("UTC"))?;
        Ok(Reply::structured(describe(&(self.now)().to_zoned(zone))))
    }

    fn convert(&self, asked: &Convert) -> Attempt {
        let (from, to) = (zone(&asked.from)?, zone(&asked.to)?);
        let there = self.read(&asked.time, from)?;
        let here = there.with_time_zone(to);
        Ok(Reply::structured(json!({"from": describe(&there), "to": describe(&here)})))
    }

    /// A date with a time, or a time of today.
    fn read(&self, text: &str, zone: TimeZone) -> Result<Zoned, Reply> {
        let today = || (self.now)().to_zoned(zone.clone()).date();
        let time =
            text.parse::<DateTime>().or_else(|_| text.parse::<Time>().map(|time| today().to_datetime(time)));
        let zoned = time.and_then(|time| time.to_zoned(zone.clone()));
        zoned.map_err(|error| {
            Reply::failure(format!("`{text}` is no time such as 2026-03-01T12:00 or 12:00: {error}"))
        })
    }
}

fn list(asked: ListTimezones) -> Reply {
    Reply::structured(json!({"timezones": zones::containing(&asked.contains.unwrap_or_default())}))
}

fn zone(name: &str) -> Result<TimeZone, Reply> {
    zones::find(name).map_err(Reply::failure)
}

fn describe(moment: &Zoned) -> Value {
    json!({
        "timezone": moment.time_zone().iana_name(),
        "time": moment.strftime("%Y-%m-%dT%H:%M:%S%:z").to_string(),
        "weekday": moment.strftime("%A").to_string(),
        "isDst": moment.time_zone().to_offset_info(moment.timestamp()).dst().is_dst(),
    })
}

fn moment() -> Value {
    let properties =
        json!({"timezone": text(), "time": text(), "weekday": text(), "isDst": {"type": "boolean"}});
    object(properties, json!(["timezone", "time", "weekday", "isDst"]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::demo::serve::tests::Talk;

    fn talk() -> Talk<Clock> {
        Talk::with(Clock { now: || Timestamp::from_second(1_772_366_400).unwrap() })
    }

    fn check_conversion(time: &str, from: &str, to: &str, expected: &str) {
        let converted = talk().structure("convert", json!({"time": time, "from": from, "to": to}));
        assert_eq!(converted["to"]["time"], expected);
    }

    #[test]
    fn now_is_told_in_any_zone() {
        assert_eq!(talk().structure("now", Value::Null)["time"], "2026-03-01T12:00:00+00:00");
        let now = talk().structure("now", json!({"timezone": "Asia/Tokyo"}));
        let expected = json!({"timezone": "Asia/Tokyo", "time": "2026-03-01T21:00:00+09:00", "weekday": "Sunday", "isDst": false});
        assert_eq!(now, expected);
    }

    #[test]
    fn times_are_converted_over_summer_time_and_midnight() {
        check_conversion("2026-07-01T08:00", "Europe/Zurich", "UTC", "2026-07-01T06:00:00+00:00");
        check_conversion(
            "2026-01-01T20:00",
            "America/New_York",
            "Europe/Zurich",
            "2026-01-02T02:00:00+01:00",
        );
        check_conversion("09:30", "UTC", "Asia/Kolkata", "2026-03-01T15:00:00+05:30");
    }

    #[test]
    fn an_unknown_zone_is_a_failure_that_names_the_nearest() {
        let said = talk().failure("now", json!({"timezone": "Europe/Zurihc"}));
        assert!(said.starts_with("there is no time zone `Europe/Zurihc`; the nearest are "), "{said}");
        assert!(said.contains("Europe/Zurich"), "{said}");
    }

    #[test]
    fn what_is_no_time_is_a_failure() {
        let said = talk().failure("convert", json!({"time": "noon", "from": "UTC", "to": "UTC"}));
        assert!(said.starts_with("`noon` is no time such as"), "{said}");
    }

    #[test]
    fn zones_are_listed_by_part_of_their_name() {
        let listed = talk().structure("list_timezones", json!({"contains": "zuri"}));
        assert_eq!(listed, json!({"timezones": ["Europe/Zurich"]}));
    }
}
