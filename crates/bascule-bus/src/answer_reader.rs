//! Assembles the result of a call from its answer: one message, a stored object, or a message and its parts. Long lists of tools
//! come in parts too.
//!
//! Does no I/O: the reader says which object to fetch. Anybody may publish parts, so their number, size and order are not
//! trusted. The writing side is `answer_writer`.

use std::collections::BTreeMap;

use serde_json::value::RawValue;

use crate::{ResultObject, ResultParts, ToolInvokeResponse, ToolResultPart};

/// The next thing to do for an answer.
#[derive(Debug)]
pub enum AnswerStep {
    /// More messages are needed.
    Wait,
    /// The result is in this object: read it with [`Bus::get_result`](crate::Bus::get_result), then call [`parse_result`].
    Fetch {
        object: ResultObject,
        is_error: bool,
    },
    Complete(AnsweredResult),
}

/// A whole result.
#[derive(Debug, Clone)]
pub struct AnsweredResult {
    pub is_error: bool,
    /// The `CallToolResult`, byte for byte.
    pub result: Box<RawValue>,
}

/// The reason why an answer has no result.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AnswerError {
    #[error("the answer has neither a result, nor an object, nor parts")]
    Empty,
    #[error("the result has {bytes} bytes; at most {limit} are accepted")]
    TooLarge { bytes: u64, limit: usize },
    #[error("the answer announces {count} parts with {bytes} bytes in all, which cannot be")]
    Count { count: u32, bytes: u64 },
    #[error("part {index} of the result does not belong to an answer of {count} parts")]
    Index { index: u32, count: u32 },
    #[error("the parts of the result have {found} bytes; the answer announced {announced}")]
    Length { found: usize, announced: u64 },
    #[error("the result is not JSON: {0}")]
    NotJson(String),
    #[error("{missing} of {count} parts of the result did not arrive")]
    Missing { missing: usize, count: u32 },
    #[error("parts of a result arrived, but not the answer that announces them")]
    NoAnswer,
}

/// Reads the messages of one answer in any order.
#[derive(Debug)]
pub struct AnswerReader {
    is_error: bool,
    parts: PartsReader,
}

impl AnswerReader {
    /// Makes a reader of one answer. `limit` bounds the bytes of the result.
    pub fn new(limit: usize) -> Self {
        Self { is_error: false, parts: PartsReader::new(limit) }
    }

    /// Returns the bytes that the reader holds.
    pub fn held_bytes(&self) -> usize {
        self.parts.bytes
    }

    /// Reads the answer itself. A repetition is ignored.
    pub fn read_response(&mut self, response: ToolInvokeResponse) -> Result<AnswerStep, AnswerError> {
        let is_error = response.is_error;
        match (response.result, response.result_object, response.result_parts) {
            (Some(result), _, _) => {
                self.parts.check_size(result.get().len() as u64)?;
                Ok(AnswerStep::Complete(AnsweredResult { is_error, result }))
            }
            (None, Some(object), _) => {
                self.parts.check_size(object.bytes)?;
                Ok(AnswerStep::Fetch { object, is_error })
            }
            (None, None, Some(parts)) => {
                self.is_error = is_error;
                let text = self.parts.announce(parts)?;
                self.next_step(text)
            }
            (None, None, None) => Err(AnswerError::Empty),
        }
    }

    /// Reads a part, before or after its answer. A repetition is ignored.
    pub fn read_part(&mut self, part: ToolResultPart) -> Result<AnswerStep, AnswerError> {
        let text = self.parts.read(part)?;
        self.next_step(text)
    }

    /// Returns the error of an answer that did not become complete in time; `None` if nothing of it came.
    pub fn missing(&self) -> Option<AnswerError> {
        self.parts.missing()
    }

    fn next_step(&self, text: Option<String>) -> Result<AnswerStep, AnswerError> {
        let Some(text) = text else { return Ok(AnswerStep::Wait) };
        Ok(AnswerStep::Complete(AnsweredResult { is_error: self.is_error, result: parse_text(text)? }))
    }
}

/// Reads the parts of one text in any order.
#[derive(Debug)]
pub struct PartsReader {
    limit: usize,
    announced: Option<ResultParts>,
    parts: BTreeMap<u32, String>,
    bytes: usize,
}

impl PartsReader {
    /// Makes a reader of one text. `limit` bounds its bytes.
    pub fn new(limit: usize) -> Self {
        Self { limit, announced: None, parts: BTreeMap::new(), bytes: 0 }
    }

