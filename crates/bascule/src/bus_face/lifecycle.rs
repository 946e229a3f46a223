//! The life of one request: claimed, run, answered, and removed from the queue, in this order.
//!
//! The order decides what a replica that dies leaves behind. A claim without an answer means that the call may have run; a
//! recorded answer can be published again. A call that may run twice does not wait for its claim.

use std::convert::Infallible;
use std::pin::pin;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use bascule_bus::{
    BusError, Claim, ClaimTicket, Envelope, KEEP_INTERVAL, RequestDelivery, publish_answer, store_long_result,
};
use bascule_model::{
    BridgeError, BridgeResult, CallOutcome, CallRequest, CallTimeout, Delivery, ErrorCode, ToolId, clip,
};
use serde_json::value::RawValue;
use tokio::sync::mpsc;
use tracing::{debug, warn};

use super::BusFace;
use super::incoming::{IncomingRequest, RequestProblem};
use crate::call::{CallContext, refused_tool};
use crate::call_record::{Caller, Face};
use crate::fleet::request::ProgressSink;

/// A former replica may still be at work: its request is looked at again after this time,
const ABANDONED_DELAY: Duration = Duration::from_secs(2);
/// and at this delivery the replica is taken to be gone.
const ABANDONED_ATTEMPT: u32 = 3;
/// A request that could not be sent is returned to the queue at most this often.
const MAX_RETURNS: u32 = 3;
/// The first delay of a returned request whose server does not name one. It doubles.
const RETURN_DELAY: Duration = Duration::from_millis(500);
/// The delay of a request whose claim or answer the broker did not take.
const BROKER_DELAY: Duration = Duration::from_secs(2);
/// A request that could not be claimed again and again waits this many times as long.
const MAX_CLAIM_DELAYS: u32 = 8;
/// The first pause between two attempts to reach the broker, and the longest.
const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(2);
/// The wait for the first start of a server whose call may be repeated.
const SERVER_START: Duration = Duration::from_secs(10);
/// The progress messages that wait for the broker. More are dropped.
const MAX_PROGRESS: usize = 16;

/// The longest reason of a dead letter. The parser quotes the values that it refuses.
const MAX_REASON: usize = 256;

/// The end of a delivery.
enum DeliveryEnd {
    Acknowledge,
    ReturnAfter(Duration),
}

/// The end of a call that began before its claim was known.
enum EarlyRun {
    Settled(DeliveryEnd),
    /// Another one has the claim. The call was dropped.
    NotWon(Result<Claim, BusError>),
}

/// The result of running a request.
enum Run {
    Answered(BridgeResult<CallOutcome>),
    /// The call was not sent, and may be later.
    Later(Duration),
}

impl BusFace {
    pub(super) async fn handle(self: Arc<Self>, delivery: RequestDelivery) {
        let _counted = self.monitor.count_request();
        let settlement = tokio::select! {
            settlement = self.process(&delivery) => settlement,
            never = keep(&delivery) => match never {},
        };
        let settled = match settlement {
            DeliveryEnd::Acknowledge => delivery.acknowledge().await,
            DeliveryEnd::ReturnAfter(delay) => delivery.return_after(delay).await,
        };
        if let Err(error) = settled {
            warn!(%error, "a request was not settled: it is delivered again");
        }
    }

    async fn process(&self, delivery: &RequestDelivery) -> DeliveryEnd {
        let options = &self.options;
        let (max_bytes, agent_timeout) = (options.max_request_bytes, options.agent_timeout);
        let stored = delivery.stored;
        let request = match IncomingRequest::read(
            &delivery.message,
            &options.agent,
            max_bytes,
            agent_timeout,
            stored,
        ) {
            Ok(request) => request,
            Err(reason) => return self.bury_request(delivery, clip(&reason, MAX_REASON)).await,
        };
        let claim = match self.early_ticket(delivery, &request) {
            None => delivery.claim(&request.envelope.message_id).await,
            Some(ticket) => match self.run_early(delivery, &ticket, &request).await {
                EarlyRun::Settled(settlement) => return settlement,
                EarlyRun::NotWon(claim) => claim,
            },
        };
        self.follow_claim(delivery, &request, claim).await
    }

