//! Many calls, each in its own process, must leave no processes, descriptors, control groups or memory behind.

use std::time::{Duration, Instant};

use serde_json::json;

use super::isolated;
use crate::embedded::{call, terminate};
use crate::support::{
    TIMEOUT, cgroups_of, children, eventually, has_no_new_descriptors, is_alone, open_descriptors,
    resident_kb,
};

const CALLS: usize = 1_000;
const CONCURRENT: usize = 4;

// req: SB-01, SB-05
#[test]
fn many_calls_leave_nothing_behind() {
    if is_alone("isolation::many_calls::many_calls_leave_nothing_behind") {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
        runtime.unwrap().block_on(compare_before_and_after());
    }
}

async fn compare_before_and_after() {
    // The first calls create everything that is kept, such as the watchdog and the runtime's threads.
    make_calls(CONCURRENT).await;
    drop_bridge().await;
    // The watchdog may still be checking the last of them.
    let own = std::process::id();
    eventually("no control group is left", || cgroups_of(own).is_empty());
    let (before, memory) = (open_descriptors(), resident_kb());
    let begin = Instant::now();
    make_calls(CALLS).await;
    let took = begin.elapsed();
    drop_bridge().await;
    assert_eq!(children(own), [] as [u32; 0], "no child, and no zombie");
    eventually("no control group is left", || cgroups_of(own).is_empty());
    // The system may still be closing some.
    eventually("no descriptor is left", || has_no_new_descriptors(&before));
    let (after, more) = (open_descriptors(), resident_kb().saturating_sub(memory));
    println!(
        "{CALLS} calls in {took:?}; descriptors: {} before, {} after; {more} kB more",
        before.len(),
        after.len()
    );
    assert!(more < 8 << 10, "{more} kB");
}

async fn make_calls(calls: usize) {
    let (bridge, mark) = isolated("counter", json!({ "poolSize": CONCURRENT })).await;
    let (bridge, each) = (&bridge, calls / CONCURRENT);
    let callers = (0..CONCURRENT).map(|_| async move {
        for _ in 0..each {
            let answer = call(bridge, "s:increment", "{}").await.unwrap();
            assert_eq!(answer["structuredContent"]["value"], 1);
        }
    });
    futures_util::future::join_all(callers).await;
    terminate(bridge).await;
    assert_eq!(super::marked(&mark), [] as [u32; 0]);
}

/// A bridge that is dropped without `terminate` ends its processes too.
async fn drop_bridge() {
    let (bridge, mark) = isolated("counter", json!({ "poolSize": CONCURRENT })).await;
    call(&bridge, "s:increment", "{}").await.unwrap();
    drop(bridge);
    let begin = Instant::now();
    while !children(std::process::id()).is_empty() || !super::marked(&mark).is_empty() {
        assert!(begin.elapsed() < TIMEOUT, "a process is left");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}
