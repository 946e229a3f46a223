//! What a confined server tries, and how it fails: real processes against the real kernel, as root and as nobody.

pub mod hostile;

mod escapes;
mod files;
mod limits;
mod network;
mod survivors;
