//! The bridge on a message bus.

mod availability;
mod connect;
mod python_agents;
mod rabbitmq;
mod replicas;
mod requests;
mod service;
mod test_agent;
