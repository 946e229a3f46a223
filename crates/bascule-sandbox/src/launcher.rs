//! The thread that starts all workers, and lives as long as the process.
//!
//! A worker asks the kernel to be killed when its parent ends, and by that the kernel means the thread that started it. A
//! thread of a pool may end at any time, and its workers would be killed with it. This one ends with the process only.
//! Being one for all, it can also leave the network once and for all: a new one for each worker would take longer than
//! all the other walls together.

use std::io;
use std::process::{Child, Command};
use std::sync::OnceLock;
use std::sync::mpsc::{Sender, SyncSender, channel, sync_channel};

use crate::namespaces;

/// Something to start, and who waits for it.
struct Order {
    command: Command,
    done: SyncSender<io::Result<Child>>,
}

/// Starts a program from the one thread. What of the command is ours, pipes above all, is closed before this returns.
pub(crate) fn start(command: Command) -> io::Result<Child> {
    let (done, started) = sync_channel(1);
    // The queue is as long as there are callers: each waits for its answer.
    launcher()?.send(Order { command, done }).map_err(io::Error::other)?;
    started.recv().map_err(io::Error::other)?
}

fn launcher() -> io::Result<&'static Sender<Order>> {
    static LAUNCHER: OnceLock<Sender<Order>> = OnceLock::new();
    if let Some(orders) = LAUNCHER.get() {
        return Ok(orders);
    }
    let (orders, waiting) = channel::<Order>();
    let work = move || {
        namespaces::leave_what_is_shared();
        for Order { mut command, done } in waiting {
            let started = command.spawn();
            drop(command);
            // Whoever asked waits.
            let _ = done.send(started);
        }
    };
    std::thread::Builder::new().name("launcher".into()).spawn(work)?;
    // Who comes second loses its thread again, which has started nothing yet.
    Ok(LAUNCHER.get_or_init(|| orders))
}
