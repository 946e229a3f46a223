//! An entry of the stream `bascule.claims.{agent}`, the log in which replicas agree on the one that handles a request: a line of
//! text, and for answers the bytes of the message after it.

use crate::MessageId;
use crate::request_identity::RequestIdentity;

/// An entry. Its writer recognises it by the nonce when it reads the stream back.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct ClaimEntry<'a> {
    pub(super) nonce: u64,
    pub(super) content: EntryContent<'a>,
}

#[derive(Debug, PartialEq, Eq)]
pub(super) enum EntryContent<'a> {
    /// A replica wants to handle the request. Entries of earlier builds have no mark.
    Claim { id: MessageId, mark: Option<RequestMark<'a>> },
    /// A replica gives its claim back. `holder` is the nonce of that claim.
    Release { id: MessageId, holder: u64 },
    /// One part of a long answer. Its parts, numbered from 0, and the final `Answer` have the same nonce.
    AnswerPart { index: u32, bytes: &'a [u8] },
    /// The request was answered. `bytes` is the message, or its last part after `parts` entries `AnswerPart`.
    Answer { id: MessageId, parts: u32, bytes: &'a [u8] },
    /// A marker. A replica that reads its own marker back has read all earlier entries.
    Sync,
}

/// Distinguishes two requests with one message id.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct RequestMark<'a> {
    /// The digest of the body.
    pub(super) digest: &'a str,
    pub(super) answer_topic: &'a str,
}

impl<'a> RequestMark<'a> {
    pub(super) fn of(request: &'a RequestIdentity) -> Self {
        Self { digest: request.digest.as_str(), answer_topic: request.answer_topic.as_str() }
    }
}

impl<'a> ClaimEntry<'a> {
    pub(super) fn to_bytes(&self) -> Vec<u8> {
        let nonce = self.nonce;
        let (line, bytes) = match &self.content {
            EntryContent::Claim { id, mark: None } => (format!("claim {nonce} {id}\n"), &b""[..]),
            EntryContent::Claim { id, mark: Some(RequestMark { digest, answer_topic }) } => {
                (format!("claim {nonce} {id} {digest} {answer_topic}\n"), &b""[..])
            }
            EntryContent::Release { id, holder } => (format!("release {nonce} {id} {holder}\n"), &b""[..]),
            EntryContent::AnswerPart { index, bytes } => (format!("part {nonce} {index}\n"), *bytes),
            EntryContent::Answer { id, parts, bytes } => (format!("answer {nonce} {id} {parts}\n"), *bytes),
            EntryContent::Sync => (format!("sync {nonce}\n"), &b""[..]),
        };
        [line.as_bytes(), bytes].concat()
    }

    /// Reads an entry. Returns `None` for bytes that no bridge has written.
    pub(super) fn parse(bytes: &'a [u8]) -> Option<Self> {
        let end = bytes.iter().position(|byte| *byte == b'\n')?;
        let (line, bytes) = (std::str::from_utf8(&bytes[..end]).ok()?, &bytes[end + 1..]);
        let mut words = line.split(' ');
        let kind = words.next()?;
        let nonce = words.next()?.parse().ok()?;
        let content = match kind {
            "claim" => {
                let id = read_id(words.next())?;
                let mark = words.next().zip(words.next());
                let mark = mark.map(|(digest, answer_topic)| RequestMark { digest, answer_topic });
                EntryContent::Claim { id, mark }
            }
            "release" => {
                EntryContent::Release { id: read_id(words.next())?, holder: words.next()?.parse().ok()? }
            }
            "part" => EntryContent::AnswerPart { index: words.next()?.parse().ok()?, bytes },
            "answer" => {
                EntryContent::Answer { id: read_id(words.next())?, parts: words.next()?.parse().ok()?, bytes }
            }
            "sync" => EntryContent::Sync,
            _ => return None,
        };
        Some(Self { nonce, content })
    }
}

fn read_id(word: Option<&str>) -> Option<MessageId> {
    MessageId::parse(word?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    // req: BU-09
    #[test]
    fn round_trips_entries() {
        let id = MessageId::parse("m-1").unwrap();
        let check = |content: EntryContent<'_>, text: &str| {
            let entry = ClaimEntry { nonce: u64::MAX, content };
            assert_eq!(String::from_utf8(entry.to_bytes()).unwrap(), text);
            assert_eq!(ClaimEntry::parse(text.as_bytes()), Some(entry));
        };
        check(EntryContent::Claim { id: id.clone(), mark: None }, "claim 18446744073709551615 m-1\n");
        let mark = Some(RequestMark { digest: "d", answer_topic: "t.a" });
        check(EntryContent::Claim { id: id.clone(), mark }, "claim 18446744073709551615 m-1 d t.a\n");
        check(EntryContent::Release { id: id.clone(), holder: 7 }, "release 18446744073709551615 m-1 7\n");
        check(EntryContent::AnswerPart { index: 2, bytes: b"{\n" }, "part 18446744073709551615 2\n{\n");
        check(EntryContent::Answer { id, parts: 3, bytes: b"\n}" }, "answer 18446744073709551615 m-1 3\n\n}");
        check(EntryContent::Sync, "sync 18446744073709551615\n");
    }

    #[test]
    fn ignores_other_bytes() {
        for bytes in [
            &b""[..],
            b"claim 1 m",
            b"claim x m\n",
            b"claim 1\n",
            b"other 1 m\n",
            b"\xff 1 m\n",
            b"release 1 m\n",
            b"part 1\n{",
            b"answer 1 m\n{}",
        ] {
            assert_eq!(ClaimEntry::parse(bytes), None, "{bytes:?}");
        }
    }
}
