//! The bridge on a message bus.

mod availability;
mod python_agents;
mod requests;
mod test_agent;