    /// Reads the number of parts. Returns the text if all have come. A repetition is ignored.
    pub fn announce(&mut self, parts: ResultParts) -> Result<Option<String>, AnswerError> {
        if self.announced.is_some() {
            return Ok(None);
        }
        self.check_announcement(&parts)?;
        self.announced = Some(parts);
        self.assemble()
    }

    /// Reads a part, before or after the announcement. Returns the text if all have come. A repetition is ignored.
    pub fn read(&mut self, part: ToolResultPart) -> Result<Option<String>, AnswerError> {
        if let Some(ResultParts { count, .. }) = self.announced {
            check_index(part.index, count)?;
        }
        // An empty part would let a publisher fill the memory with indexes, and no writer makes one.
        if part.text.is_empty() || self.parts.contains_key(&part.index) {
            return Ok(None);
        }
        self.check_size(self.bytes as u64 + part.text.len() as u64)?;
        self.bytes += part.text.len();
        self.parts.insert(part.index, part.text);
        self.assemble()
    }

    /// Returns the error of a text that did not become complete in time; `None` if nothing of it came.
    pub fn missing(&self) -> Option<AnswerError> {
        match self.announced {
            Some(ResultParts { count, .. }) => {
                Some(AnswerError::Missing { missing: count as usize - self.parts.len(), count })
            }
            None if !self.parts.is_empty() => Some(AnswerError::NoAnswer),
            None => None,
        }
    }

    fn check_size(&self, bytes: u64) -> Result<(), AnswerError> {
        match bytes <= self.limit as u64 {
            true => Ok(()),
            false => Err(AnswerError::TooLarge { bytes, limit: self.limit }),
        }
    }

    /// Every part has at least one byte, so more parts than bytes cannot be.
    fn check_announcement(&self, &ResultParts { count, bytes }: &ResultParts) -> Result<(), AnswerError> {
        self.check_size(bytes)?;
        if count == 0 || u64::from(count) > bytes {
            return Err(AnswerError::Count { count, bytes });
        }
        self.parts.keys().try_for_each(|index| check_index(*index, count))
    }

    fn assemble(&mut self) -> Result<Option<String>, AnswerError> {
        let Some(ResultParts { count, bytes }) = self.announced else { return Ok(None) };
        if self.parts.len() < count as usize {
            return Ok(None);
        }
        if self.bytes as u64 != bytes {
            return Err(AnswerError::Length { found: self.bytes, announced: bytes });
        }
        let mut text = String::with_capacity(self.bytes);
        std::mem::take(&mut self.parts).into_values().for_each(|part| text.push_str(&part));
        Ok(Some(text))
    }
}

fn check_index(index: u32, count: u32) -> Result<(), AnswerError> {
    if index < count { Ok(()) } else { Err(AnswerError::Index { index, count }) }
}

/// Reads the content of a fetched object as a result.
pub fn parse_result(content: Vec<u8>) -> Result<Box<RawValue>, AnswerError> {
    let text = String::from_utf8(content).map_err(|error| AnswerError::NotJson(error.to_string()))?;
    parse_text(text)
}

