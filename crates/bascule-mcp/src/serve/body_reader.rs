//! Reads the whole body of a request, with a limit on its size and on its duration.

use std::future::poll_fn;
use std::pin::Pin;
use std::time::Duration;

use futures_util::FutureExt;
use http::{StatusCode, header};
use hyper::body::{Body as _, Bytes, Incoming};
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::{Instant, timeout_at};

use super::http_error::HttpError;

/// The most memory that is reserved because of a `Content-Length`; beyond it, memory grows with the bytes received.
const MAX_RESERVED_BYTES: u64 = 1 << 20;
/// A body up to this size takes nothing of the shared budget.
const SMALL_BODY_BYTES: usize = 64 << 10;
/// The slowest accepted average rate after the initial grace.
const BYTES_PER_SECOND: u64 = 64 << 10;

/// Reads the body within `grace` and one second for every 64 KiB received. `budget` has a permit for each byte of large
/// bodies in memory, without those that arrive before a body passes 64 KiB; the permits of this body are returned with it. Nothing waits for permits: all requests might wait for each
/// other.
pub(super) async fn read_body<'a>(
    body: &mut Incoming,
    limit: usize,
    grace: Duration,
    budget: &'a Semaphore,
) -> Result<(Vec<u8>, Option<SemaphorePermit<'a>>), HttpError> {
    let announced = body.size_hint().lower();
    if announced > limit as u64 {
        return Err(too_large(limit));
    }
    let (mut started, mut permit) = (None, None);
    let mut bytes = Vec::with_capacity(announced.min(MAX_RESERVED_BYTES) as usize);
    loop {
        let chunk = match next_chunk(body).now_or_never() {
            Some(chunk) => chunk,
            // The time counts from the first wait: a body that has arrived needs no clock.
            None => {
                let rate = Duration::from_secs(bytes.len() as u64 / BYTES_PER_SECOND);
                let deadline = *started.get_or_insert_with(Instant::now) + grace + rate;
                timeout_at(deadline, next_chunk(body)).await.map_err(|_| too_slow())?
            }
        };
        let Some(chunk) = chunk.transpose().map_err(|_| incomplete())? else { return Ok((bytes, permit)) };
        if bytes.len() + chunk.len() > limit {
            return Err(too_large(limit));
        }
        if bytes.len() + chunk.len() > SMALL_BODY_BYTES {
            extend_permit(&mut permit, budget, chunk.len())?;
        }
        bytes.extend_from_slice(&chunk);
    }
}

fn extend_permit<'a>(
    permit: &mut Option<SemaphorePermit<'a>>,
    budget: &'a Semaphore,
    bytes: usize,
) -> Result<(), HttpError> {
    let more = u32::try_from(bytes).ok().and_then(|bytes| budget.try_acquire_many(bytes).ok());
    match (more, permit) {
        (None, _) => return Err(over_budget()),
        (Some(more), Some(permit)) => permit.merge(more),
        (more, permit) => *permit = more,
    }
    Ok(())
}

async fn next_chunk(body: &mut Incoming) -> Option<Result<Bytes, hyper::Error>> {
    loop {
        match poll_fn(|cx| Pin::new(&mut *body).poll_frame(cx)).await? {
            Err(error) => return Some(Err(error)),
            Ok(frame) => match frame.into_data() {
                Ok(data) => return Some(Ok(data)),
                Err(_trailers) => continue,
            },
        }
    }
}

fn too_large(limit: usize) -> HttpError {
    HttpError::new(
        StatusCode::PAYLOAD_TOO_LARGE,
        format!("the message is larger than the limit of {limit} bytes"),
    )
}

fn over_budget() -> HttpError {
    HttpError::new(
        StatusCode::SERVICE_UNAVAILABLE,
        "too many large messages are being handled; try again later",
    )
    .with_header(header::RETRY_AFTER, "1")
}

fn too_slow() -> HttpError {
    HttpError::new(StatusCode::REQUEST_TIMEOUT, "the message arrived too slowly").with_connection_close()
}

fn incomplete() -> HttpError {
    HttpError::bad_request("the message is incomplete").with_connection_close()
}
