//! Compares names like decoders that ignore letter case.

/// Returns true if two different names are equal to a decoder that ignores letter case, such as Go's `encoding/json` or
/// .NET's web defaults. They also take letters like `ſ` and the Kelvin sign for `s` and `k`.
pub fn differ_only_in_case(one: &str, other: &str) -> bool {
    one != other && one.chars().map(fold).eq(other.chars().map(fold))
}

fn fold(letter: char) -> char {
    if letter.is_ascii() {
        return letter.to_ascii_uppercase();
    }
    let lower = letter.to_lowercase().next().unwrap_or(letter);
    lower.to_uppercase().next().unwrap_or(lower)
}

#[cfg(test)]
mod tests {
    use super::*;

    // req: BR-04
    #[test]
    fn folds_like_decoders_that_ignore_case() {
        for (one, other) in
            [("name", "Name"), ("params", "PARAMſ"), ("task", "tas\u{212a}"), ("id", "ıd"), ("id", "İd")]
        {
            assert!(differ_only_in_case(one, other) && differ_only_in_case(other, one), "{one} {other}");
        }
        for (one, other) in [("name", "name"), ("name", "names"), ("name", "nämé"), ("", "a")] {
            assert!(!differ_only_in_case(one, other), "{one} {other}");
        }
    }
}
