//! Looks up time zones by name and suggests the nearest names.

use std::cmp::Reverse;

use jiff::tz::{TimeZone, db};

/// Returns the zone, or an error message with the nearest names.
pub(crate) fn find(name: &str) -> Result<TimeZone, String> {
    db().get(name)
        .map_err(|_| format!("unknown time zone `{name}`; the nearest are {}", nearest(name).join(", ")))
}

/// Returns all names that contain `part`, ignoring case.
pub(crate) fn containing(part: &str) -> Vec<String> {
    let part = part.to_lowercase();
    let mut names: Vec<String> = db().available().map(|name| name.to_string()).collect();
    names.retain(|name| name.to_lowercase().contains(&part));
    names.sort();
    names.dedup();
    names
}

fn nearest(name: &str) -> Vec<String> {
    let wanted = name.to_lowercase().replace(' ', "_");
    let mut names = containing("");
    names.sort_by_cached_key(|name| (distance(&wanted, &name.to_lowercase()), Reverse(name.len())));
    names.truncate(3);
    names
}

/// Returns the smaller edit distance of the whole name and of its last part: people often type only the city.
fn distance(wanted: &str, name: &str) -> usize {
    let city = |name: &str| name.rsplit('/').next().unwrap_or_default().to_owned();
    edit_distance(wanted, name).min(edit_distance(&city(wanted), &city(name)))
}

/// Returns the Levenshtein distance.
fn edit_distance(from: &str, to: &str) -> usize {
    let to: Vec<char> = to.chars().collect();
    let mut row: Vec<usize> = (0..=to.len()).collect();
    for (i, a) in from.chars().enumerate() {
        let mut diagonal = std::mem::replace(&mut row[0], i + 1);
        for (j, b) in to.iter().enumerate() {
            let change = diagonal + usize::from(a != *b);
            diagonal = row[j + 1];
            row[j + 1] = change.min(diagonal + 1).min(row[j] + 1);
        }
    }
    row[to.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_edits() {
        assert_eq!(
            [edit_distance("kitten", "sitting"), edit_distance("", "ab"), edit_distance("ab", "ab")],
            [3, 2, 0]
        );
    }

    #[test]
    fn nearest_contains_the_intended_name() {
        assert!(nearest("Europe/Zurihc").contains(&"Europe/Zurich".to_owned()));
        assert!(nearest("new york").contains(&"America/New_York".to_owned()));
    }

    #[test]
    fn lookup_ignores_case() {
        assert!(containing("zur").contains(&"Europe/Zurich".to_owned()));
        assert!(find("europe/zurich").is_ok());
    }
}
