//! The queue of messages for a server's stdin.
//!
//! The task that sends a message writes it if the pipe has room, without waking another task. The rest waits here, and
//! [`Outbox::run`] writes it when there is room again.

use std::collections::VecDeque;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard};

use tokio::net::unix::pipe;
use tokio::sync::Notify;

use crate::TransportError;

pub(crate) struct Outbox {
    queue: Mutex<Queue>,
    /// Notified when a message waits to be written, or when the outbox is closed.
    wake: Notify,
    /// Most bytes that may wait. Beyond that sending fails: the server does not read.
    limit: usize,
}

struct Queue {
    pipe: Option<Arc<pipe::Sender>>,
    frames: VecDeque<QueuedFrame>,
    waiting: usize,
    broken: Option<io::Error>,
}

struct QueuedFrame {
    id: Option<u64>,
    bytes: Vec<u8>,
    written: usize,
}

impl Outbox {
    pub(crate) fn new(pipe: pipe::Sender, limit: usize) -> Self {
        let queue = Queue { pipe: Some(Arc::new(pipe)), frames: VecDeque::new(), waiting: 0, broken: None };
        Self { queue: Mutex::new(queue), wake: Notify::new(), limit }
    }

    /// Sends a message; `id` is the id of a request.
    pub(crate) fn send(&self, id: Option<u64>, mut bytes: Vec<u8>) -> Result<(), TransportError> {
        bytes.push(b'\n');
        let mut queue = self.queue();
        let pipe = queue.pipe.clone().ok_or(TransportError::Closed)?;
        if queue.waiting > self.limit {
            return Err(TransportError::Stalled { waiting: queue.waiting });
        }
        queue.waiting += bytes.len();
        queue.frames.push_back(QueuedFrame { id, bytes, written: 0 });
        if queue.frames.len() == 1 && queue.broken.is_none() {
            queue.write(&pipe);
        }
        if !queue.frames.is_empty() {
            self.wake.notify_one();
        }
        Ok(())
    }

    /// Takes a request back. Returns true if no byte of it was written.
    pub(crate) fn recall(&self, id: u64) -> bool {
        let mut queue = self.queue();
        let position = queue.frames.iter().position(|frame| frame.id == Some(id) && frame.written == 0);
        let recalled = position.and_then(|at| queue.frames.remove(at));
        queue.waiting -= recalled.as_ref().map_or(0, |frame| frame.bytes.len());
        recalled.is_some()
    }

    /// Writes waiting messages until the outbox is closed or the pipe fails.
    pub(crate) async fn run(&self) -> io::Result<()> {
        loop {
            while let Some(pipe) = self.pipe_if_waiting()? {
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
        queue.waiting = 0;
        self.wake.notify_one();
        queue.frames.drain(..).filter(|frame| frame.written == 0).filter_map(|frame| frame.id).collect()
    }

    fn pipe_if_waiting(&self) -> io::Result<Option<Arc<pipe::Sender>>> {
        let mut queue = self.queue();
        match queue.broken.take() {
            Some(error) => Err(error),
            None if queue.frames.is_empty() => Ok(None),
            None => Ok(queue.pipe.clone()),
        }
    }

    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().expect("nothing panics while holding it")
    }
}

impl Queue {
    /// Writes as much as the pipe takes. `run` reports a failure, so that the connection ends in one place.
    fn write(&mut self, pipe: &pipe::Sender) {
        while let Some(frame) = self.frames.front_mut() {
            match pipe.try_write(&frame.bytes[frame.written..]) {
                Ok(count) => {
                    frame.written += count;
                    self.waiting -= count;
                    if frame.written == frame.bytes.len() {
                        self.frames.pop_front();
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                Err(error) => return self.broken = Some(error),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::AsyncReadExt;

    #[tokio::test]
    async fn what_does_not_fit_waits_and_arrives_whole_and_in_order() {
        let (sender, mut receiver) = pipe::pipe().unwrap();
        let outbox = Arc::new(Outbox::new(sender, 10 << 20));
        let running = tokio::spawn({
            let outbox = outbox.clone();
            async move { outbox.run().await }
        });
        let mut expected = Vec::new();
        for n in 0..200u8 {
            let frame = vec![b'a' + n % 26; 10_000];
            outbox.send(Some(n.into()), frame.clone()).unwrap();
            expected.extend(frame);
            expected.push(b'\n');
        }
        let mut got = vec![0; expected.len()];
        receiver.read_exact(&mut got).await.unwrap();
        assert!(got == expected);
        assert!(outbox.close().is_empty());
        running.await.unwrap().unwrap();
    }

    #[tokio::test]
    async fn recalls_a_request_that_was_not_written() {
        let (sender, _receiver) = pipe::pipe().unwrap();
        let outbox = Outbox::new(sender, 300_000);
        outbox.send(Some(1), vec![b'x'; 200_000]).unwrap();
        // The pipe takes some of the first, not all.
        let _ = tokio::time::timeout(std::time::Duration::from_millis(50), outbox.run()).await;
        outbox.send(Some(2), vec![b'y'; 200_000]).unwrap();
        assert!(outbox.recall(2) && !outbox.recall(2), "no byte of the second was written");
        assert!(!outbox.recall(1), "some of the first was written");
        outbox.send(Some(3), vec![b'z'; 300_000]).unwrap();
        let full = outbox.send(Some(4), vec![b'z'; 10]);
        assert!(matches!(full, Err(TransportError::Stalled { .. })));
        assert_eq!(outbox.close(), [3], "the first was written in part");
        assert!(matches!(outbox.send(None, vec![]), Err(TransportError::Closed)));
    }

    #[tokio::test]
    async fn ends_when_the_reader_closes() {
        let (sender, receiver) = pipe::pipe().unwrap();
        let outbox = Outbox::new(sender, 100);
        drop(receiver);
        outbox.send(Some(1), b"x".to_vec()).unwrap();
        assert_eq!(outbox.run().await.unwrap_err().kind(), io::ErrorKind::BrokenPipe);
        assert_eq!(outbox.close(), [1], "it was not sent");
    }
}
