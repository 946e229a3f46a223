//! What every bus promises. Each case is a function over a [`Broker`] and runs on every bus that is built in.

#![allow(clippy::unwrap_used, reason = "cases are tests")]

mod broker;
mod messages;
mod requests;
mod support;

/// Makes a test of each case for each bus.
macro_rules! contract {
    (on brokers: $($module:ident::$case:ident),* $(,)?) => {
        #[cfg(feature = "nats")]
        contract!(@bus nats_broker, broker::Nats; $($module::$case),*);
        #[cfg(feature = "rabbitmq")]
        contract!(@bus rabbitmq_broker, broker::RabbitMq; $($module::$case),*);
    };
    ($($module:ident::$case:ident),* $(,)?) => {
        contract!(@bus embedded, broker::Embedded; $($module::$case),*);
        #[cfg(feature = "nats")]
        contract!(@bus nats, broker::Nats; $($module::$case),*);
        #[cfg(feature = "rabbitmq")]
        contract!(@bus rabbitmq, broker::RabbitMq; $($module::$case),*);
    };
    (@bus $name:ident, $broker:ty; $($module:ident::$case:ident),*) => {
        mod $name {
            use crate::*;
            $(
                #[tokio::test]
                async fn $case() {
                    let broker = <$broker as broker::Broker>::start();
                    $module::$case(&broker).await;
                }
            )*
        }
    };
}

contract!(
    requests::each_request_goes_to_one_replica_of_its_agent,
    requests::request_that_was_not_acknowledged_is_delivered_again,
    requests::duplicate_of_an_answered_request_gets_the_same_answer,
    requests::duplicate_of_a_request_in_progress_is_recognised,
    requests::repetition_that_comes_during_the_claim_is_recognised,
    requests::reused_id_with_another_body_is_recognised,
    requests::duplicate_with_another_topic_waits_for_the_answer,
    requests::returned_request_comes_later_and_can_be_claimed,
    requests::full_replica_leaves_requests_to_others,
    requests::only_one_of_two_answers_is_recorded,
    requests::request_that_names_no_agent_is_reported_by_one_bridge,
    requests::closed_bus_ends_queues_and_subscriptions,
    messages::every_subscriber_gets_every_matching_message,
    messages::envelope_arrives_unchanged,
);

// The embedded bus carries envelopes, not bytes.
contract!(
    on brokers:
    requests::request_on_the_shared_topic_with_a_wrong_field_reaches_its_agent,
);
