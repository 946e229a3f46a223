//! The bridge on a message bus.

mod availability;
mod requests;
mod test_agent;
