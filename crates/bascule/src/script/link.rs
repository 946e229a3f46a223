//! The bridge's end of a worker's socket.
//!
//! To those who listen for room the kernel tells that there is some each time the other side has read. Nearly always there
//! was enough before, and the bridge would be woken for nothing just when the worker begins to work: so it listens for
//! bytes alone, and for room only while there is none. The runtime's own sockets always listen for both; its pipes do not,
//! and to the kernel the two are read alike.

use std::io::{self, ErrorKind, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;

use bascule_script::wire::Frames;
use tokio::io::AsyncReadExt;
use tokio::net::unix::pipe::{Receiver, Sender};

/// What the worker says.
pub(super) struct Incoming(Receiver);

impl Incoming {
    /// By a socket that does not block.
    pub(super) fn of(socket: &UnixStream) -> io::Result<Self> {
        Receiver::from_owned_fd_unchecked(copy(socket)?).map(Self)
    }

    /// Waits for more of what the worker says. Says whether the worker is still there. Dropped, it has taken nothing.
    pub(super) async fn read(&mut self, frames: &mut Frames) -> io::Result<bool> {
        match self.0.read_buf(frames.tail()).await {
            Ok(length) => Ok(length > 0),
            Err(error) if error.kind() == ErrorKind::ConnectionReset => Ok(false),
            Err(error) => Err(error),
        }
    }
}

/// What it is told.
pub(super) struct Outgoing {
    socket: UnixStream,
    /// Listens for room, while there is none.
    room: Option<Sender>,
}

impl Outgoing {
    /// By a socket that does not block.
    pub(super) fn of(socket: &UnixStream) -> io::Result<Self> {
        Ok(Self { socket: socket.try_clone()?, room: None })
    }

    /// Writes as much as there is room for. If that is not all, there will be `room` again.
    pub(super) fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut written = 0;
        while written < bytes.len() {
            match self.write_some(&bytes[written..]) {
                Ok(length) => written += length,
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    self.listen_for_room()?;
                    return Ok(written);
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        self.room = None;
        Ok(written)
    }

    fn write_some(&self, bytes: &[u8]) -> io::Result<usize> {
        let write = || (&self.socket).write(bytes);
        self.room.as_ref().map_or_else(write, |room| room.try_io(write))
    }

    fn listen_for_room(&mut self) -> io::Result<()> {
        if self.room.is_none() {
            self.room = Some(Sender::from_owned_fd_unchecked(copy(&self.socket)?)?);
        }
        Ok(())
    }

    /// Waits until there is room.
    pub(super) async fn room(&self) -> io::Result<()> {
        match &self.room {
            Some(room) => room.writable().await,
            None => Ok(()),
        }
    }
}

/// The kernel listens for one thing by each.
fn copy(socket: &UnixStream) -> io::Result<OwnedFd> {
    socket.try_clone().map(OwnedFd::from)
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use bascule_script::wire::{FromWorker, Ready, push};

    use super::*;

    fn pair() -> (UnixStream, UnixStream) {
        let (ours, theirs) = UnixStream::pair().unwrap();
        ours.set_nonblocking(true).unwrap();
        (ours, theirs)
    }

    #[tokio::test]
    async fn what_finds_no_room_is_written_when_there_is_some() {
        let (ours, mut theirs) = pair();
        let mut outgoing = Outgoing::of(&ours).unwrap();
        let said = vec![7; 4 << 20];
        let mut written = outgoing.write(&said).unwrap();
        assert!(written < said.len());
        let reader = std::thread::spawn(move || {
            let mut heard = Vec::new();
            theirs.read_to_end(&mut heard).unwrap();
            heard
        });
        while written < said.len() {
            outgoing.room().await.unwrap();
            written += outgoing.write(&said[written..]).unwrap();
        }
        drop((outgoing, ours));
        assert!(reader.join().unwrap() == said);
    }

    #[tokio::test]
    async fn the_end_comes_after_the_last_words() {
        let (ours, mut theirs) = pair();
        let (mut incoming, mut frames) = (Incoming::of(&ours).unwrap(), Frames::default());
        let mut said = Vec::new();
        push(&mut said, &FromWorker::Ready(Ready::default())).unwrap();
        theirs.write_all(&said).unwrap();
        drop(theirs);
        assert!(incoming.read(&mut frames).await.unwrap());
        assert!(matches!(frames.next_message(), Ok(Some(FromWorker::Ready(_)))));
        assert!(!incoming.read(&mut frames).await.unwrap());
    }
}
