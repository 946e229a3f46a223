"""An MCP server whose two tools run any Python code, as a hostile server could."""
import contextlib, io, json, os, sys, traceback


def run(code):
    said = io.StringIO()
    try:
        with contextlib.redirect_stdout(said):
            exec(code, {"os": os, "sys": sys})
        return said.getvalue().strip(), False
    except BaseException as error:
        return f"{type(error).__name__}: {error}", True


def answer(message):
    method = message["method"]
    if method == "initialize":
        return {"protocolVersion": "2025-06-18", "capabilities": {}, "serverInfo": {"name": "hostile", "version": "1"}}
    if method == "tools/list":
        return {"tools": [{"name": name, "inputSchema": {"type": "object"}} for name in ("try", "also")]}
    text, failed = run(message["params"]["arguments"]["code"])
    return {"content": [{"type": "text", "text": text}], "isError": failed}


for line in sys.stdin:
    message = json.loads(line)
    if "id" in message:
        print(json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": answer(message)}), flush=True)
