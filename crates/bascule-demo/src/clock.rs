//! The demo server `clock`: the current time, and conversion between time zones.

use jiff::civil::{DateTime, Time};
use jiff::tz::TimeZone;
use jiff::{Timestamp, Zoned};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::reply::{Reply, ReplyResult, parse_arguments};
use crate::serve::{DemoCall, DemoServer};
use crate::tool::{ToolDeclaration, described, list_of, object, text};
use crate::zones;

/// The server. Tests replace its time source.
pub(crate) struct Clock {
    now: fn() -> Timestamp,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct NowArguments {
    timezone: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ConvertArguments {
    time: String,
    from: String,
    to: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ListArguments {
    contains: Option<String>,
}

impl Default for Clock {
    fn default() -> Clock {
        Clock { now: Timestamp::now }
    }
}

impl DemoServer for Clock {
    fn name(&self) -> &'static str {
        "clock"
    }

    fn tools(&self) -> Vec<ToolDeclaration> {
        let zone = || described(text(), "An IANA name, such as Europe/Zurich");
        vec![
            ToolDeclaration::new("now", "Returns the current time in UTC or another time zone")
                .optional("timezone", zone())
                .returns("timezone", text())
                .returns("time", text())
                .returns("weekday", text())
                .returns("isDst", json!({"type": "boolean"}))
                .read_only(),
            ToolDeclaration::new("convert", "Converts a time from one time zone to another")
                .required("time", described(text(), "2026-03-01T12:00, or 12:00 for today"))
                .required("from", zone())
                .required("to", zone())
                .returns("from", zoned_time_schema())
                .returns("to", zoned_time_schema())
                .read_only(),
            ToolDeclaration::new("list_timezones", "Lists the names of time zones")
                .optional("contains", text())
                .returns("timezones", list_of(text()))
                .read_only(),
        ]
    }

    fn call(&self, tool: &str, arguments: &Value, _call: &DemoCall) -> ReplyResult {
        match tool {
            "now" => self.now(parse_arguments(arguments)?),
            "convert" => self.convert(&parse_arguments(arguments)?),
            "list_timezones" => Ok(list_timezones(parse_arguments(arguments)?)),
            _ => Err(Reply::unknown_tool(tool)),
        }
    }
}

impl Clock {
    fn now(&self, arguments: NowArguments) -> ReplyResult {
        let zone = zone(arguments.timezone.as_deref().unwrap_or("UTC"))?;
        Ok(Reply::structured(describe(&(self.now)().to_zoned(zone))))
    }

    fn convert(&self, arguments: &ConvertArguments) -> ReplyResult {
        let (from, to) = (zone(&arguments.from)?, zone(&arguments.to)?);
        let time = self.parse_time(&arguments.time, from)?;
        let converted = time.with_time_zone(to);
        Ok(Reply::structured(json!({"from": describe(&time), "to": describe(&converted)})))
    }

    /// Parses a date with a time, or a time of today.
    fn parse_time(&self, text: &str, zone: TimeZone) -> Result<Zoned, Reply> {
        let today = || (self.now)().to_zoned(zone.clone()).date();
        let time =
            text.parse::<DateTime>().or_else(|_| text.parse::<Time>().map(|time| today().to_datetime(time)));
        let zoned = time.and_then(|time| time.to_zoned(zone.clone()));
        zoned.map_err(|error| {
            Reply::failure(format!(
                "could not parse the time `{text}` (examples: 2026-03-01T12:00, 12:00): {error}"
            ))
        })
    }
}

fn list_timezones(arguments: ListArguments) -> Reply {
    Reply::structured(json!({"timezones": zones::names_containing(&arguments.contains.unwrap_or_default())}))
}

fn zone(name: &str) -> Result<TimeZone, Reply> {
    zones::find(name).map_err(Reply::failure)
}

fn describe(time: &Zoned) -> Value {
    json!({
        "timezone": time.time_zone().iana_name(),
        "time": time.strftime("%Y-%m-%dT%H:%M:%S%:z").to_string(),
        "weekday": time.strftime("%A").to_string(),
        "isDst": time.time_zone().to_offset_info(time.timestamp()).dst().is_dst(),
    })
}

fn zoned_time_schema() -> Value {
    let properties =
        json!({"timezone": text(), "time": text(), "weekday": text(), "isDst": {"type": "boolean"}});
    object(properties, json!(["timezone", "time", "weekday", "isDst"]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::serve::tests::TestClient;

    fn client_at_fixed_time() -> TestClient<Clock> {
        TestClient::with(Clock { now: || Timestamp::from_second(1_772_366_400).unwrap() })
    }

    fn check_conversion(time: &str, from: &str, to: &str, expected: &str) {
        let converted =
            client_at_fixed_time().call_structured("convert", json!({"time": time, "from": from, "to": to}));
        assert_eq!(converted["to"]["time"], expected);
    }

    #[test]
    fn now_answers_in_the_requested_zone() {
        assert_eq!(
            client_at_fixed_time().call_structured("now", Value::Null)["time"],
            "2026-03-01T12:00:00+00:00"
        );
        let now = client_at_fixed_time().call_structured("now", json!({"timezone": "Asia/Tokyo"}));
        let expected = json!({"timezone": "Asia/Tokyo", "time": "2026-03-01T21:00:00+09:00", "weekday": "Sunday", "isDst": false});
        assert_eq!(now, expected);
    }

    #[test]
    fn convert_handles_summer_time_and_midnight() {
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
    fn unknown_zone_fails_and_names_the_nearest() {
        let message = client_at_fixed_time().failure("now", json!({"timezone": "Europe/Zurihc"}));
        assert!(message.starts_with("unknown time zone `Europe/Zurihc`; the nearest are "), "{message}");
        assert!(message.contains("Europe/Zurich"), "{message}");
    }

    #[test]
    fn unparsable_time_fails() {
        let message =
            client_at_fixed_time().failure("convert", json!({"time": "noon", "from": "UTC", "to": "UTC"}));
        assert!(message.starts_with("could not parse the time `noon`"), "{message}");
    }

    #[test]
    fn list_timezones_filters_by_substring() {
        let listed = client_at_fixed_time().call_structured("list_timezones", json!({"contains": "zuri"}));
        assert_eq!(listed, json!({"timezones": ["Europe/Zurich"]}));
    }
}
