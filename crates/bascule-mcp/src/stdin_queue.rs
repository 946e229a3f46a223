//! The queue of messages for a server's stdin.
//!
//! The task that sends a message writes it if the pipe has room, without waking another task. The rest is queued, and
//! [`StdinQueue::run`] writes it when there is room again.

use std::collections::VecDeque;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard};

use tokio::net::unix::pipe;
use tokio::sync::Notify;

use crate::TransportError;

pub(crate) struct StdinQueue {
    queue: Mutex<Queue>,
    /// Notified when a message is queued, or when the queue is closed.
    wake: Notify,
    /// Maximum of queued bytes. Beyond it sending fails: the server does not read its stdin.
    limit: usize,
}

struct Queue {
    pipe: Option<Arc<pipe::Sender>>,
    frames: VecDeque<QueuedFrame>,
    queued_bytes: usize,
    /// The error of a failed write, until `run` returns it.
    write_error: Option<io::Error>,
}

struct QueuedFrame {
    id: Option<u64>,
    bytes: Vec<u8>,
    written: usize,
}

impl StdinQueue {
    pub(crate) fn new(pipe: pipe::Sender, limit: usize) -> Self {
        let queue =
            Queue { pipe: Some(Arc::new(pipe)), frames: VecDeque::new(), queued_bytes: 0, write_error: None };
        Self { queue: Mutex::new(queue), wake: Notify::new(), limit }
    }

    /// Sends a message. `id` is the id of a request, `None` for other messages.
    pub(crate) fn send(&self, id: Option<u64>, mut bytes: Vec<u8>) -> Result<(), TransportError> {
        bytes.push(b'\n');
        let mut queue = self.queue();
        let pipe = queue.pipe.clone().ok_or(TransportError::Closed)?;
        if queue.queued_bytes > self.limit {
            return Err(TransportError::Stalled { queued_bytes: queue.queued_bytes });
        }
        queue.queued_bytes += bytes.len();
        queue.frames.push_back(QueuedFrame { id, bytes, written: 0 });
        if queue.frames.len() == 1 && queue.write_error.is_none() {
            queue.write(&pipe);
        }
        if !queue.frames.is_empty() {
            self.wake.notify_one();
        }
        Ok(())
    }

    /// Removes a queued request. Returns false if any byte of it was written.
    pub(crate) fn remove_unsent(&self, id: u64) -> bool {
        let mut queue = self.queue();
        let position = queue.frames.iter().position(|frame| frame.id == Some(id) && frame.written == 0);
        let removed = position.and_then(|at| queue.frames.remove(at));
        queue.queued_bytes -= removed.as_ref().map_or(0, |frame| frame.bytes.len());
        removed.is_some()
    }

    /// Writes queued messages until the queue is closed or the pipe fails.
    pub(crate) async fn run(&self) -> io::Result<()> {
        loop {
            while let Some(pipe) = self.pipe_if_queued()? {
                pipe.writable().await?;
                self.queue().write(&pipe);
            }
            if self.queue().pipe.is_none() {
                return Ok(());
            }
            self.wake.notified().await;
        }
    }

    /// Closes the server's stdin. Returns the requests of which no byte was written.
    pub(crate) fn close(&self) -> Vec<u64> {
        let mut queue = self.queue();
        queue.pipe = None;
        queue.queued_bytes = 0;
        self.wake.notify_one();
        queue.frames.drain(..).filter(|frame| frame.written == 0).filter_map(|frame| frame.id).collect()
    }

    fn pipe_if_queued(&self) -> io::Result<Option<Arc<pipe::Sender>>> {
        let mut queue = self.queue();
        match queue.write_error.take() {
            Some(error) => Err(error),
            None if queue.frames.is_empty() => Ok(None),
            None => Ok(queue.pipe.clone()),
        }
    }

    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().expect("no code panics while it holds the lock")
    }
}

impl Queue {
    /// Writes as much as the pipe takes. `run` returns a failure, so that the connection is closed in one place.
    fn write(&mut self, pipe: &pipe::Sender) {
        while let Some(frame) = self.frames.front_mut() {
            match pipe.try_write(&frame.bytes[frame.written..]) {
                Ok(count) => {
                    frame.written += count;
                    self.queued_bytes -= count;
                    if frame.written == frame.bytes.len() {
                        self.frames.pop_front();
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                Err(error) => return self.write_error = Some(error),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::AsyncReadExt;

    #[tokio::test]
    async fn writes_queued_messages_whole_and_in_order() {
        let (sender, mut receiver) = pipe::pipe().unwrap();
        let stdin_queue = Arc::new(StdinQueue::new(sender, 10 << 20));
        let running = tokio::spawn({
            let stdin_queue = stdin_queue.clone();
            async move { stdin_queue.run().await }
        });
        let mut expected = Vec::new();
        for n in 0..200u8 {
            let frame = vec![b'a' + n % 26; 10_000];
            stdin_queue.send(Some(n.into()), frame.clone()).unwrap();
            expected.extend(frame);
            expected.push(b'\n');
        }
        let mut got = vec![0; expected.len()];
        receiver.read_exact(&mut got).await.unwrap();
        assert!(got == expected);
        assert!(stdin_queue.close().is_empty());
        running.await.unwrap().unwrap();
    }

    #[tokio::test]
    async fn removes_a_request_that_was_not_written() {
        let (sender, _receiver) = pipe::pipe().unwrap();
        let stdin_queue = StdinQueue::new(sender, 300_000);
        stdin_queue.send(Some(1), vec![b'x'; 200_000]).unwrap();
        // The pipe takes some of the first, not all.
        let _ = tokio::time::timeout(std::time::Duration::from_millis(50), stdin_queue.run()).await;
        stdin_queue.send(Some(2), vec![b'y'; 200_000]).unwrap();
        assert!(
            stdin_queue.remove_unsent(2) && !stdin_queue.remove_unsent(2),
            "no byte of the second was written"
        );
        assert!(!stdin_queue.remove_unsent(1), "some of the first was written");
        stdin_queue.send(Some(3), vec![b'z'; 300_000]).unwrap();
        let full = stdin_queue.send(Some(4), vec![b'z'; 10]);
        assert!(matches!(full, Err(TransportError::Stalled { .. })));
        assert_eq!(stdin_queue.close(), [3], "the first was written in part");
        assert!(matches!(stdin_queue.send(None, vec![]), Err(TransportError::Closed)));
    }

    #[tokio::test]
    async fn ends_when_the_reader_closes() {
        let (sender, receiver) = pipe::pipe().unwrap();
        let stdin_queue = StdinQueue::new(sender, 100);
        drop(receiver);
        stdin_queue.send(Some(1), b"x".to_vec()).unwrap();
        assert_eq!(stdin_queue.run().await.unwrap_err().kind(), io::ErrorKind::BrokenPipe);
        assert_eq!(stdin_queue.close(), [1], "it was not sent");
    }
}
