//! Reads the event streams of Streamable HTTP. The stream of a response is resumed when it breaks. The GET stream, on which a
//! server sends its own requests and notifications, is kept open.

use std::sync::Arc;
use std::time::Duration;

use bascule_model::Delivery;
use http::Method;
use http::header::{HeaderName, HeaderValue};
use hyper::body::Incoming;
use tokio::time::{Instant, sleep};

use super::{EVENT_STREAM, HttpLink, PendingDelivery, has_media_type, transport_failure};
use crate::scan::ScannedMessage;
use crate::sse::{EventReader, ResumePoint, SseEvent};
use crate::{Failure, TransportError};

const LAST_EVENT_ID: HeaderName = HeaderName::from_static("last-event-id");
/// The stream of a response is resumed at most this many times in a row without a new event.
const MAX_RESUMES: u32 = 5;
const DEFAULT_PAUSE: Duration = Duration::from_secs(1);
/// Lower limit for the pause that a server asks for: it may ask for none, again and again.
const MIN_PAUSE: Duration = Duration::from_millis(100);
const MAX_PAUSE: Duration = Duration::from_secs(30);

/// The failure to open a stream.
enum OpenError {
    Temporary(TransportError),
    Permanent(TransportError),
}

impl HttpLink {
    /// Reads a response from its event stream. Resumes a stream that ends too early, if its events have ids.
    pub(super) async fn receive_events(self: &Arc<Self>, id: u64, mut body: Incoming) -> Result<(), Failure> {
        let mut events = EventReader::new(self.client.limit());
        let mut attempts = 0;
        loop {
            let on_event = |event| self.deliver_event(id, event);
            let ended = self.client.read_events(&mut body, &mut events, on_event).await;
            if !self.client.router.is_pending(id) {
                return Ok(());
            }
            if events.count() > 0 {
                attempts = 0;
            }
            let interrupted = ended
                .err()
                .unwrap_or_else(|| self.client.interrupted_error("the stream ended before the response"));
            body = self.resume(events.resume_point(), &mut attempts, interrupted).await?;
            events = EventReader::resuming(self.client.limit(), events.resume_point().clone());
        }
    }

    /// Delivers the message in an event of the stream of request `id`. A large one is returned as a future.
    fn deliver_event(self: &Arc<Self>, id: u64, event: SseEvent) -> Option<PendingDelivery> {
        match event {
            SseEvent::Data(data) | SseEvent::Endpoint(data) => return self.deliver(data, Some(id)),
            // A message too long to find its id is taken for the response that the stream was opened for.
            SseEvent::TooLong(ScannedMessage::Unknown) => {
                let limit = self.client.limit();
                self.client.router.fail(id, Failure::TooLong { limit, is_matched: false });
            }
            SseEvent::TooLong(scanned) => self.client.router.deliver_oversized(scanned),
        }
        None
    }

    /// Opens the continuation of an interrupted stream, or returns the failure of the request.
    async fn resume(
        &self,
        point: &ResumePoint,
        attempts: &mut u32,
        interrupted: TransportError,
    ) -> Result<Incoming, Failure> {
        let Some(last) = &point.last_id else { return Err(transport_failure(interrupted)) };
        while *attempts < MAX_RESUMES {
            sleep(pause(point.retry, *attempts)).await;
            *attempts += 1;
            match self.open_stream(Some(last)).await {
                Ok(body) => return Ok(body),
                Err(OpenError::Temporary(cause)) => tracing::debug!(%cause, "could not resume a stream yet"),
                Err(OpenError::Permanent(cause)) => {
                    let reason = match interrupted {
                        TransportError::Interrupted { reason, .. } => reason,
                        other => other.to_string(),
                    };
                    let reason = format!("{reason}, and its stream could not be resumed: {cause}");
                    // The request had reached the server before the stream was interrupted.
                    let cause = Arc::new(self.client.interrupted_error(reason));
                    return Err(Failure::Transport { delivery: Delivery::Unknown, cause });
                }
            }
        }
        Err(transport_failure(interrupted))
    }