fn parse_text(text: String) -> Result<Box<RawValue>, AnswerError> {
    RawValue::from_string(text).map_err(|error| AnswerError::NotJson(error.to_string()))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const LIMIT: usize = 1_000;

    fn response(fields: &str) -> ToolInvokeResponse {
        let json = format!(r#"{{"toolCallId":"c","toolName":"s:t","isError":true{fields}}}"#);
        serde_json::from_str(&json).unwrap()
    }

    fn announce(count: u32, bytes: usize) -> ToolInvokeResponse {
        response(&format!(r#","resultParts":{{"count":{count},"bytes":{bytes}}}"#))
    }

    fn part(index: u32, text: &str) -> ToolResultPart {
        ToolResultPart { tool_call_id: "c".into(), index, text: text.into() }
    }

    fn text_of(step: AnswerStep) -> Option<String> {
        match step {
            AnswerStep::Complete(answer) => Some(answer.result.get().to_owned()),
            _ => None,
        }
    }

    fn reader() -> AnswerReader {
        AnswerReader::new(LIMIT)
    }

    // req: BU-03
    #[test]
    fn reads_a_result_in_the_answer_and_one_in_an_object() {
        let step = reader().read_response(response(r#","result":{ "content":[] }"#)).unwrap();
        assert!(
            matches!(step, AnswerStep::Complete(answer) if answer.is_error && answer.result.get() == r#"{ "content":[] }"#)
        );
        let object = r#","resultObject":{"bucket":"b","name":"n","bytes":1000}"#;
        assert!(
            matches!(reader().read_response(response(object)), Ok(AnswerStep::Fetch { object, is_error: true }) if object.name == "n")
        );
        assert_eq!(parse_result(b"[1]".to_vec()).unwrap().get(), "[1]");
        assert!(parse_result(b"[1".to_vec()).is_err() && parse_result(b"\"\xff\"".to_vec()).is_err());
    }

    // req: BU-03
    #[test]
    fn refuses_hostile_answers() {
        let error = |fields: &str| reader().read_response(response(fields)).unwrap_err();
        assert_eq!(error(""), AnswerError::Empty);
        let large = r#","resultObject":{"bucket":"b","name":"n","bytes":1001}"#;
        assert_eq!(error(large), AnswerError::TooLarge { bytes: 1001, limit: LIMIT });
        let huge = r#","resultParts":{"count":4294967295,"bytes":18446744073709551615}"#;
        assert_eq!(error(huge), AnswerError::TooLarge { bytes: u64::MAX, limit: LIMIT });
        let counts = [(0, 5), (6, 5), (u32::MAX, 1000)];
        for (count, bytes) in counts {
            let error = reader().read_response(announce(count, bytes)).unwrap_err();
            assert_eq!(error, AnswerError::Count { count, bytes: bytes as u64 });
        }
    }

    // req: BU-03
    #[test]
    fn refuses_hostile_parts() {
        let mut reader = reader();
        assert!(matches!(reader.read_part(part(7, "x")), Ok(AnswerStep::Wait)));
        assert_eq!(reader.missing(), Some(AnswerError::NoAnswer));
        assert_eq!(
            reader.read_response(announce(2, 4)).unwrap_err(),
            AnswerError::Index { index: 7, count: 2 }
        );

        let mut reader = self::reader();
        reader.read_response(announce(2, 4)).unwrap();
        assert_eq!(reader.read_part(part(2, "x")).unwrap_err(), AnswerError::Index { index: 2, count: 2 });
        reader.read_part(part(0, "[1")).unwrap();
        assert_eq!(reader.missing(), Some(AnswerError::Missing { missing: 1, count: 2 }));
        let error = reader.read_part(part(1, ",2]")).unwrap_err();
        assert_eq!(error, AnswerError::Length { found: 5, announced: 4 });

        let mut reader = self::reader();
        reader.read_part(part(0, &"x".repeat(LIMIT))).unwrap();
        let error = reader.read_part(part(1, "x")).unwrap_err();
        assert_eq!(error, AnswerError::TooLarge { bytes: 1001, limit: LIMIT });
        assert_eq!(reader.held_bytes(), LIMIT);
        // Empty parts take no room.
        (1..100).for_each(|index| assert!(reader.read_part(part(index, "")).is_ok()));
        assert_eq!(reader.parts.parts.len(), 1);
    }

    #[test]
    fn says_that_nothing_came() {
        assert_eq!(reader().missing(), None);
    }

    proptest! {
        // req: BU-03
        #[test]
        fn assembles_parts_in_any_order_with_repetitions(
            texts in prop::collection::vec("[a-zé\u{1F600}]{1,5}", 1..20),
            order in prop::collection::vec(any::<prop::sample::Index>(), 0..40),
            head in any::<prop::sample::Index>(),
        ) {
            let last = texts.len() - 1;
            let part_texts: Vec<_> = texts.iter().enumerate().map(|(at, text)| {
                format!("{}{text}{}", if at == 0 { "\"" } else { "" }, if at == last { "\"" } else { "" })
            }).collect();
            let whole = part_texts.concat();
            let mut indexes: Vec<_> = order.iter().map(|index| index.index(texts.len())).collect();
            indexes.extend(0..texts.len());
            let head = head.index(indexes.len());
            let (mut reader, mut found) = (reader(), None);
            for (turn, index) in indexes.into_iter().enumerate() {
                if turn == head {
                    let step = reader.read_response(announce(texts.len() as u32, whole.len())).unwrap();
                    found = found.or(text_of(step));
                }
                if found.is_none() {
                    found = text_of(reader.read_part(part(index as u32, &part_texts[index])).unwrap());
                }
            }
            prop_assert_eq!(found, Some(whole));
        }
    }
}
