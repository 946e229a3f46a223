//! RabbitMQ as a bus.
