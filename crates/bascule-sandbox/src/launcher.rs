//! The thread that starts all workers, and lives as long as the process.
//!
//! A worker asks the kernel to be killed when its parent ends, and by that the kernel means the thread that started it. A
//! thread of a pool may end at any time, and its workers would be killed with it. This one ends with the process only.
//! Being one for all, it can also leave the network once and for all: a new one for each worker would take longer than
//! all the other walls together.

use std::io;
use std::sync::OnceLock;
use std::sync::mpsc::{Sender, channel};

use crate::namespaces;

/// Starts something, and tells whoever waits for it.
type Order = Box<dyn FnOnce() + Send>;

/// Has an order carried out by the one thread, soon.
pub(crate) fn order(order: impl FnOnce() + Send + 'static) -> io::Result<()> {
    // The queue is as long as workers are wanted, which is their callers' to bound.
    launcher()?.send(Box::new(order)).map_err(|_| io::Error::other("the launcher has ended"))
}

fn launcher() -> io::Result<&'static Sender<Order>> {
    static LAUNCHER: OnceLock<Sender<Order>> = OnceLock::new();
    if let Some(orders) = LAUNCHER.get() {
        return Ok(orders);
    }
    let (orders, waiting) = channel::<Order>();
    let work = move || {
        namespaces::leave_what_is_shared();
        for order in waiting {
            order();
        }
    };
    std::thread::Builder::new().name("launcher".into()).spawn(work)?;
    // Who comes second loses its thread again, which has started nothing yet.
    Ok(LAUNCHER.get_or_init(|| orders))
}
