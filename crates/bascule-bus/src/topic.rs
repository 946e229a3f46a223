//! Where a message goes, and which messages a subscriber wants: words between dots.

use std::fmt;
use std::str::Split;
use std::sync::Arc;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// How long a topic or a pattern may be, in bytes. It also bounds what matching costs.
const LONGEST: usize = 255;

/// Why a piece of text is not a topic, or not a pattern.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TopicError {
    /// Nothing, or too much of it.
    #[error("a topic has 1 to {LONGEST} characters, not {0}")]
    Length(usize),
    /// Each word is a level: an empty one is a mistake.
    #[error("`{0}` has an empty word: there is one between any two dots, and at each end")]
    EmptyWord(String),
    /// Brokers give other characters a meaning of their own.
    #[error("`{topic}`: word `{word}` may only contain letters, digits, `_` and `-`")]
    Word {
        /// The whole text.
        topic: String,
        /// The word that is at fault.
        word: String,
    },
    /// A message goes to one place.
    #[error("`{0}` is a pattern: one can subscribe to it, but not publish to it")]
    Wildcard(String),
}

/// Where a message is published: words of letters, digits, `_` and `-`, joined by dots.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Topic(Arc<str>);

impl Topic {
    /// Checks and keeps a topic.
    pub fn parse(text: &str) -> Result<Self, TopicError> {
        for word in words_of(text)? {
            match word {
                "*" | "#" => return Err(TopicError::Wildcard(text.into())),
                word => check_word(text, word)?,
            }
        }
        Ok(Self(text.into()))
    }

    /// The topic as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    fn words(&self) -> Split<'_, char> {
        self.0.split('.')
    }
}

/// Which topics a subscriber wants: `*` stands for one word, `#` for any number of them, none included.
#[derive(Clone, PartialEq, Eq)]
pub struct TopicPattern {
    text: Arc<str>,
    words: Box<[Word]>,
}

#[derive(Clone, PartialEq, Eq)]
enum Word {
    Is(Box<str>),
    One,
    Any,
}

impl TopicPattern {
    /// Checks and keeps a pattern.
    pub fn parse(text: &str) -> Result<Self, TopicError> {
        let mut words = words_of(text)?.map(|word| Word::parse(text, word)).collect::<Result<Vec<_>, _>>()?;
        // Two in a row say no more than one.
        words.dedup_by(|next, word| matches!((next, word), (Word::Any, Word::Any)));
        Ok(Self { text: text.into(), words: words.into() })
    }

    /// The pattern as it was written.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Whether a topic fits. Takes at most the square of the topic's words in steps, whatever the pattern.
    pub fn matches(&self, topic: &Topic) -> bool {
        let mut words = topic.words();
        let mut pattern = &self.words[..];
        // Where to go on after a miss: with what follows the last `#`, one word further on. Earlier ones need not
        // be tried again: what stands before the last has its leftmost place, which leaves most to the rest.
        let mut again: Option<(&[Word], Split<'_, char>)> = None;
        loop {
            if let [Word::Any, rest @ ..] = pattern {
                (pattern, again) = (rest, Some((rest, words.clone())));
                if rest.is_empty() {
                    return true;
                }
            }
            match (pattern.split_first(), words.next()) {
                (None, None) => return true,
                (Some((word, rest)), Some(text)) if word.fits(text) => pattern = rest,
                // The topic is at its end, so starting further on leaves even fewer words.
                (Some(_), None) => return false,
                (_, Some(_)) => {
                    let Some((rest, start)) = &mut again else { return false };
                    start.next();
                    (pattern, words) = (rest, start.clone());
                }
            }
        }
    }
}

impl Word {
    fn parse(text: &str, word: &str) -> Result<Self, TopicError> {
        match word {
            "*" => Ok(Self::One),
            "#" => Ok(Self::Any),
            word => check_word(text, word).map(|()| Self::Is(word.into())),
        }
    }

    /// Whether it can stand for this one word.
    fn fits(&self, text: &str) -> bool {
        match self {
            Self::Is(word) => **word == *text,
            Self::One => true,
            Self::Any => false,
        }
    }
}

impl From<&Topic> for TopicPattern {
    /// The pattern that only this topic fits.
    fn from(topic: &Topic) -> Self {
        Self { text: topic.0.clone(), words: topic.words().map(|word| Word::Is(word.into())).collect() }
    }
}

fn words_of(text: &str) -> Result<Split<'_, char>, TopicError> {
    match (1..=LONGEST).contains(&text.len()) {
        true => Ok(text.split('.')),
        false => Err(TopicError::Length(text.len())),
    }
}

fn check_word(text: &str, word: &str) -> Result<(), TopicError> {
    let legal = |c: u8| c.is_ascii_alphanumeric() || c == b'_' || c == b'-';
    match word {
        "" => Err(TopicError::EmptyWord(text.into())),
        word if word.bytes().all(legal) => Ok(()),
        word => Err(TopicError::Word { topic: text.into(), word: word.into() }),
    }
}

