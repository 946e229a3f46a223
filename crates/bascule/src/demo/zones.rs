//! Looks time zones up by name, and names the nearest for a miss.

use std::cmp::Reverse;

use jiff::tz::{TimeZone, db};

/// The zone of this name, or a sentence that names the nearest ones.
pub(super) fn find(name: &str) -> Result<TimeZone, String> {
    db().get(name)
        .map_err(|_| format!("there is no time zone `{name}`; the nearest are {}", nearest(name).join(", ")))
}

/// All names that contain this, whatever the case.
pub(super) fn containing(part: &str) -> Vec<String> {
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

/// How far a name is from what was typed, as a whole or in its last part: people type the city.
fn distance(wanted: &str, name: &str) -> usize {
    let city = |name: &str| name.rsplit('/').next().unwrap_or_default().to_owned();
    edits(wanted, name).min(edits(&city(wanted), &city(name)))
}

/// How many letters to change, add or take away between the two.
fn edits(from: &str, to: &str) -> usize {
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
    fn edits_are_counted() {
        assert_eq!([edits("kitten", "sitting"), edits("", "ab"), edits("ab", "ab")], [3, 2, 0]);
    }

    #[test]
    fn a_miss_names_what_was_meant() {
        assert!(nearest("Europe/Zurihc").contains(&"Europe/Zurich".to_owned()));
        assert!(nearest("new york").contains(&"America/New_York".to_owned()));
    }

    #[test]
    fn names_are_found_whatever_the_case() {
        assert!(containing("zur").contains(&"Europe/Zurich".to_owned()));
        assert!(find("europe/zurich").is_ok());
    }
}
