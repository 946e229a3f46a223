//! Time zones for `Intl`, from the database in the program: a confined worker can open no file.

use std::cell::RefCell;
use std::collections::HashMap;

use jiff::Timestamp;
use jiff::tz::{TimeZone, TimeZoneDatabase};

pub(crate) struct TimeZones {
    database: TimeZoneDatabase,
    default_name: String,
    known: RefCell<HashMap<String, TimeZone>>,
}

impl TimeZones {
    /// Uses the zone of the process, which the bridge sets, as the default.
    pub(crate) fn new() -> Self {
        let default_name = std::env::var("TZ").ok().filter(|name| !name.is_empty());
        Self {
            database: TimeZoneDatabase::bundled(),
            default_name: default_name.unwrap_or_else(|| "UTC".into()),
            known: RefCell::default(),
        }
    }

    pub(crate) fn default_name(&self) -> &str {
        &self.default_name
    }

    /// Returns the usual spelling of a zone's name, or `None` if there is no such zone.
    pub(crate) fn find(&self, name: &str) -> Option<String> {
        if ["utc", "gmt", "etc/utc", "etc/gmt"].contains(&name.to_ascii_lowercase().as_str()) {
            return Some("UTC".into());
        }
        Some(self.zone(name)?.iana_name()?.to_owned())
    }

    /// Returns the seconds that the zone is ahead of UTC at a time, in milliseconds since 1970.
    pub(crate) fn offset_seconds(&self, name: &str, time: f64) -> i32 {
        let timestamp = Timestamp::from_millisecond(time as i64).unwrap_or_default();
        self.zone(name).map_or(0, |zone| zone.to_offset(timestamp).seconds())
    }

    pub(crate) fn names() -> Vec<String> {
        TimeZoneDatabase::bundled().available().map(|name| name.to_string()).collect()
    }

    fn zone(&self, name: &str) -> Option<TimeZone> {
        if let Some(zone) = self.known.borrow().get(name) {
            return Some(zone.clone());
        }
        let zone = self.database.get(name).ok()?;
        self.known.borrow_mut().insert(name.to_owned(), zone.clone());
        Some(zone)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn knows_zones_and_their_offsets() {
        let zones = TimeZones::new();
        assert_eq!(zones.find("europe/berlin").as_deref(), Some("Europe/Berlin"));
        assert_eq!(zones.find("Nowhere/Land"), None);
        assert_eq!(zones.offset_seconds("Europe/Berlin", 1_720_000_000_000.0), 7200);
        assert_eq!(zones.offset_seconds("Asia/Kolkata", 0.0), 19800);
    }
}