macro_rules! reads_as_text {
    ($($name:ident),*) => {$(
        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(self.as_str())
            }
        }
        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "`{}`", self.as_str())
            }
        }
    )*};
}
reads_as_text!(Topic, TopicPattern);

impl Serialize for Topic {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}

impl<'de> Deserialize<'de> for Topic {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Self::parse(&String::deserialize(deserializer)?).map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn check(pattern: &str, fits: &[&str], misses: &[&str]) {
        let pattern = TopicPattern::parse(pattern).unwrap();
        for topic in fits {
            assert!(pattern.matches(&Topic::parse(topic).unwrap()), "{pattern} {topic}");
        }
        for topic in misses {
            assert!(!pattern.matches(&Topic::parse(topic).unwrap()), "{pattern} {topic}");
        }
    }

    // req: BU-01
    #[test]
    fn a_star_is_exactly_one_word() {
        check("a.*", &["a.b", "a.c"], &["a", "a.b.c", "b.b"]);
        check("*", &["a"], &["a.b"]);
        check("*.*.c", &["a.b.c"], &["b.c", "a.b.b.c"]);
    }

    // req: BU-01
    #[test]
    fn a_hash_is_any_number_of_words_anywhere() {
        check("#", &["a", "a.b.c"], &[]);
        check("a.#", &["a", "a.b", "a.b.c"], &["b", "b.a"]);
        check("#.c", &["c", "a.c", "c.c", "a.b.c"], &["c.a"]);
        check("a.#.c", &["a.c", "a.b.c", "a.c.b.c"], &["a", "c", "a.c.b"]);
        check("#.b.*.#.c", &["b.a.c", "b.b.b.c", "a.b.b.c.c"], &["b.c", "b.c.b"]);
        check("#.*", &["a", "a.b"], &[]);
    }

    #[test]
    fn without_wildcards_only_the_topic_itself_fits() {
        check("a.b", &["a.b"], &["a", "a.b.c", "a.B", "b.a"]);
        let topic = Topic::parse("a.b").unwrap();
        assert_eq!(TopicPattern::from(&topic), TopicPattern::parse("a.b").unwrap());
        assert_eq!(format!("{topic} {topic:?}"), "a.b `a.b`");
    }

    #[test]
    fn what_is_no_topic_is_refused_with_its_reason() {
        let refused = |text: &str| Topic::parse(text).unwrap_err().to_string();
        assert_eq!(refused(""), "a topic has 1 to 255 characters, not 0");
        assert_eq!(refused(&"a".repeat(256)), "a topic has 1 to 255 characters, not 256");
        assert_eq!(refused("a.*"), "`a.*` is a pattern: one can subscribe to it, but not publish to it");
        for text in [".", "a.", ".a", "a..b"] {
            assert_eq!(Topic::parse(text), Err(TopicError::EmptyWord(text.into())));
            assert_eq!(TopicPattern::parse(text), Err(TopicError::EmptyWord(text.into())));
        }
        for word in ["a b", "ä", "a*", "##", "a\n", ">", "a/b"] {
            let text = format!("x.{word}");
            let wrong = TopicError::Word { topic: text.clone(), word: word.into() };
            assert_eq!(Topic::parse(&text), Err(wrong.clone()));
            assert_eq!(TopicPattern::parse(&text), Err(wrong));
        }
    }

    // req: BU-01
    #[test]
    fn a_hostile_pattern_is_as_quick_as_any() {
        let topic = Topic::parse(&["a"; 128].join(".")).unwrap();
        for unit in ["#.a", "#.*", "#", "#.a.a.a", "#.#.*.a"] {
            let mut text = unit.to_owned();
            while text.len() + unit.len() + 3 <= LONGEST {
                text = format!("{text}.{unit}");
            }
            let pattern = TopicPattern::parse(&format!("{text}.b")).unwrap();
            for _ in 0..100 {
                assert!(!pattern.matches(&topic), "{pattern}");
            }
        }
    }

    /// The definition, as directly as it can be written.
    fn by_definition(pattern: &[&str], topic: &[&str]) -> bool {
        match pattern.split_first() {
            None => topic.is_empty(),
            Some((&"#", rest)) => (0..=topic.len()).any(|skip| by_definition(rest, &topic[skip..])),
            Some((word, rest)) => {
                topic.first().is_some_and(|text| *word == "*" || word == text)
                    && by_definition(rest, &topic[1..])
            }
        }
    }

    proptest! {
        // req: BU-01
        #[test]
        fn matching_agrees_with_the_definition(
            pattern in "[ab*#](\\.[ab*#]){0,8}",
            topic in "[ab](\\.[ab]){0,8}",
        ) {
            let words = [&pattern, &topic].map(|text| text.split('.').collect::<Vec<_>>());
            prop_assert_eq!(
                TopicPattern::parse(&pattern).unwrap().matches(&Topic::parse(&topic).unwrap()),
                by_definition(&words[0], &words[1])
            );
        }

        #[test]
        fn any_text_is_a_topic_a_pattern_or_refused(text in "[a*#. é_-]{0,20}") {
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