    /// Continues with a request as its claim requires.
    async fn follow_claim(
        &self,
        delivery: &RequestDelivery,
        request: &IncomingRequest,
        claim: Result<Claim, BusError>,
    ) -> DeliveryEnd {
        let id = &request.envelope.message_id;
        match claim {
            Ok(Claim::Won(ticket)) => {
                let run = self.run(delivery.attempt, request).await;
                self.finish(delivery, ticket, request, run).await
            }
            Ok(Claim::Abandoned(_)) if delivery.attempt < ABANDONED_ATTEMPT => {
                DeliveryEnd::ReturnAfter(ABANDONED_DELAY)
            }
            Ok(Claim::Abandoned(ticket)) => self.resume(delivery, ticket, request).await,
            Ok(Claim::Published) => DeliveryEnd::Acknowledge,
            Ok(Claim::Duplicate) => {
                debug!(message = %id, "ignored a duplicate of a request");
                DeliveryEnd::Acknowledge
            }
            Ok(Claim::InProgress) => DeliveryEnd::ReturnAfter(ABANDONED_DELAY),
            Ok(Claim::Reused) => self.refuse_reused_id(delivery, request).await,
            Ok(Claim::Answered(answer)) => self.publish(delivery, request, &answer).await,
            Err(error) => {
                warn!(message = %id, %error, "a request could not be claimed");
                DeliveryEnd::ReturnAfter(claim_delay(delivery.attempt))
            }
        }
    }

    /// Returns a ticket if the call may begin before its claim is known: it may run twice.
    fn early_ticket(&self, delivery: &RequestDelivery, request: &IncomingRequest) -> Option<ClaimTicket> {
        let ticket = delivery.early_ticket(&request.envelope.message_id)?;
        let tool = ToolId::parse(&request.tool_name).ok()?;
        self.bridge.may_repeat(&tool).then_some(ticket)
    }

    /// Runs a request while its claim is under way. The broker takes one answer alone, with or without a claim.
    async fn run_early(
        &self,
        delivery: &RequestDelivery,
        ticket: &ClaimTicket,
        request: &IncomingRequest,
    ) -> EarlyRun {
        let mut claim = pin!(delivery.claim(&request.envelope.message_id));
        let mut run = pin!(self.run(delivery.attempt, request));
        let (claim, run) = tokio::select! {
            // The claim is sent before the call.
            biased;
            claim = &mut claim => match &claim {
                Ok(Claim::Won(_)) => (claim, run.await),
                _ => return EarlyRun::NotWon(claim),
            },
            run = &mut run => match run {
                Run::Answered(result) => {
                    // Not removed from the queue before the claim is known: it keeps duplicates from running.
                    let answering = self.answer(delivery, ticket, request, result);
                    return EarlyRun::Settled(tokio::join!(answering, claim).0);
                }
                later => (claim.await, later),
            },
        };
        match claim {
            Ok(Claim::Won(ticket)) => EarlyRun::Settled(self.finish(delivery, ticket, request, run).await),
            claim => EarlyRun::NotWon(claim),
        }
    }

    /// Answers a message whose id belongs to another request. That request's answer is none of its business.
    async fn refuse_reused_id(&self, delivery: &RequestDelivery, request: &IncomingRequest) -> DeliveryEnd {
        let id = &request.envelope.message_id;
        let message =
            format!("message id `{id}` belongs to a request with another body: give each request its own");
        let error = BridgeError::new(ErrorCode::InvalidInput, Delivery::NotSent, message);
        let answer = self.answer_to(request, Err(self.record_refusal(request, error)));
        // The other request's answer has the id that follows from the message id.
        let answer = Envelope { message_id: self.ids.generate(), ..answer };
        self.publish(delivery, request, &answer).await
    }

    /// Handles a request that another replica has begun and left. A call that may have run is repeated only if that does no
    /// harm.
    async fn resume(
        &self,
        delivery: &RequestDelivery,
        ticket: ClaimTicket,
        request: &IncomingRequest,
    ) -> DeliveryEnd {
        if self.may_repeat(&request.tool_name).await {
            let run = self.run(delivery.attempt, request).await;
            return self.finish(delivery, ticket, request, run).await;
        }
        let message = "the bridge that ran the call has ended: the call may or may not have run";
        let error = BridgeError::new(ErrorCode::OutcomeUnknown, Delivery::Unknown, message);
        let error = self.record_refusal(request, error);
        self.answer(delivery, &ticket, request, Err(error)).await
    }

