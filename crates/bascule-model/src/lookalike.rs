//! Finds names that a JSON decoder may confuse: one that ignores letter case or signs, for example.

/// Returns true if two different names are equal to a decoder that ignores letter case.
pub fn differ_only_in_case(one: &str, other: &str) -> bool {
    one != other && one.chars().map(fold).eq(other.chars().map(fold))
}

/// Returns true if two different names are equal to some decoder: one that ignores letter case (Go's `encoding/json`, .NET's
/// web defaults), that ends a name at NUL (json-c), or that trims or ignores signs. The first also take letters like `ſ` and
/// the Kelvin sign for `s` and `k`.
pub fn are_confusable(one: &str, other: &str) -> bool {
    one != other && skeleton(one).eq(skeleton(other))
}

/// The part of a name that every decoder reads: letters and digits before the first NUL, in one case.
fn skeleton(name: &str) -> impl Iterator<Item = char> {
    let read = name.chars().take_while(|letter| *letter != '\0');
    read.filter(|letter| letter.is_alphanumeric()).map(fold)
}

fn fold(letter: char) -> char {
    // Full-width forms of ASCII.
    let letter = match u32::from(letter) {
        wide @ 0xFF01..=0xFF5E => char::from_u32(wide - 0xFEE0).unwrap_or(letter),
        _ => letter,
    };
    let lower = letter.to_lowercase().next().unwrap_or(letter);
    lower.to_uppercase().next().unwrap_or(lower)
}

#[cfg(test)]
mod tests {
    use super::*;

    // req: BR-04
    #[test]
    fn compares_like_inexact_decoders() {
        for (one, other) in [
            ("name", "Name"),
            ("params", "PARAMſ"),
            ("task", "tas\u{212a}"),
            ("id", "ıd"),
            ("id", "İd"),
            ("name", "name\0"),
            ("name", "name\0x"),
            ("name", " name"),
            ("name", "na_me"),
            ("name", "\u{feff}name"),
            ("name", "name\u{200b}"),
            ("name", "ｎame"),
            ("tools/call", "/tools//call/"),
        ] {
            assert!(are_confusable(one, other) && are_confusable(other, one), "{one} {other}");
        }
        assert!(differ_only_in_case("timeZone", "timezone") && !differ_only_in_case("time_zone", "timezone"));
        for (one, other) in [("name", "name"), ("name", "names"), ("name", "nämé"), ("", "a"), ("a1", "a2")]
        {
            assert!(!are_confusable(one, other), "{one} {other}");
        }
    }
}
