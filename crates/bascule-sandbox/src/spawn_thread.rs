//! Runs the thread that spawns all script workers and lives as long as the process.
//!
//! A worker asks the kernel to kill it when its parent ends (PR_SET_PDEATHSIG). The kernel means the *thread* that
//! spawned the worker. A thread of a pool may end at any time, and its workers would be killed with it.
//! One thread for all workers also unshares the network once: doing so for each worker would take longer than all other
//! confinement steps together.

use std::io;
use std::sync::OnceLock;
use std::sync::mpsc::{Sender, channel};

use crate::namespaces;

type SpawnJob = Box<dyn FnOnce() + Send>;

/// Queues a job for the thread.
pub(crate) fn submit(job: impl FnOnce() + Send + 'static) -> io::Result<()> {
    // The queue is unbounded: callers bound the number of workers they request.
    let sent = jobs()?.send(Box::new(job));
    sent.map_err(|_| io::Error::other("the thread that spawns script workers has ended"))
}

fn jobs() -> io::Result<&'static Sender<SpawnJob>> {
    static JOBS: OnceLock<Sender<SpawnJob>> = OnceLock::new();
    if let Some(jobs) = JOBS.get() {
        return Ok(jobs);
    }
    let (jobs, queue) = channel::<SpawnJob>();
    let run = move || {
        namespaces::unshare_for_workers();
        for job in queue {
            job();
        }
    };
    std::thread::Builder::new().name("worker-spawner".into()).spawn(run)?;
    // If two callers race, the loser's sender is dropped, and its thread ends without having spawned anything.
    Ok(JOBS.get_or_init(|| jobs))
}
