//! Counts the work of a translation, so that no schema keeps its thread for long.

use std::cell::Cell;

use super::types::Type;

/// The most work of one translation: parts of types that are copied or compared.
pub(super) const MAX_WORK: usize = 1_000_000;

#[derive(Debug, Default)]
pub(super) struct Work {
    spent: Cell<usize>,
    /// The number of times that work was refused.
    refused: Cell<usize>,
}

impl Work {
    /// Returns false if the work is too much. It must not be done then.
    pub(super) fn spend(&self, amount: usize) -> bool {
        let spent = self.spent.get().saturating_add(amount);
        if self.is_exceeded() || spent > MAX_WORK {
            self.refused.set(self.refused.get() + 1);
            return false;
        }
        self.spent.set(spent);
        true
    }

    pub(super) fn is_exceeded(&self) -> bool {
        self.refused.get() > 0
    }

    #[cfg(test)]
    pub(super) fn counts(&self) -> (usize, usize) {
        (self.spent.get(), self.refused.get())
    }

    /// Returns the type of a part that would be too much work.
    pub(super) fn exceeded_type() -> Type {
        Type::unknown_because("the schema is too complex")
    }
}
