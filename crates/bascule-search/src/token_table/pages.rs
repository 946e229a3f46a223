//! Returns the memory of the built-in table to the system between searches.
#![allow(unsafe_code, reason = "advice about memory is an unsafe function")]

use std::ops::Range;

use rustix::mm::{Advice, madvise};

use super::FILE;

/// At least the size of a page on every machine, and a multiple of it.
const PAGE: usize = 64 << 10;

/// Lets the system take back the pages of the table that searches have read: 8 MB that are needed for a moment. The next search
/// finds them in the file of the program, which the system caches.
pub fn release_table() {
    let Range { start, end } = FILE.as_ptr_range();
    let (start, end) = (start.addr().next_multiple_of(PAGE), end.addr() / PAGE * PAGE);
    let Some(length) = end.checked_sub(start).filter(|length| *length > 0) else { return };
    let pages = FILE.as_ptr().with_addr(start).cast_mut().cast();
    // SAFETY: the pages are within a constant of the program. Nothing ever writes to them, so their content in memory is that in the
    // file of the program, and a later read maps them again. A failure changes nothing.
    let _ = unsafe { madvise(pages, length, Advice::LinuxDontNeed) };
}

#[cfg(test)]
mod tests {
    use super::*;

    // req: SE-01
    #[test]
    fn table_is_the_same_after_its_pages_were_released() {
        let before = FILE.to_vec();
        release_table();
        assert!(before == FILE);
    }
}
