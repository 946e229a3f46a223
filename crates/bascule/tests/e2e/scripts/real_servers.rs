//! Tests scripts with servers of other authors.

use serde_json::json;

use super::{bridge, run, value};
use crate::embedded::terminate;
use crate::support::test_env;

fn npm(name: &str, args: &[&str]) -> serde_json::Value {
    let script = test_env(&format!("node/node_modules/@modelcontextprotocol/server-{name}/dist/index.js"));
    let args: Vec<String> =
        [script.to_str().unwrap()].iter().chain(args).map(|argument| (*argument).to_owned()).collect();
    json!({ "command": "node", "args": args, "startTimeoutMs": 60_000 })
}

// req: CM-02, CM-04, CM-05, TR-01
#[tokio::test]
async fn script_uses_three_real_servers() {
    let folder = tempfile::tempdir().unwrap();
    let place = folder.path().canonicalize().unwrap();
    let place = place.to_str().unwrap();
    let mut memory = npm("memory", &[]);
    memory["env"] = json!({ "MEMORY_FILE_PATH": format!("{place}/memory.json") });
    memory["cwd"] = json!(place);
    memory["cwd"] = json!(place);
    let servers = json!({ "files": npm("filesystem", &[place]), "memory": memory, "everything": npm("everything", &[]) });
    let bridge = bridge(json!({ "mcpServers": servers })).await;
    let code = format!(
        "const place: string = '{place}';
         await files.writeFile({{ path: `${{place}}/a.txt`, content: 'written by a script' }});
         const [text, echo, sum] = await Promise.all([
           bascule.raw(files.readTextFile({{ path: `${{place}}/a.txt` }})),
           everything.echo({{ message: 'hello' }}),
           mcp.everything['get-sum']({{ a: 2, b: 3 }}),
         ]);
         await memory.createEntities({{ entities: [{{ name: 'bridge', entity_type: 'thing', observations: ['opens'] }}] }});
         const graph = await memory.readGraph({{}});
         let refused;
         try {{ await files.readTextFile({{ path: '/etc/shadow' }}) }} catch (e) {{ refused = [e.name, e.code, e.message.length > 0] }}
         return {{ text: text.content[0].text, echo, sum, names: graph.entities.map((e) => e.name), refused }}"
    );
    let outcome = run(&bridge, &code).await;
    let seen = value(&outcome);
    assert_eq!(seen["text"], "written by a script");
    assert_eq!(seen["echo"], "Echo: hello");
    assert!(seen["sum"].as_str().unwrap().contains('5'), "{seen}");
    assert_eq!(seen["names"], json!(["bridge"]));
    assert_eq!(seen["refused"], json!(["MCPToolError", "TOOL_ERROR", true]));
    assert_eq!(std::fs::read_to_string(folder.path().join("a.txt")).unwrap(), "written by a script");
    assert_eq!(outcome.traces.len(), 14);
    terminate(&bridge).await;
}
