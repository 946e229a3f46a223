//! Very many calls, each in a process of its own, in one bridge: nothing of them may pile up.

use std::time::{Duration, Instant};

use serde_json::json;

use super::isolated;
use crate::embedded::{call, terminate};
use crate::support::{
    TIMEOUT, cgroups_of, children, eventually, has_no_new_descriptors, is_alone, open_descriptors,
    resident_kb,
};

/// How many calls there are.
const CALLS: usize = 1_000;
/// How many at a time.
const AT_ONCE: usize = 4;

// req: SB-01, SB-05
#[test]
fn a_thousand_calls_leave_nothing_behind() {
    if is_alone("isolation::many::a_thousand_calls_leave_nothing_behind") {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
        runtime.unwrap().block_on(call_again_and_again());
    }
}

async fn call_again_and_again() {
    // What is made once and kept (the runtime's own, the watchdog) is there after the first.
    call_so_often(AT_ONCE).await;
    forget().await;
    // The watchdog may be looking at the last of them.
    let own = std::process::id();
    eventually("no control group is left", || cgroups_of(own).is_empty());
    let (before, memory) = (open_descriptors(), resident_kb());
    let begin = Instant::now();
    call_so_often(CALLS).await;
    let took = begin.elapsed();
    forget().await;
    assert_eq!(children(own), [] as [u32; 0], "not even as a zombie");
    eventually("no control group is left", || cgroups_of(own).is_empty());
    // What the system has still to close, it closes.
    eventually("no descriptor is left", || has_no_new_descriptors(&before));
    let (after, more) = (open_descriptors(), resident_kb().saturating_sub(memory));
    println!(
        "{CALLS} calls in {took:?}; descriptors: {} before, {} after; {more} kB more",
        before.len(),
        after.len()
    );
    assert!(more < 8 << 10, "{more} kB");
}

async fn call_so_often(calls: usize) {
    let (bridge, mark) = isolated("counter", json!({ "poolSize": AT_ONCE })).await;
    let (bridge, each) = (&bridge, calls / AT_ONCE);
    let callers = (0..AT_ONCE).map(|_| async move {
        for _ in 0..each {
            let answer = call(bridge, "s:increment", "{}").await.unwrap();
            assert_eq!(answer["structuredContent"]["value"], 1);
        }
    });
    futures_util::future::join_all(callers).await;
    terminate(bridge).await;
    assert_eq!(super::marked(&mark), [] as [u32; 0]);
}

/// A bridge that is dropped and not ended: it ends by itself.
async fn forget() {
    let (bridge, mark) = isolated("counter", json!({ "poolSize": AT_ONCE })).await;
    call(&bridge, "s:increment", "{}").await.unwrap();
    drop(bridge);
    let begin = Instant::now();
    while !children(std::process::id()).is_empty() || !super::marked(&mark).is_empty() {
        assert!(begin.elapsed() < TIMEOUT, "something of it is left");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}
