// An MCP server whose tool runs any JavaScript code, like hostile.py in Node.
import { createInterface } from "node:readline";

function run(code) {
  try {
    return { text: String(new Function(code)() ?? ""), failed: false };
  } catch (error) {
    return { text: `${error.name}: ${error.message}`, failed: true };
  }
}

function answer({ method, params }) {
  if (method === "initialize") {
    return { protocolVersion: "2025-06-18", capabilities: {}, serverInfo: { name: "hostile", version: "1" } };
  }
  if (method === "tools/list") {
    return { tools: [{ name: "try", inputSchema: { type: "object" } }] };
  }
  const { text, failed } = run(params.arguments.code);
  return { content: [{ type: "text", text }], isError: failed };
}

createInterface({ input: process.stdin }).on("line", (line) => {
  const message = JSON.parse(line);
  if ("id" in message) {
    console.log(JSON.stringify({ jsonrpc: "2.0", id: message.id, result: answer(message) }));
  }
});