    async fn may_repeat(&self, tool: &str) -> bool {
        let Ok(tool) = ToolId::parse(tool) else { return false };
        // The tools of a server that is starting need not be known yet.
        self.bridge.wait_for_first_start(tool.server(), SERVER_START).await;
        self.bridge.may_repeat(&tool)
    }

    async fn finish(
        &self,
        delivery: &RequestDelivery,
        ticket: ClaimTicket,
        request: &IncomingRequest,
        run: Run,
    ) -> DeliveryEnd {
        match run {
            Run::Answered(result) => self.answer(delivery, &ticket, request, result).await,
            Run::Later(delay) => match delivery.release(ticket).await {
                Ok(()) => DeliveryEnd::ReturnAfter(delay),
                Err(error) => {
                    warn!(correlation_id = %request.correlation_id, %error, "a claim could not be given back");
                    DeliveryEnd::ReturnAfter(BROKER_DELAY)
                }
            },
        }
    }

    /// Runs a request through the pipeline, unless there is a reason not to.
    async fn run(&self, attempt: u32, request: &IncomingRequest) -> Run {
        let call = self.cancellations.register(&request.tool_call_id, &request.envelope.message_id);
        let (tool, timeout) = match self.check(request) {
            Ok(_) if call.cancelled.is_cancelled() => {
                return Run::Answered(Err(self.record_refusal(request, cancelled(Delivery::NotSent))));
            }
            Ok(accepted) => accepted,
            Err(error) => return Run::Answered(Err(self.record_refusal(request, error))),
        };
        let delay = OnceLock::new();
        let retries_later = |error: &BridgeError| {
            self.retry_delay(attempt, request, error).is_some_and(|time| delay.set(time).is_ok())
        };
        let result = tokio::select! {
            biased;
            result = self.call(request, tool.clone(), timeout, &retries_later) => result,
            () = call.cancelled.cancelled() => Err(self.explained(request, cancelled(Delivery::Unknown))),
            () = self.abort.cancelled() => match self.bridge.may_repeat(&tool) {
                true => return Run::Later(Duration::ZERO),
                false => Err(self.explained(request, stopped())),
            },
        };
        match delay.into_inner() {
            // The pipeline has left its record to the next attempt.
            Some(_) if call.cancelled.is_cancelled() => {
                Run::Answered(Err(self.record_refusal(request, cancelled(Delivery::NotSent))))
            }
            Some(delay) => Run::Later(delay),
            None => Run::Answered(result),
        }
    }

    /// Returns the tool and the time for its call, or the reason why the request is not run.
    fn check(&self, request: &IncomingRequest) -> BridgeResult<(ToolId, CallTimeout)> {
        let refused = |code, message: String| Err(BridgeError::new(code, Delivery::NotSent, message));
        match &request.problem {
            Some(RequestProblem::Body(error)) => {
                return refused(ErrorCode::InvalidInput, format!("the request cannot be read: {error}"));
            }
            Some(RequestProblem::Arguments) => {
                return refused(ErrorCode::InvalidInput, "the arguments of a call must be an object".into());
            }
            Some(RequestProblem::ReplyTo(topic)) => {
                let agent = &self.options.agent;
                let message = format!(
                    "the answer cannot go to `{topic}`: agent `{agent}` receives at `tool.result.{agent}`, at topics below it and at inboxes of NATS"
                );
                return refused(ErrorCode::PolicyDenied, message);
            }
            None => {}
        }
        let Some(left) = request.time_left() else {
            let message = "the request was not run: its deadline had passed when a bridge received it";
            return refused(ErrorCode::ProviderTimeout, message.into());
        };
        let name = &request.tool_name;
        let Ok(tool) = ToolId::parse(name) else {
            return refused(ErrorCode::ToolNotFound, format!("`{name}` is no tool: write `server:tool`"));
        };
        Ok((tool, CallTimeout { since: Instant::now(), duration: self.options.timeout.min(left) }))
    }

