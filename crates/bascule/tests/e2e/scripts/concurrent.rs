//! Tests many concurrent scripts, some of them hostile.

use futures_util::future::join_all;
use serde_json::json;

use super::interfaces::worker_count;
use super::{bridge, demo_servers, run, run_with, short, value};
use crate::embedded::terminate;
use crate::fleet::serve_process::{ServeProcess, config_text};
use crate::gateway::client::Client;
use crate::support::eventually;

const HOSTILE: [&str; 6] = [
    "for (;;) {}",
    "const a = []; for (;;) a.push(new Array(1000).fill(1))",
    "const f = () => f(); f()",
    "while (true) console.log('flood')",
    "await new Promise(() => {})",
    "for (let n = 0; n < 1000; n++) trouble.sleep({ ms: 1000 }); throw 1",
];

// req: CM-01
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hostile_scripts_do_not_affect_others() {
    let bridge =
        bridge(json!({ "mcpServers": demo_servers(), "bascule": { "scripts": { "maxScripts": 10 } } })).await;
    let scripts = (0..100).map(|n| {
        let bridge = &bridge;
        async move {
            if n % 5 == 0 {
                let outcome = run_with(bridge, HOSTILE[n / 5 % HOSTILE.len()], |request| {
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

// req: CM-01, GW-08
#[test]
fn hostile_scripts_do_not_affect_other_clients() {
    let mut configured: serde_json::Value = serde_json::from_str(&config_text(&demo_servers())).unwrap();
    configured["bascule"] = json!({ "scripts": { "memoryMb": 64, "poolSize": 2 } });
    let serving = ServeProcess::start_with_config(&configured.to_string(), &[]);
    let address = serving.address();
    std::thread::scope(|all| {
        for client in 0..10 {
            all.spawn(move || {
                let me = Client::connect(address, "/mcp");
                for n in 0..10 {
                    let hostile = (client + n) % 5 == 0;
                    let good = format!("const t = await clock.now({{}}); return [{client}, {n}, typeof t]");
                    let code = if hostile { HOSTILE[n % HOSTILE.len()] } else { good.as_str() };
                    // Only the endless scripts need a short limit.
                    let timeout = if hostile { 1_500 } else { 30_000 };
                    let answer = me.call("execute_code", &json!({ "code": code, "timeoutMs": timeout }));
                    let outcome = &answer["result"]["structuredContent"];
                    assert_eq!(outcome["success"], !hostile, "{code}: {answer}");
                    if !hostile {
                        assert_eq!(outcome["result"], json!([client, n, "object"]));
                    }
                }
            });
        }
    });
    eventually("only the workers of the pool are left", || worker_count(serving.pid()) <= 2);
}
