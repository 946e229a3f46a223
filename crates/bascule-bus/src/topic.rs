//! Topics and topic patterns: segments joined by dots, with the wildcards `*` and `#`.

use std::borrow::Cow;
use std::str::Split;
use std::sync::Arc;

/// The maximum length of a topic or pattern in bytes. It also bounds the cost of matching.
const MAX_LENGTH: usize = 255;

/// The reason why a text is not a valid topic or pattern.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TopicError {
    /// Empty or too long.
    #[error("a topic has 1 to {MAX_LENGTH} characters, not {0}")]
    Length(usize),
    /// A leading, trailing or doubled dot.
    #[error("topic `{0}` has an empty segment: remove leading, trailing and doubled dots")]
    EmptySegment(String),
    /// Brokers give other characters special meanings.
    #[error("topic `{topic}`: segment `{segment}` may only contain letters, digits, `_` and `-`")]
    InvalidSegment { topic: String, segment: String },
    /// Messages cannot be published to a pattern.
    #[error("`{0}` is a pattern: subscribing to it is possible, publishing is not")]
    Wildcard(String),
}

/// The topic of a message: segments of letters, digits, `_` and `-`, joined by dots.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Topic(Cow<'static, str>);

impl Topic {
    pub fn parse(text: &str) -> Result<Self, TopicError> {
        for segment in split_segments(text)? {
            match segment {
                "*" | "#" => return Err(TopicError::Wildcard(text.into())),
                segment => check_segment(text, segment)?,
            }
        }
        Ok(Self(text.to_owned().into()))
    }

    /// Makes a topic of a constant, which must be valid.
    pub fn from_static(text: &'static str) -> Self {
        debug_assert!(Self::parse(text).is_ok(), "`{text}` is no topic");
        Self(text.into())
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }

    fn segments(&self) -> Split<'_, char> {
        self.0.split('.')
    }
}

/// The topics of a subscription: `*` matches exactly one segment, `#` zero or more.
#[derive(Clone, PartialEq, Eq)]
pub struct TopicPattern {
    text: Arc<str>,
    segments: Box<[SegmentPattern]>,
}

#[derive(Clone, PartialEq, Eq)]
enum SegmentPattern {
    Literal(Box<str>),
    /// `*`
    One,
    /// `#`
    ZeroOrMore,
}

impl TopicPattern {
    pub fn parse(text: &str) -> Result<Self, TopicError> {
        let segments = split_segments(text)?.map(|segment| SegmentPattern::parse(text, segment));
        let mut segments = segments.collect::<Result<Vec<_>, _>>()?;
        // `#.#` is equal to `#`.
        segments.dedup_by(|next, last| {
            matches!((next, last), (SegmentPattern::ZeroOrMore, SegmentPattern::ZeroOrMore))
        });
        Ok(Self { text: text.into(), segments: segments.into() })
    }

    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Returns true if the topic matches. The number of steps is at most quadratic in the topic's segments for any
    /// pattern.
    pub fn matches(&self, topic: &Topic) -> bool {
        let mut segments = topic.segments();
        let mut pattern = &self.segments[..];
        // The position to resume at after a mismatch: behind the last `#`, one segment later. Earlier `#` need no
        // retry: everything before the last one already matches as far left as possible.
        let mut resume: Option<(&[SegmentPattern], Split<'_, char>)> = None;
        loop {
            if let [SegmentPattern::ZeroOrMore, rest @ ..] = pattern {
                (pattern, resume) = (rest, Some((rest, segments.clone())));
                if rest.is_empty() {
                    return true;
                }
            }
            match (pattern.split_first(), segments.next()) {
                (None, None) => return true,
                (Some((first, rest)), Some(segment)) if first.matches(segment) => pattern = rest,
                // The topic ended. Resuming later would leave even fewer segments.
                (Some(_), None) => return false,
                (_, Some(_)) => {
                    let Some((rest, start)) = &mut resume else { return false };
                    start.next();
                    (pattern, segments) = (rest, start.clone());
                }
            }
        }
    }
}

impl SegmentPattern {
    fn parse(text: &str, segment: &str) -> Result<Self, TopicError> {
        match segment {
            "*" => Ok(Self::One),
            "#" => Ok(Self::ZeroOrMore),
            segment => check_segment(text, segment).map(|()| Self::Literal(segment.into())),
        }
    }

    /// Returns true if it matches this single segment.
    fn matches(&self, segment: &str) -> bool {
        match self {
            Self::Literal(text) => **text == *segment,
            Self::One => true,
            Self::ZeroOrMore => false,
        }
    }
}

fn split_segments(text: &str) -> Result<Split<'_, char>, TopicError> {
    match (1..=MAX_LENGTH).contains(&text.len()) {
        true => Ok(text.split('.')),
        false => Err(TopicError::Length(text.len())),
    }
}

fn check_segment(text: &str, segment: &str) -> Result<(), TopicError> {
    let legal = |c: u8| c.is_ascii_alphanumeric() || c == b'_' || c == b'-';
    match segment {
        "" => Err(TopicError::EmptySegment(text.into())),
        segment if segment.bytes().all(legal) => Ok(()),
        segment => Err(TopicError::InvalidSegment { topic: text.into(), segment: segment.into() }),
    }
}

