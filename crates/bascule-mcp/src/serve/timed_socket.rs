//! A client's socket with deadlines: for the head of a request, for idle time, and for writes.
//!
//! The body of a request has a deadline of its own (see `body_reader`). While a request is being handled, reads have none.

use std::io;
use std::pin::Pin;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::{Instant, Sleep, sleep_until};

#[derive(Debug, Clone, Copy)]
pub(super) struct SocketTimeouts {
    /// From the first byte of a request's head to its last.
    pub(super) head: Duration,
    /// Between two requests.
    pub(super) idle: Duration,
    /// Until the client reads some of the bytes written to it.
    pub(super) write: Duration,
}

pub(super) struct TimedSocket {
    stream: TcpStream,
    timeouts: SocketTimeouts,
    activity: Arc<Activity>,
    /// The number of requests that had started when the socket was last polled.
    seen: u32,
    /// The time of the first byte of an unfinished head.
    head_since: Option<Instant>,
    read_deadline: Option<Instant>,
    write_deadline: Option<Instant>,
    alarm: Option<Pin<Box<Sleep>>>,
}

/// The requests on one socket.
#[derive(Default)]
pub(super) struct Activity {
    started: AtomicU32,
    open: AtomicU32,
    /// The task that polls the socket. Nothing else would poll it after a response has ended, and an idle client would never
    /// be noticed.
    socket_task: Mutex<Option<Waker>>,
}

/// One request in flight, until its response is written.
pub(super) struct RequestGuard(Arc<Activity>);

impl Activity {
    pub(super) fn start_request(self: &Arc<Self>) -> RequestGuard {
        self.started.fetch_add(1, Ordering::Relaxed);
        self.open.fetch_add(1, Ordering::Relaxed);
        RequestGuard(self.clone())
    }

    pub(super) fn has_requests(&self) -> bool {
        self.open.load(Ordering::Relaxed) > 0
    }

    fn socket_task(&self) -> MutexGuard<'_, Option<Waker>> {
        self.socket_task.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for RequestGuard {
    fn drop(&mut self) {
        self.0.open.fetch_sub(1, Ordering::Relaxed);
        let task = self.0.socket_task().take();
        task.into_iter().for_each(Waker::wake);
    }
}

impl TimedSocket {
    pub(super) fn new(stream: TcpStream, timeouts: SocketTimeouts, activity: Arc<Activity>) -> Self {
        Self {
            stream,
            timeouts,
            activity,
            seen: 0,
            // A new connection must send a request at once.
            head_since: Some(Instant::now()),
            read_deadline: None,
            write_deadline: None,
            alarm: None,
        }
    }

    fn note_requests(&mut self) {
        let started = self.activity.started.load(Ordering::Relaxed);
        if started != std::mem::replace(&mut self.seen, started) {
            (self.head_since, self.read_deadline) = (None, None);
        }
    }

    /// Called when there is nothing to read.
    fn await_read(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.note_requests();
        if self.activity.has_requests() {
            self.read_deadline = None;
            *self.activity.socket_task() = Some(cx.waker().clone());
        } else if self.read_deadline.is_none() {
            self.read_deadline = Some(match self.head_since {
                Some(since) => since + self.timeouts.head,
                None => Instant::now() + self.timeouts.idle,
            });
        }
        self.poll_deadlines(cx)
    }

    /// Called when nothing can be written.
    fn await_write(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        self.write_deadline.get_or_insert_with(|| Instant::now() + self.timeouts.write);
        self.poll_deadlines(cx).map_ok(|()| 0)
    }

    /// Fails once a deadline has passed. The alarm may be set too early: an early alarm now and then is cheaper than
    /// resetting it for every request.
    fn poll_deadlines(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let deadlines = self.read_deadline.into_iter().chain(self.write_deadline);
        let Some(deadline) = deadlines.min() else { return Poll::Pending };
        let alarm = self.alarm.get_or_insert_with(|| Box::pin(sleep_until(deadline)));
        if alarm.deadline() > deadline {
            alarm.as_mut().reset(deadline);
        }
        loop {
            ready!(alarm.as_mut().poll(cx));
            if Instant::now() >= deadline {
                return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
            }
            alarm.as_mut().reset(deadline);
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
        // A client that reads is not idle.
        self.write_deadline = None;
        if self.head_since.is_none() {
            self.read_deadline = None;
        }
        written
    }
}

impl AsyncRead for TimedSocket {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let socket = self.get_mut();
        let before = buf.filled().len();
        let read = Pin::new(&mut socket.stream).poll_read(cx, buf);
        if read.is_pending() {
            return socket.await_read(cx);
        }
        socket.note_requests();
        // While a request is in flight, the bytes are its body. Taken for a head, they would end the connection as soon as a
        // long call is answered.
        let is_head = !socket.activity.has_requests();
        if buf.filled().len() > before && is_head && socket.head_since.is_none() {
            socket.head_since = Some(Instant::now());
            socket.read_deadline = None;
        }
        read
    }
}

impl AsyncWrite for TimedSocket {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let socket = self.get_mut();
        let written = Pin::new(&mut socket.stream).poll_write(cx, buf);
        socket.note_written(written, cx)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let socket = self.get_mut();
        let written = Pin::new(&mut socket.stream).poll_write_vectored(cx, bufs);
        socket.note_written(written, cx)
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
