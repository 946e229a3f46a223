//! Messages for the cases.

#[path = "../common/mod.rs"]
mod common;

use bascule_bus::{AgentName, RequestDelivery};

pub(crate) use self::common::{id, message, next, next_message, publish};

pub(crate) fn agent() -> AgentName {
    common::agent("a")
}

pub(crate) fn id_of(delivery: &RequestDelivery) -> String {
    common::id_of(&delivery.message)
}
