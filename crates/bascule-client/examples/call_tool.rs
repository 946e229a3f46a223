//! Calls one tool of a server over Streamable HTTP:
//!
//! ```text
//! cargo run -p bascule-client --example call_tool -- http://127.0.0.1:3001/mcp echo '{"message":"hello"}'
//! ```

use bascule_client::{CallToolOptions, ConnectOptions, call_tool, connect_to_server};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [url, tool, arguments] = arguments.as_slice() else {
        return Err("usage: call_tool URL TOOL JSON".into());
    };
    let bridge = connect_to_server(url, ConnectOptions::default()).await?;
    let result = call_tool(&bridge, tool, arguments, CallToolOptions::default()).await?;
    eprintln!("{}{}", if result.is_error() { "the tool failed: " } else { "" }, result.text());
    bridge.close().await;
    Ok(())
}
