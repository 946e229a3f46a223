//! NATS as a bus.