    /// Makes the call, and publishes its progress meanwhile.
    async fn call(
        &self,
        request: &IncomingRequest,
        tool: ToolId,
        timeout: CallTimeout,
        retries_later: &(dyn Fn(&BridgeError) -> bool + Sync),
    ) -> BridgeResult<CallOutcome> {
        let call = CallRequest { tool, arguments: request.arguments.clone(), timeout: Some(timeout) };
        let id = Some(request.correlation_id.clone());
        let retries_later = Some(retries_later);
        let context = CallContext { caller: self.caller(request), retries_later, ..CallContext::default() };
        if !request.wants_progress {
            return self.bridge.call_with(call, context, id).await;
        }
        let (sender, mut notifications) = mpsc::channel(MAX_PROGRESS);
        let sink = move |params: &RawValue, _: Option<&str>| drop(sender.try_send(params.to_owned()));
        let context = CallContext { progress: Some(Arc::new(sink) as ProgressSink), ..context };
        // Never ends by itself: the call decides.
        let publishing = async {
            self.publish_progress(request, &mut notifications).await;
            std::future::pending::<Infallible>().await
        };
        let result = tokio::select! {
            biased;
            result = self.bridge.call_with(call, context, id) => result,
            never = publishing => match never {},
        };
        // The call has dropped the sender: the rest comes to an end.
        self.publish_progress(request, &mut notifications).await;
        result
    }

    async fn publish_progress(
        &self,
        request: &IncomingRequest,
        notifications: &mut mpsc::Receiver<Box<RawValue>>,
    ) {
        while let Some(params) = notifications.recv().await {
            let Some(progress) = self.progress_of(request, &params) else { continue };
            if let Err(error) = self.bus.publish(&request.answer_topic, &progress).await {
                debug!(correlation_id = %request.correlation_id, %error, "progress was not published");
            }
        }
    }

    fn caller(&self, request: &IncomingRequest) -> Caller {
        let agent = Some(self.options.agent.as_str().into());
        Caller { agent, trace: request.trace.clone(), ..Caller::of_face(Face::Bus) }
    }

    /// Records a request that is not run, and completes its error.
    fn record_refusal(&self, request: &IncomingRequest, error: Box<BridgeError>) -> Box<BridgeError> {
        let tool = ToolId::parse(&request.tool_name).unwrap_or_else(|_| refused_tool("", &request.tool_name));
        let call = CallRequest { tool, arguments: request.arguments.clone(), timeout: None };
        self.bridge.record_refusal(&call, self.caller(request), &request.correlation_id, None, error)
    }

    /// Completes the error of a call that was dropped: the pipeline has recorded it.
    fn explained(&self, request: &IncomingRequest, mut error: Box<BridgeError>) -> Box<BridgeError> {
        error.correlation_id = Some(request.correlation_id.clone());
        match ToolId::parse(&request.tool_name) {
            Ok(tool) => crate::normalise::addressed(error, &tool),
            Err(_) => error,
        }
    }

    /// Returns the delay after which a call that was not sent is tried again, if that makes sense.
    fn retry_delay(&self, attempt: u32, request: &IncomingRequest, error: &BridgeError) -> Option<Duration> {
        let may_pass = matches!(error.code, ErrorCode::ProviderUnavailable | ErrorCode::RateLimited);
        if !may_pass || !error.retryable || error.delivery != Delivery::NotSent || attempt > MAX_RETURNS {
            return None;
        }
        let backoff = RETURN_DELAY * 2u32.pow(attempt.saturating_sub(1));
        let delay =
            error.retry_after_ms.map_or(backoff, |millis| Duration::from_millis(millis).max(FIRST_PAUSE));
        (delay < self.options.timeout && request.time_left()? > delay).then_some(delay)
    }

    /// Records the answer, then publishes it.
    async fn answer(
        &self,
        delivery: &RequestDelivery,
        ticket: &ClaimTicket,
        request: &IncomingRequest,
        result: BridgeResult<CallOutcome>,
    ) -> DeliveryEnd {
        let answer = self.answer_to(request, result);
        let stored = self.persist("store a result", || store_long_result(&self.bus, answer.clone()));
        let answer = match stored.await {
            Ok(answer) => answer,
            Err(error) if error.is_retryable() => return DeliveryEnd::ReturnAfter(BROKER_DELAY),
            Err(error) => self.unstored(request, &error),
        };
        let record = async |answer: &Envelope| {
            self.persist("record an answer", || delivery.record_answer(ticket, answer)).await
        };
        let (answer, recorded) = match record(&answer).await {
            Err(error @ BusError::TooLarge { .. }) => {
                let answer = self.unstored(request, &error);
                let recorded = record(&answer).await;
                (answer, recorded)
            }
            recorded => (answer, recorded),
        };
        match recorded {
            Ok(true) if delivery.publishes_recorded_answer() => DeliveryEnd::Acknowledge,
            Ok(true) => self.publish(delivery, request, &answer).await,
            // The other replica's answer is the one. It is published again if that replica could not.
            Ok(false) => DeliveryEnd::ReturnAfter(ABANDONED_DELAY),
            Err(error) => {
                warn!(correlation_id = %request.correlation_id, %error, "an answer was not recorded");
                DeliveryEnd::ReturnAfter(BROKER_DELAY)
            }
        }
    }

