//! Looks up time zones by name and suggests the nearest names.

use std::cmp::Reverse;

use jiff::tz::{TimeZone, db};
use strsim::levenshtein;

/// Returns the zone, or an error message with the nearest names.
pub(crate) fn find(name: &str) -> Result<TimeZone, String> {
    db().get(name)
        .map_err(|_| format!("unknown time zone `{name}`; the nearest are {}", nearest(name).join(", ")))
}

/// Returns all names that contain `part`, ignoring case.
pub(crate) fn names_containing(part: &str) -> Vec<String> {
    let part = part.to_lowercase();
    let mut names: Vec<String> = db().available().map(|name| name.to_string()).collect();
    names.retain(|name| name.to_lowercase().contains(&part));
    names.sort();
    names.dedup();
    names
}

fn nearest(name: &str) -> Vec<String> {
    let wanted = name.to_lowercase().replace(' ', "_");
    let mut names = names_containing("");
    names.sort_by_cached_key(|name| (distance(&wanted, &name.to_lowercase()), Reverse(name.len())));
    names.truncate(3);
    names
}

/// Returns the smaller edit distance of the whole name and of its last part: people often type only the city.
fn distance(wanted: &str, name: &str) -> usize {
    let city = |name: &str| name.rsplit('/').next().unwrap_or_default().to_owned();
    levenshtein(wanted, name).min(levenshtein(&city(wanted), &city(name)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nearest_contains_the_intended_name() {
        assert!(nearest("Europe/Zurihc").contains(&"Europe/Zurich".to_owned()));
        assert!(nearest("new york").contains(&"America/New_York".to_owned()));
    }

    #[test]
    fn lookup_ignores_case() {
        assert!(names_containing("zur").contains(&"Europe/Zurich".to_owned()));
        assert!(find("europe/zurich").is_ok());
    }
}
