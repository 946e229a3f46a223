//! Many scripts at once, with hostile ones among them.

use futures_util::future::join_all;
use serde_json::json;

use super::{bridge, demo_servers, run, run_with, short, value};
use crate::embedded::terminate;

// req: CM-01
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn among_a_hundred_scripts_the_good_ones_all_finish_right() {
    let bridge =
        bridge(json!({ "mcpServers": demo_servers(), "bascule": { "scripts": { "maxScripts": 10 } } })).await;
    let hostile = [
        "for (;;) {}",
        "const a = []; for (;;) a.push(new Array(1000).fill(1))",
        "const f = () => f(); f()",
        "while (true) console.log('flood')",
        "await new Promise(() => {})",
        "for (let n = 0; n < 1000; n++) trouble.sleep({ ms: 1000 }); throw 1",
    ];
    let scripts = (0..100).map(|n| {
        let bridge = &bridge;
        async move {
            if n % 5 == 0 {
                let outcome = run_with(bridge, hostile[n / 5 % hostile.len()], |request| {
                    short(request);
                    request.memory_mb = Some(64);
                })
                .await;
                assert!(!outcome.success);
            } else {
                let code = format!(
                    "const [a, b] = await Promise.all([clock.now({{}}), counter.read({{}})]); await bascule.sleep(1); return [{n}, typeof a, typeof b]"
                );
                let outcome = run(bridge, &code).await;
                assert_eq!(value(&outcome)[0], json!(n));
                assert_eq!(outcome.traces.len(), 4);
            }
        }
    });
    join_all(scripts).await;
    terminate(&bridge).await;
}