    /// Keeps the GET stream open until the connection is closed, if the server supports it.
    pub(crate) fn open_server_stream(self: &Arc<Self>) {
        let (link, stop) = (self.clone(), self.client.stop.clone());
        self.client.tasks.spawn(async move {
            let _ = stop.run_until_cancelled(link.keep_server_stream()).await;
        });
    }

    async fn keep_server_stream(self: &Arc<Self>) {
        let (mut point, mut attempts) = (ResumePoint::default(), 0);
        loop {
            match self.open_stream(point.last_id.as_ref()).await {
                Ok(body) => {
                    let since = Instant::now();
                    let had_events;
                    (point, had_events) = self.read_server_stream(body, point).await;
                    // A proxy may have closed a stream without messages because it was idle, which is no failure.
                    if had_events || since.elapsed() >= MAX_PAUSE {
                        attempts = 0;
                    }
                }
                Err(OpenError::Temporary(cause)) => {
                    tracing::debug!(%cause, "could not open the stream for server messages")
                }
                // A server that cannot resume may still open a new stream.
                Err(OpenError::Permanent(_)) if point.last_id.take().is_some() => {}
                Err(OpenError::Permanent(cause)) => {
                    return tracing::debug!(%cause, "the server has no stream for its own messages");
                }
            }
            sleep(pause(point.retry, attempts)).await;
            attempts = attempts.saturating_add(1);
        }
    }

    /// Reads one stream to its end. Returns its resume point, and true if there were events.
    async fn read_server_stream(
        self: &Arc<Self>,
        mut body: Incoming,
        point: ResumePoint,
    ) -> (ResumePoint, bool) {
        let mut events = EventReader::resuming(self.client.limit(), point);
        let on_event = |event| match event {
            SseEvent::Data(data) | SseEvent::Endpoint(data) => self.deliver(data, None),
            // This stream holds no responses.
            SseEvent::TooLong(_) => {
                self.client.router.deliver_oversized(ScannedMessage::RequestOrNotification(None));
                None
            }
        };
        let ended = self.client.read_events(&mut body, &mut events, on_event).await;
        tracing::debug!(?ended, events = events.count(), "a stream ended");
        (events.resume_point().clone(), events.count() > 0)
    }

    async fn open_stream(&self, after: Option<&HeaderValue>) -> Result<Incoming, OpenError> {
        let mut request = self.request_without_body(Method::GET, EVENT_STREAM);
        if let Some(after) = after {
            request.headers_mut().insert(LAST_EVENT_ID, after.clone());
        }
        let response = self.client.fetch(request).await.map_err(OpenError::Temporary)?;
        let is_stream = has_media_type(response.headers(), EVENT_STREAM);
        let status = response.status();
        if status.is_success() && is_stream {
            return Ok(response.into_body());
        }
        if self.is_session_expired(status) {
            self.expire_session(None);
        }
        let (url, status) = (self.client.redacted_url(), status.as_u16());
        let cause = TransportError::Status { url, status, body: String::new() };
        // 409: the server has not noticed yet that the previous stream has ended.
        Err(match status {
            408 | 409 | 429 | 500 | 502..=504 => OpenError::Temporary(cause),
            _ => OpenError::Permanent(cause),
        })
    }
}

/// Returns the pause before a stream is opened again. `attempts` counts the attempts since the last event.
fn pause(retry: Option<Duration>, attempts: u32) -> Duration {
    let first = retry.unwrap_or(DEFAULT_PAUSE).max(MIN_PAUSE);
    first.saturating_mul(1 << attempts.min(10)).min(MAX_PAUSE.max(first))
}

#[cfg(test)]
mod tests {
    use super::*;

    // req: BR-01
    #[test]
    fn uses_the_retry_of_the_server_and_backs_off() {
        let pauses = |retry: Option<u64>| {
            [0, 1, 2, 5, 1000].map(|n| pause(retry.map(Duration::from_millis), n).as_millis())
        };
        assert_eq!(pauses(None), [1000, 2000, 4000, 30_000, 30_000]);
        assert_eq!(pauses(Some(300)), [300, 600, 1200, 9600, 30_000]);
        assert_eq!(pauses(Some(0)), [100, 200, 400, 3200, 30_000], "not below the minimum");
        assert_eq!(pauses(Some(60_000)), [60_000; 5], "a longer one is respected");
    }
}
