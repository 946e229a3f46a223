//! Joins an error with its causes.

use std::error::Error;

/// Returns an error and its causes, joined by colons. A cause that the text repeats already is left out.
pub fn error_chain(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(cause) = next {
        let reason = cause.to_string();
        if !text.contains(&reason) {
            text = format!("{text}: {reason}");
        }
        next = cause.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, thiserror::Error)]
    #[error("{text}")]
    struct TestError {
        text: &'static str,
        source: Option<Box<TestError>>,
    }

    #[test]
    fn joins_causes_that_are_not_repeated() {
        let cause = TestError { text: "refused", source: None };
        let middle = TestError { text: "could not connect (refused)", source: Some(Box::new(cause)) };
        let error = TestError { text: "could not send", source: Some(Box::new(middle)) };
        assert_eq!(error_chain(&error), "could not send: could not connect (refused)");
    }
}
