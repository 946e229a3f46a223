//! Reads the body of a request: whole, but neither too much nor too slowly.

use std::future::poll_fn;
use std::pin::Pin;
use std::time::Duration;

use http::{StatusCode, header};
use hyper::body::{Body as _, Bytes, Incoming};
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::{Instant, timeout_at};

use super::refusal::Refusal;

/// Room made for a body on the word of its sender; beyond it, room is made for what has come.
const TRUSTED_LENGTH: u64 = 1 << 20;
/// A body that is no longer than this takes up none of the room that all bodies share.
const SMALL: usize = 64 << 10;
/// How fast a body must come at least, on the whole, once its first grace is over.
const BYTES_PER_SECOND: u64 = 64 << 10;

/// Takes the whole body. It has `grace`, and a second more for every 64 KiB that came. `room` has a permit for
/// each byte of all the longer bodies that are being read; nobody waits for it, for all might wait for each other.
pub(super) async fn read(
    body: &mut Incoming,
    limit: usize,
    grace: Duration,
    room: &Semaphore,
) -> Result<Vec<u8>, Refusal> {
    let announced = body.size_hint().lower();
    if announced > limit as u64 {
        return Err(too_long(limit));
    }
    let begun = Instant::now();
    let mut taken = None;
    let mut whole = Vec::with_capacity(announced.min(TRUSTED_LENGTH) as usize);
    loop {
        let by = begun + grace + Duration::from_secs(whole.len() as u64 / BYTES_PER_SECOND);
        // The time-out looks at the body first, so a body that is there already costs no timer.
        let piece = timeout_at(by, next_piece(body)).await.map_err(|_| too_slow())?;
        let Some(piece) = piece.transpose().map_err(|_| broken())? else { return Ok(whole) };
        if whole.len() + piece.len() > limit {
            return Err(too_long(limit));
        }
        if whole.len() + piece.len() > SMALL {
            take_room(room, piece.len(), &mut taken)?;
        }
        whole.extend_from_slice(&piece);
    }
}

fn take_room<'a>(
    room: &'a Semaphore,
    bytes: usize,
    taken: &mut Option<SemaphorePermit<'a>>,
) -> Result<(), Refusal> {
    let more = u32::try_from(bytes).ok().and_then(|bytes| room.try_acquire_many(bytes).ok());
    match (more, taken) {
        (None, _) => return Err(no_room()),
        (Some(more), Some(taken)) => taken.merge(more),
        (more, taken) => *taken = more,
    }
    Ok(())
}

async fn next_piece(body: &mut Incoming) -> Option<Result<Bytes, hyper::Error>> {
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

fn too_long(limit: usize) -> Refusal {
    Refusal::new(
        StatusCode::PAYLOAD_TOO_LARGE,
        format!("a message may have {limit} bytes, and this one has more"),
    )
}

fn no_room() -> Refusal {
    Refusal::new(StatusCode::SERVICE_UNAVAILABLE, "too many long messages are coming in")
        .with(header::RETRY_AFTER, "1")
}

fn too_slow() -> Refusal {
    Refusal::new(StatusCode::REQUEST_TIMEOUT, "the message came too slowly").and_close()
}

fn broken() -> Refusal {
    Refusal::bad_request("the message broke off").and_close()
}
