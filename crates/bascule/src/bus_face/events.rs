//! Publishes the bridge's events on the bus, each under its own name.

use std::sync::Arc;

use bascule_bus::{EmbeddedBus, Envelope, SubscribeOptions, Subscription, SubscriptionItem, TopicPattern};
use tracing::warn;

use super::BusFace;

/// Subscribes to the events of a bridge. The queue drops the oldest ones if the broker is slow.
pub(super) fn subscribe(events: &EmbeddedBus) -> Subscription {
    let pattern = TopicPattern::parse("provider.mcp.#").expect("it is a pattern");
    events.subscribe(pattern, SubscribeOptions::default())
}

impl BusFace {
    /// Publishes events until their bus is closed.
    pub(super) async fn publish_events(self: Arc<Self>, mut events: Subscription) {
        while let Some(item) = events.next().await {
            match item {
                SubscriptionItem::Message(message) => {
                    let envelope = Envelope::clone(&message.envelope);
                    let envelope = Envelope { source: self.source.clone().into(), ..envelope };
                    if let Err(error) = self.bus.publish(&message.topic, &envelope).await {
                        let dropped = self.monitor.count_dropped_events(1);
                        warn!(event = %message.topic, dropped, %error, "an event was not published");
                    }
                }
                SubscriptionItem::Lost(count) => {
                    let dropped = self.monitor.count_dropped_events(count);
                    warn!(count, dropped, "events were not published: the broker is too slow");
                }
            }
        }
    }
}
