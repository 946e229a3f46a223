//! Event streams of Streamable HTTP: resumes streams that broke off, and keeps a stream open for unsolicited messages
//! of the server.

use std::sync::Arc;
use std::time::Duration;

use bascule_model::Delivery;
use http::header::{HeaderName, HeaderValue};
use hyper::body::Incoming;
use tokio::time::{Instant, sleep};

use super::{HttpLink, broken, media_type};
use crate::scan::Unread;
use crate::sse::{Event, EventReader, Place};
use crate::{Failure, TransportError};

const LAST_EVENT: HeaderName = HeaderName::from_static("last-event-id");
/// Maximum number of consecutive attempts to resume a response stream without a new event.
const MOST_FRUITLESS: u32 = 5;
const USUAL_PAUSE: Duration = Duration::from_secs(1);
/// Minimum pause. A server that requests immediate reconnection may do so for ever.
const SHORTEST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);

/// The reason why a stream could not be opened.
enum Unopened {
    /// A later attempt may succeed.
    ForNow(TransportError),
    /// No later attempt can succeed.
    ForGood(TransportError),
}

impl HttpLink {
    /// Reads the response to a request from its stream. A stream that ends early is resumed if its events have ids.
    pub(super) async fn take_events(self: &Arc<Self>, id: u64, mut body: Incoming) -> Result<(), Failure> {
        let mut events = EventReader::new(self.remote.limit());
        let mut fruitless = 0;
        loop {
            let each = |event| self.take_event_for(id, event);
            let ended = self.remote.read_events(Some(id), &mut body, &mut events, each).await;
            if !self.remote.router.awaits(id) {
                return Ok(());
            }
            if events.seen() > 0 {
                fruitless = 0;
            }
            let cut =
                ended.err().unwrap_or_else(|| self.remote.broke_off("the stream ended before the answer"));
            body = self.take_up(events.place(), &mut fruitless, cut).await?;
            events = EventReader::resuming(self.remote.limit(), events.place().clone());
        }
    }

    fn take_event_for(self: &Arc<Self>, id: u64, event: Event) {
        match event {
            Event::Data(data) | Event::Endpoint(data) => self.deliver(&data, Some(id)),
            // The stream belongs to this request, so it contains no response to another one.
            Event::TooLong(Unread::Unknown) => {
                let limit = self.remote.limit();
                self.remote.router.fail(id, Failure::TooLong { limit, certain: false });
            }
            Event::TooLong(unread) => self.remote.router.deliver_unread(unread),
        }
    }

    /// Resumes a stream that was cut, or returns the failure of its request.
    async fn take_up(
        &self,
        place: &Place,
        fruitless: &mut u32,
        cut: TransportError,
    ) -> Result<Incoming, Failure> {
        let Some(last) = &place.id else { return Err(broken(cut)) };
        while *fruitless < MOST_FRUITLESS {
            sleep(pause(place.retry, *fruitless)).await;
            *fruitless += 1;
            match self.open_stream(Some(last)).await {
                Ok(body) => return Ok(body),
                Err(Unopened::ForNow(why)) => tracing::debug!(%why, "a stream could not be taken up yet"),
                Err(Unopened::ForGood(why)) => {
                    let reason = match cut {
                        TransportError::Cut { reason, .. } => reason,
                        other => other.to_string(),
                    };
                    let reason = format!("{reason}, and its stream could not be taken up again: {why}");
                    // The server's response concerns the stream only: the request itself had reached the server.
                    let why = Arc::new(self.remote.broke_off(reason));
                    return Err(Failure::Broken { delivery: Delivery::Unknown, why });
                }
            }
        }
        Err(broken(cut))
    }

    /// Receives unsolicited messages until the connection ends, if the server offers a stream for them.
    pub(crate) fn listen(self: &Arc<Self>) {
        let (link, stop) = (self.clone(), self.remote.stop.clone());
        self.remote.tasks.spawn(async move {
            let _ = stop.run_until_cancelled(link.hear_unasked()).await;
        });
    }

