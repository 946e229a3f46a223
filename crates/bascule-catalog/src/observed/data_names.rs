//! Recognises property names that are data: ids, dates, addresses, paths, free text. Such names are not kept.
//!
//! A word that is data, such as a user name, looks like any property name. Only its number gives it away: see `shape`.

/// The longest name that is kept.
const MAX_LENGTH: usize = 64;
/// A name with a digit that is as long as this is an id.
const MIN_LONG_ID: usize = 20;
/// A name of hexadecimal digits that is as long as this is an id.
const MIN_HEX_ID: usize = 8;
/// The most digits in a name.
const MAX_DIGITS: usize = 3;

/// Returns true if the name looks like data.
pub(super) fn is_data(name: &str) -> bool {
    // JSON-LD and XML have names such as `@id` and `dc:title`.
    let plain = name.strip_prefix(['@', '$', '#']).unwrap_or(name);
    let is_word = |letter: char| letter.is_alphanumeric() || matches!(letter, '_' | '-' | ':' | '$');
    let digits = plain.chars().filter(char::is_ascii_digit).count();
    plain.is_empty()
        || name.len() > MAX_LENGTH
        || plain.starts_with(|first: char| first.is_ascii_digit() || first == '-')
        || !plain.chars().all(is_word)
        || plain.matches(':').count() > 1
        || digits > MAX_DIGITS
        || (digits > 0 && plain.len() >= MIN_LONG_ID)
        || (digits > 0 && plain.len() >= MIN_HEX_ID && plain.chars().all(|letter| letter.is_ascii_hexdigit()))
}

#[cfg(test)]
mod tests {
    use super::*;

    // req: CM-15
    #[test]
    fn recognises_ids_dates_addresses_and_paths() {
        for name in [
            "",
            "42",
            "2026-01-31",
            "12:30",
            "550e8400-e29b-41d4-a716-446655440000",
            "deadbeef01",
            "a1b2c3d4e5f6",
            "user12345",
            "AKIAIOSFODNN7EXAMPLE",
            "sk-abcdefghijklmnop1",
            "ada@example.org",
            "example.org",
            "https://example.org/x",
            "/home/ada/notes.txt",
            "src/main.rs",
            "Ada Lovelace",
            "+49 30 123456",
            "10.0.0.1",
            "fe80::1",
            "a, b",
        ] {
            assert!(is_data(name), "{name}");
        }
        assert!(is_data(&"x".repeat(65)));
    }

    // req: CM-15
    #[test]
    fn keeps_names_of_properties() {
        for name in [
            "id",
            "created_at",
            "createdAt",
            "per-page",
            "temperature_2m",
            "sha256",
            "@type",
            "$ref",
            "_id",
            "dc:title",
            "größe",
            "名前",
            "feed",
            "x1",
        ] {
            assert!(!is_data(name), "{name}");
        }
    }
}
