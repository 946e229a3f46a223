//! Converts the return value of a system call.

use std::io;

/// Returns the value, or the error that the call has set if the value is negative.
pub(crate) fn check<T: Default + PartialOrd>(result: T) -> io::Result<T> {
    if result < T::default() { Err(io::Error::last_os_error()) } else { Ok(result) }
}