    async fn hear_unasked(self: &Arc<Self>) {
        let (mut place, mut fruitless) = (Place::default(), 0);
        loop {
            match self.open_stream(place.id.as_ref()).await {
                Ok(body) => {
                    let since = Instant::now();
                    let heard;
                    (place, heard) = self.hear_stream(body, place).await;
                    // An idle stream may have been cut for being idle, which is not a failure.
                    if heard || since.elapsed() >= LONGEST_PAUSE {
                        fruitless = 0;
                    }
                }
                Err(Unopened::ForNow(why)) => {
                    tracing::debug!(%why, "what the server says unasked is not heard")
                }
                // A server that no longer knows the event id may still open a new stream.
                Err(Unopened::ForGood(_)) if place.id.take().is_some() => {}
                Err(Unopened::ForGood(why)) => {
                    return tracing::debug!(%why, "the server says nothing unasked");
                }
            }
            sleep(pause(place.retry, fruitless)).await;
            fruitless = fruitless.saturating_add(1);
        }
    }

    /// Reads one stream to its end. Returns its position, and true if any event arrived.
    async fn hear_stream(self: &Arc<Self>, mut body: Incoming, place: Place) -> (Place, bool) {
        let mut events = EventReader::resuming(self.remote.limit(), place);
        let each = |event| match event {
            Event::Data(data) | Event::Endpoint(data) => self.deliver(&data, None),
            // This stream carries no responses, so the message is a request or a notification of the server.
            Event::TooLong(_) => self.remote.router.deliver_unread(Unread::Theirs(None)),
        };
        let ended = self.remote.read_events(None, &mut body, &mut events, each).await;
        tracing::debug!(?ended, events = events.seen(), "a stream ended");
        (events.place().clone(), events.seen() > 0)
    }

    async fn open_stream(&self, after: Option<&HeaderValue>) -> Result<Incoming, Unopened> {
        let mut request = self.addressed(self.remote.get());
        if let Some(after) = after {
            request.headers_mut().insert(LAST_EVENT, after.clone());
        }
        let response = self.remote.fetch(request).await.map_err(Unopened::ForNow)?;
        let is_stream = media_type(response.headers()).as_deref() == Some("text/event-stream");
        let status = response.status();
        if status.is_success() && is_stream {
            return Ok(response.into_body());
        }
        if self.is_session_lost(status) {
            self.lose_session(None);
        }
        let why =
            TransportError::Status { url: self.remote.url(), status: status.as_u16(), body: String::new() };
        // 409: the server has not noticed yet that the previous stream has ended.
        Err(match status.as_u16() {
            408 | 409 | 429 | 500 | 502..=504 => Unopened::ForNow(why),
            _ => Unopened::ForGood(why),
        })
    }
}

/// Returns the pause before a stream is opened again. It grows with the number of attempts without a new event.
fn pause(retry: Option<Duration>, fruitless: u32) -> Duration {
    let first = retry.unwrap_or(USUAL_PAUSE).max(SHORTEST_PAUSE);
    first.saturating_mul(1 << fruitless.min(10)).min(LONGEST_PAUSE.max(first))
}

#[cfg(test)]
mod tests {
    use super::*;

    // req: BR-01
    #[test]
    fn the_pause_is_what_the_server_asks_for_and_grows_while_nothing_comes() {
        let pauses = |retry: Option<u64>| {
            [0, 1, 2, 5, 1000].map(|n| pause(retry.map(Duration::from_millis), n).as_millis())
        };
        assert_eq!(pauses(None), [1000, 2000, 4000, 30_000, 30_000]);
        assert_eq!(pauses(Some(300)), [300, 600, 1200, 9600, 30_000]);
        assert_eq!(pauses(Some(0)), [100, 200, 400, 3200, 30_000], "at once for ever is too often");
        assert_eq!(pauses(Some(60_000)), [60_000; 5], "a server that wants more than that gets it");
    }
}
