//! A call as the graph of tools observes it: its relations to other calls, and its values before they become fingerprints.

use bascule_graph::CallSession;

/// The beginning of arguments and of a result that is read, in bytes. It has room for most of the 256 values that a text may
/// have, and the call waits for a small copy only.
const MAX_VALUES: usize = 16 << 10;

/// The part of a call that its span does not have. The texts may hold secrets: the writer thread turns them into fingerprints, and
/// drops them.
pub struct ObservedCall {
    pub session: CallSession,
    /// The span of the script that made the call.
    pub script: Option<u64>,
    pub(crate) arguments: Option<Box<str>>,
    pub(crate) result: Option<Box<str>>,
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
        let copy = |text: &str| text[..text.floor_char_boundary(MAX_VALUES)].into();
        let [arguments, result] = [arguments, result].map(|text| text.filter(|_| is_related).map(copy));
        Self { session, script, arguments, result }
    }

    /// The memory that it holds, roughly.
    pub(crate) fn bytes(&self) -> usize {
        let values = [&self.arguments, &self.result].into_iter().flatten();
        size_of::<Self>() + values.map(|text| text.len()).sum::<usize>()
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
        assert_eq!((call.arguments.as_deref(), call.result.unwrap().len()), (Some("{}"), MAX_VALUES - 1));
        let alone = ObservedCall::new(CallSession::Single, None, Some("{}"), Some(&long));
        assert!(alone.arguments.is_none() && alone.result.is_none());
    }
}
