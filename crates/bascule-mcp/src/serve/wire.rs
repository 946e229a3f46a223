//! A client's socket that does not wait for ever: for a request, or for the client to take what is written.
//!
//! The body of a request has a deadline of its own (see `inbound`); while a request is being answered there is
//! none here.

use std::io;
use std::pin::Pin;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::{Instant, Sleep, sleep_until};

/// How long a client may take.
#[derive(Debug, Clone, Copy)]
pub(super) struct Patience {
    /// From the first byte of a request's head to its last.
    pub(super) head: Duration,
    /// Between two requests.
    pub(super) idle: Duration,
    /// Until it takes some of what is written.
    pub(super) write: Duration,
}

pub(super) struct Wire {
    stream: TcpStream,
    patience: Patience,
    activity: Arc<Activity>,
    /// How many requests had begun when the socket was last looked at.
    seen: u32,
    /// When the first byte of an unfinished head came.
    head_since: Option<Instant>,
    read_by: Option<Instant>,
    write_by: Option<Instant>,
    alarm: Option<Pin<Box<Sleep>>>,
}

/// What the socket must know of the requests that come over it.
#[derive(Default)]
pub(super) struct Activity {
    begun: AtomicU32,
    open: AtomicU32,
    /// Who looks after the socket. Nobody else would look at it again when a response has ended, and its client would
    /// never be found idle.
    keeper: Mutex<Option<Waker>>,
}

/// One request on its way, until its response is written.
pub(super) struct Busy(Arc<Activity>);

impl Activity {
    pub(super) fn begin(self: &Arc<Self>) -> Busy {
        self.begun.fetch_add(1, Ordering::Relaxed);
        self.open.fetch_add(1, Ordering::Relaxed);
        Busy(self.clone())
    }

    fn keeper(&self) -> MutexGuard<'_, Option<Waker>> {
        self.keeper.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        self.0.open.fetch_sub(1, Ordering::Relaxed);
        let keeper = self.0.keeper().take();
        keeper.into_iter().for_each(Waker::wake);
    }
}

impl Wire {
    pub(super) fn new(stream: TcpStream, patience: Patience, activity: Arc<Activity>) -> Self {
        Self {
            stream,
            patience,
            activity,
            seen: 0,
            // Who connects has something to say.
            head_since: Some(Instant::now()),
            read_by: None,
            write_by: None,
            alarm: None,
        }
    }

    fn note_requests(&mut self) {
        let begun = self.activity.begun.load(Ordering::Relaxed);
        if begun != std::mem::replace(&mut self.seen, begun) {
            (self.head_since, self.read_by) = (None, None);
        }
    }

    /// Called when there is nothing to read.
    fn await_read(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.note_requests();
        if self.activity.open.load(Ordering::Relaxed) > 0 {
            self.read_by = None;
            *self.activity.keeper() = Some(cx.waker().clone());
        } else if self.read_by.is_none() {
            self.read_by = Some(match self.head_since {
                Some(since) => since + self.patience.head,
                None => Instant::now() + self.patience.idle,
            });
        }
        self.watch(cx)
    }

    /// Called when nothing can be written.
    fn await_write(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        self.write_by.get_or_insert_with(|| Instant::now() + self.patience.write);
        self.watch(cx).map_ok(|()| 0)
    }

    /// Fails once a deadline has passed. The alarm may be set too early: it is cheaper to let it ring in vain
    /// now and then than to set it anew with every request.
    fn watch(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let Some(by) = self.read_by.into_iter().chain(self.write_by).min() else { return Poll::Pending };
        let alarm = self.alarm.get_or_insert_with(|| Box::pin(sleep_until(by)));
        if alarm.deadline() > by {
            alarm.as_mut().reset(by);
        }
        loop {
            ready!(alarm.as_mut().poll(cx));
            if Instant::now() >= by {
                return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
            }
            alarm.as_mut().reset(by);
        }
    }

    fn note_written(
        &mut self,
        written: Poll<io::Result<usize>>,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<usize>> {
        if written.is_pending() {
            return self.await_write(cx);
        }
        // Who takes bytes is not idle.
        self.write_by = None;
        if self.head_since.is_none() {
            self.read_by = None;
        }
        written
    }
}

impl AsyncRead for Wire {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let wire = self.get_mut();
        let before = buf.filled().len();
        let read = Pin::new(&mut wire.stream).poll_read(cx, buf);
        if read.is_pending() {
            return wire.await_read(cx);
        }
        wire.note_requests();
        if buf.filled().len() > before && wire.head_since.is_none() {
            wire.head_since = Some(Instant::now());
            wire.read_by = None;
        }
        read
    }
}

impl AsyncWrite for Wire {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let wire = self.get_mut();
        let written = Pin::new(&mut wire.stream).poll_write(cx, buf);
        wire.note_written(written, cx)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let wire = self.get_mut();
        let written = Pin::new(&mut wire.stream).poll_write_vectored(cx, bufs);
        wire.note_written(written, cx)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_shutdown(cx)
    }
}
