//! Tests `bascule tokens` with real servers.

use crate::support::Bascule;

// req: GW-08
#[test]
fn counts_tokens_of_both_views() {
    let bascule = Bascule::with_demo_servers();
    let ran = bascule.run(&["tokens", "--json"]);
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    let counted = ran.document();
    let servers = counted["servers"].as_array().unwrap();
    let sum = |key: &str| servers.iter().map(|server| server[key].as_u64().unwrap()).sum::<u64>();
    assert_eq!((counted["tokenizer"].as_str(), servers.len()), (Some("o200k_base"), 4));
    // `execute_code` stands beside the tools of the servers.
    assert_eq!(counted["all"]["tools"], sum("tools") + 1);
    assert!(counted["all"]["tokens"].as_u64().unwrap() > sum("tokens"));
    assert_eq!(counted["code"]["tools"], 3);
    let text = bascule.run(&["tokens"]).stdout;
    let last = format!("{}", counted["code"]["tokens"]);
    assert!(text.lines().last().unwrap().ends_with(&last), "{text}");
}