    /// Builds the answer to a request whose result the bus does not take.
    fn unstored(&self, request: &IncomingRequest, error: &BusError) -> Envelope {
        let message = format!("the tool has answered, but its result could not be stored: {error}");
        let error = BridgeError::new(ErrorCode::InvalidOutput, Delivery::Answered, message);
        self.answer_to(request, Err(self.explained(request, error)))
    }

    /// Publishes a recorded answer. One that the broker never takes makes a dead letter of its request.
    async fn publish(
        &self,
        delivery: &RequestDelivery,
        request: &IncomingRequest,
        answer: &Envelope,
    ) -> DeliveryEnd {
        let topic = &request.answer_topic;
        let publish = || publish_answer(&self.bus, topic, answer);
        match self.persist("publish an answer", publish).await {
            Ok(()) => DeliveryEnd::Acknowledge,
            Err(error) if error.is_retryable() => DeliveryEnd::ReturnAfter(BROKER_DELAY),
            Err(error) => {
                self.bury_request(delivery, &format!("its answer could not be published: {error}")).await
            }
        }
    }

    async fn bury_request(&self, delivery: &RequestDelivery, reason: &str) -> DeliveryEnd {
        warn!(topic = %delivery.message.topic, reason, "a request becomes a dead letter");
        // One letter, whose id tells the broker that a repeated attempt is none of its own.
        let letter = self.dead_letter_of(&delivery.message, reason);
        match self.persist("publish a dead letter", || self.bury(&letter)).await {
            Ok(()) => DeliveryEnd::Acknowledge,
            Err(error) => {
                warn!(%error, "a dead letter was not published");
                DeliveryEnd::ReturnAfter(BROKER_DELAY)
            }
        }
    }

    /// Repeats an operation until the broker takes it, for as long as an agent waits.
    async fn persist<T, F: Future<Output = Result<T, BusError>>>(
        &self,
        operation: &str,
        mut attempt: impl FnMut() -> F,
    ) -> Result<T, BusError> {
        let (started, mut pause) = (Instant::now(), FIRST_PAUSE);
        loop {
            match attempt().await {
                // A broker also refuses for a while: when it starts, and when a cluster elects a leader.
                Err(error) if !is_final(&error) && started.elapsed() < self.options.agent_timeout => {
                    debug!(operation, %error, "the broker did not respond: trying again");
                }
                result => return result,
            }
            tokio::time::sleep(pause).await;
            pause = (2 * pause).min(LONGEST_PAUSE);
        }
    }
}

/// Returns true if the same operation cannot succeed later.
fn is_final(error: &BusError) -> bool {
    matches!(error, BusError::TooLarge { .. } | BusError::Closed | BusError::NotBuilt { .. })
}

/// Tells the broker that the request is being handled, again and again.
async fn keep(delivery: &RequestDelivery) -> Infallible {
    loop {
        tokio::time::sleep(KEEP_INTERVAL).await;
        if let Err(error) = delivery.keep().await {
            debug!(%error, "a request could not be kept: it may be delivered to another bridge");
        }
    }
}

/// The delay of a request whose claim the broker did not take. One that has no room for claims needs minutes.
fn claim_delay(attempt: u32) -> Duration {
    BROKER_DELAY * attempt.clamp(1, MAX_CLAIM_DELAYS)
}

fn cancelled(delivery: Delivery) -> Box<BridgeError> {
    BridgeError::new(ErrorCode::Cancelled, delivery, "the agent cancelled the call")
}

fn stopped() -> Box<BridgeError> {
    let message = "the bridge was stopped during the call: the call may or may not have run";
    BridgeError::new(ErrorCode::OutcomeUnknown, Delivery::Unknown, message)
}
