//! A call as the graph of tools observes it: its relations to other calls, and its values before they become fingerprints.

use bascule_graph::CallSession;
use bascule_model::clip;

/// The beginning of arguments and of a result that is read, in bytes. It has room for most of the 256 values that a text may
/// have, and the call waits for a small copy only.
pub(crate) const MAX_VALUES: usize = 8 << 10;

/// The part of a call that its span does not have. The texts may hold secrets: the writer thread turns them into fingerprints, and
/// drops them.
pub struct ObservedCall {
    pub session: CallSession,
    /// The span of the script that made the call.
    pub script: Option<u64>,
    /// The arguments, and behind them the result: one allocation for both.
    texts: Box<str>,
    arguments_end: usize,
}

impl ObservedCall {
    /// Copies the beginnings of the JSON texts. The values of a call without a session are of no use.
    pub fn new(
        session: CallSession,
        script: Option<u64>,
        arguments: Option<&str>,
        result: Option<&str>,
    ) -> Self {
        let is_related = session != CallSession::Single;
        let [arguments, result] =
            [arguments, result].map(|text| clip(text.filter(|_| is_related).unwrap_or_default(), MAX_VALUES));
        let mut texts = String::with_capacity(arguments.len() + result.len());
        texts.push_str(arguments);
        texts.push_str(result);
        Self { session, script, texts: texts.into_boxed_str(), arguments_end: arguments.len() }
    }

    /// The beginning of the arguments, empty if there are none.
    pub(crate) fn arguments(&self) -> &str {
        &self.texts[..self.arguments_end]
    }

    /// The beginning of the result, empty if there is none.
    pub(crate) fn result(&self) -> &str {
        &self.texts[self.arguments_end..]
    }

    /// Removes the texts.
    pub(crate) fn strip(&mut self) {
        (self.texts, self.arguments_end) = (Box::default(), 0);
    }

    /// The memory that it holds, roughly.
    pub(crate) fn bytes(&self) -> usize {
        size_of::<Self>() + self.texts.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // req: TR-02
    #[test]
    fn copies_the_beginning_of_long_texts() {
        let long = "é".repeat(MAX_VALUES);
        let long = format!("x{long}");
        let call = ObservedCall::new(CallSession::Client(1), None, Some("{}"), Some(&long));
        assert_eq!((call.arguments(), call.result().len()), ("{}", MAX_VALUES - 1));
        let alone = ObservedCall::new(CallSession::Single, None, Some("{}"), Some(&long));
        assert_eq!((alone.arguments(), alone.result()), ("", ""));
    }
}