bascule_model::impl_string_traits!(Topic, TopicPattern);

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn check(pattern: &str, matching: &[&str], other: &[&str]) {
        let pattern = TopicPattern::parse(pattern).unwrap();
        for topic in matching {
            assert!(pattern.matches(&Topic::parse(topic).unwrap()), "{pattern} {topic}");
        }
        for topic in other {
            assert!(!pattern.matches(&Topic::parse(topic).unwrap()), "{pattern} {topic}");
        }
    }

    // req: BU-01
    #[test]
    fn star_matches_exactly_one_segment() {
        check("a.*", &["a.b", "a.c"], &["a", "a.b.c", "b.b"]);
        check("*", &["a"], &["a.b"]);
        check("*.*.c", &["a.b.c"], &["b.c", "a.b.b.c"]);
    }

    // req: BU-01
    #[test]
    fn hash_matches_any_number_of_segments() {
        check("#", &["a", "a.b.c"], &[]);
        check("a.#", &["a", "a.b", "a.b.c"], &["b", "b.a"]);
        check("#.c", &["c", "a.c", "c.c", "a.b.c"], &["c.a"]);
        check("a.#.c", &["a.c", "a.b.c", "a.c.b.c"], &["a", "c", "a.c.b"]);
        check("#.b.*.#.c", &["b.a.c", "b.b.b.c", "a.b.b.c.c"], &["b.c", "b.c.b"]);
        check("#.*", &["a", "a.b"], &[]);
    }

    #[test]
    fn pattern_without_wildcards_matches_only_itself() {
        check("a.b", &["a.b"], &["a", "a.b.c", "a.B", "b.a"]);
        let topic = Topic::parse("a.b").unwrap();
        assert_eq!(format!("{topic} {topic:?}"), "a.b `a.b`");
    }

    #[test]
    fn refuses_invalid_topics_with_reason() {
        let refusal = |text: &str| Topic::parse(text).unwrap_err().to_string();
        assert_eq!(refusal(""), "a topic has 1 to 255 characters, not 0");
        assert_eq!(refusal(&"a".repeat(256)), "a topic has 1 to 255 characters, not 256");
        assert_eq!(refusal("a.*"), "`a.*` is a pattern: subscribing to it is possible, publishing is not");
        for text in [".", "a.", ".a", "a..b"] {
            assert_eq!(Topic::parse(text), Err(TopicError::EmptySegment(text.into())));
            assert_eq!(TopicPattern::parse(text), Err(TopicError::EmptySegment(text.into())));
        }
        for segment in ["a b", "ä", "a*", "##", "a\n", ">", "a/b"] {
            let text = format!("x.{segment}");
            let wrong = TopicError::InvalidSegment { topic: text.clone(), segment: segment.into() };
            assert_eq!(Topic::parse(&text), Err(wrong.clone()));
            assert_eq!(TopicPattern::parse(&text), Err(wrong));
        }
    }

    // req: BU-01
    #[test]
    fn matches_hostile_pattern() {
        let topic = Topic::parse(&["a"; 128].join(".")).unwrap();
        for unit in ["#.a", "#.*", "#", "#.a.a.a", "#.#.*.a"] {
            let mut text = unit.to_owned();
            while text.len() + unit.len() + 3 <= MAX_LENGTH {
                text = format!("{text}.{unit}");
            }
            let pattern = TopicPattern::parse(&format!("{text}.b")).unwrap();
            for _ in 0..100 {
                assert!(!pattern.matches(&topic), "{pattern}");
            }
        }
    }

    /// A direct, exponential implementation of the definition.
    fn matches_by_definition(pattern: &[&str], topic: &[&str]) -> bool {
        match pattern.split_first() {
            None => topic.is_empty(),
            Some((&"#", rest)) => (0..=topic.len()).any(|skip| matches_by_definition(rest, &topic[skip..])),
            Some((first, rest)) => {
                topic.first().is_some_and(|text| *first == "*" || first == text)
                    && matches_by_definition(rest, &topic[1..])
            }
        }
    }

    proptest! {
        // req: BU-01
        #[test]
        fn matches_as_defined(
            pattern in "[ab*#](\\.[ab*#]){0,8}",
            topic in "[ab](\\.[ab]){0,8}",
        ) {
            let segments = [&pattern, &topic].map(|text| text.split('.').collect::<Vec<_>>());
            prop_assert_eq!(
                TopicPattern::parse(&pattern).unwrap().matches(&Topic::parse(&topic).unwrap()),
                matches_by_definition(&segments[0], &segments[1])
            );
        }

        #[test]
        fn parses_or_refuses_any_text(text in "[a*#. é_-]{0,20}") {
            let (topic, pattern) = (Topic::parse(&text), TopicPattern::parse(&text));
            if let Ok(topic) = topic {
                prop_assert_eq!(topic.as_str(), &text);
                prop_assert!(pattern.unwrap().matches(&topic));
            } else if let Ok(pattern) = pattern {
                prop_assert!(text.contains(['*', '#']));
                prop_assert_eq!(pattern.as_str(), &text);
            }
        }
    }
}
