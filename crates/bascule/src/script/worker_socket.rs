//! The bridge's end of a worker's socket.
//!
//! The bridge registers for readability only, and for writability only while the socket buffer is full. Tokio's sockets
//! always register for both, and the kernel reports writability each time the worker reads: that would wake the bridge for
//! nothing just when the worker starts to work. Tokio's pipes register for one direction, and they work on sockets too.

use std::io::{self, ErrorKind, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;

use bascule_script::wire::FrameDecoder;
use tokio::io::AsyncReadExt;
use tokio::net::unix::pipe::{Receiver, Sender};

pub(super) struct WorkerReader(Receiver);

impl WorkerReader {
    /// The socket must be non-blocking.
    pub(super) fn new(socket: &UnixStream) -> io::Result<Self> {
        Receiver::from_owned_fd_unchecked(duplicate(socket)?).map(Self)
    }

    /// Waits for bytes. Returns false if the worker has disconnected. Cancel-safe: a dropped read has consumed nothing.
    pub(super) async fn read(&mut self, frames: &mut FrameDecoder) -> io::Result<bool> {
        match self.0.read_buf(frames.read_buffer()).await {
            Ok(length) => Ok(length > 0),
            Err(error) if error.kind() == ErrorKind::ConnectionReset => Ok(false),
            Err(error) => Err(error),
        }
    }
}

pub(super) struct WorkerWriter {
    socket: UnixStream,
    /// Registered for writability. Present only while the socket buffer is full.
    writable: Option<Sender>,
}

impl WorkerWriter {
    /// The socket must be non-blocking.
    pub(super) fn new(socket: &UnixStream) -> io::Result<Self> {
        Ok(Self { socket: socket.try_clone()?, writable: None })
    }

    /// Writes until the socket buffer is full. If bytes remain, wait for `writable`.
    pub(super) fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut written = 0;
        while written < bytes.len() {
            match self.write_some(&bytes[written..]) {
                Ok(length) => written += length,
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    self.register_writable()?;
                    return Ok(written);
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        self.writable = None;
        Ok(written)
    }

    fn write_some(&self, bytes: &[u8]) -> io::Result<usize> {
        let write = || (&self.socket).write(bytes);
        self.writable.as_ref().map_or_else(write, |sender| sender.try_io(write))
    }

    fn register_writable(&mut self) -> io::Result<()> {
        if self.writable.is_none() {
            self.writable = Some(Sender::from_owned_fd_unchecked(duplicate(&self.socket)?)?);
        }
        Ok(())
    }

    /// Waits until the socket buffer has room.
    pub(super) async fn writable(&self) -> io::Result<()> {
        match &self.writable {
            Some(sender) => sender.writable().await,
            None => Ok(()),
        }
    }
}

/// Each registration needs its own descriptor.
fn duplicate(socket: &UnixStream) -> io::Result<OwnedFd> {
    socket.try_clone().map(OwnedFd::from)
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use bascule_script::wire::{FromWorker, Ready, push_frame};

    use super::*;

    fn pair() -> (UnixStream, UnixStream) {
        let (ours, theirs) = UnixStream::pair().unwrap();
        ours.set_nonblocking(true).unwrap();
        (ours, theirs)
    }

    #[tokio::test]
    async fn writes_rest_when_socket_is_writable_again() {
        let (ours, mut theirs) = pair();
        let mut writer = WorkerWriter::new(&ours).unwrap();
        let sent = vec![7; 4 << 20];
        let mut written = writer.write(&sent).unwrap();
        assert!(written < sent.len());
        let reader = std::thread::spawn(move || {
            let mut received = Vec::new();
            theirs.read_to_end(&mut received).unwrap();
            received
        });
        while written < sent.len() {
            writer.writable().await.unwrap();
            written += writer.write(&sent[written..]).unwrap();
        }
        drop((writer, ours));
        assert!(reader.join().unwrap() == sent);
    }

    #[tokio::test]
    async fn reads_last_message_before_end() {
        let (ours, mut theirs) = pair();
        let (mut reader, mut frames) = (WorkerReader::new(&ours).unwrap(), FrameDecoder::default());
        let mut sent = Vec::new();
        push_frame(&mut sent, &FromWorker::Ready(Ready::default())).unwrap();
        theirs.write_all(&sent).unwrap();
        drop(theirs);
        assert!(reader.read(&mut frames).await.unwrap());
        assert!(matches!(frames.next_message(), Ok(Some(FromWorker::Ready(_)))));
        assert!(!reader.read(&mut frames).await.unwrap());
    }
}
