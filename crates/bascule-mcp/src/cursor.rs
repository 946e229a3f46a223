//! Cursors of many servers' lists: which server said it goes into the cursor itself, so nobody has to remember.

/// A cursor for the client: opaque, of `[A-Za-z0-9_-]`, and different for every pair.
pub fn wrap_cursor(server: &str, cursor: &str) -> String {
    encode(format!("{}:{server}{cursor}", server.len()).as_bytes())
}

/// The server, and the cursor it gave. None if [`wrap_cursor`] did not make this.
pub fn unwrap_cursor(text: &str) -> Option<(String, String)> {
    let framed = String::from_utf8(decode(text)?).ok()?;
    let (length, rest) = framed.split_once(':')?;
    let (server, cursor) = rest.split_at_checked(length.parse().ok()?)?;
    // Other spellings of the same (`+1:`, stray bits at the end) are not ours.
    (wrap_cursor(server, cursor) == text).then(|| (server.to_owned(), cursor.to_owned()))
}

const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

/// Base64 for URLs, without padding.
fn encode(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for three in bytes.chunks(3) {
        let bits =
            three.iter().fold(0u32, |bits, byte| bits << 8 | u32::from(*byte)) << (8 * (3 - three.len()));
        let digits = (0..=three.len()).map(|place| DIGITS[(bits >> (18 - 6 * place)) as usize & 63]);
        text.extend(digits.map(char::from));
    }
    text
}

fn decode(text: &str) -> Option<Vec<u8>> {
    let mut bytes = Vec::with_capacity(text.len() / 4 * 3 + 2);
    for four in text.as_bytes().chunks(4) {
        let mut bits = 0u32;
        for byte in four {
            bits = bits << 6 | value(*byte)?;
        }
        bits <<= 6 * (4 - four.len());
        bytes.extend((0..four.len() - 1).map(|place| (bits >> (16 - 8 * place)) as u8));
    }
    Some(bytes)
}

fn value(digit: u8) -> Option<u32> {
    Some(match digit {
        b'A'..=b'Z' => u32::from(digit - b'A'),
        b'a'..=b'z' => u32::from(digit - b'a') + 26,
        b'0'..=b'9' => u32::from(digit - b'0') + 52,
        b'-' => 62,
        b'_' => 63,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn it_is_base64_as_others_write_it() {
        for (text, expected) in
            [("", ""), ("f", "Zg"), ("fo", "Zm8"), ("foo", "Zm9v"), ("foob", "Zm9vYg"), ("??>", "Pz8-")]
        {
            assert_eq!(encode(text.as_bytes()), expected);
            assert_eq!(decode(expected).unwrap(), text.as_bytes());
        }
    }

    // req: GW-02
    #[test]
    fn what_we_did_not_make_is_refused() {
        let good = wrap_cursor("docs", "page 2");
        assert_eq!(unwrap_cursor(&good), Some(("docs".into(), "page 2".into())));
        let made = |framed: &str| encode(framed.as_bytes());
        for bad in [
            "",
            "A",
            "page 2",
            "é",
            "====",
            &made("4docs"),
            &made("9:docs"),
            &made("+1:ab"),
            &made("1:é"),
            &made("x:ab"),
        ] {
            assert_eq!(unwrap_cursor(bad), None, "{bad}");
        }
        assert_eq!(unwrap_cursor(&format!("{good}A")), None);
        assert_eq!(unwrap_cursor(&encode(b"1:\xff")), None);
    }

    proptest! {
        // req: GW-02
        #[test]
        fn every_cursor_leads_back(server: String, cursor: String) {
            let wrapped = wrap_cursor(&server, &cursor);
            prop_assert!(wrapped.bytes().all(|c| c.is_ascii_alphanumeric() || b"-_".contains(&c)));
            prop_assert_eq!(unwrap_cursor(&wrapped), Some((server, cursor)));
        }

        // req: GW-02
        #[test]
        fn nothing_else_is_taken_for_one(text in "[A-Za-z0-9_-]{0,12}|.*") {
            if let Some((server, cursor)) = unwrap_cursor(&text) {
                prop_assert_eq!(wrap_cursor(&server, &cursor), text);
            }
        }
    }
}
