#!/usr/bin/python3
"""A worker that says what no worker says. What it does is in the script that it is given."""
import json, os, signal, socket, struct, sys

link = socket.socket(fileno=0)


def say(message):
    body = message if isinstance(message, bytes) else json.dumps(message, separators=(",", ":")).encode()
    link.sendall(struct.pack("<I", len(body)) + body)


def hear():
    head = link.recv(4, socket.MSG_WAITALL)
    if len(head) < 4:
        sys.exit(0)
    return json.loads(link.recv(struct.unpack("<I", head)[0], socket.MSG_WAITALL))


def call(number, server="clock", tool="now"):
    say({"type": "rpc_call", "id": f"{init['id']}-{number}", "server": server, "tool": tool, "args": {}})


def done(result):
    say({"type": "execution_complete", "success": True, "result": result})


say({"type": "ready", "missing": []})
init = hear()
what = init["code"]
if what == "forged id":
    say({"type": "rpc_call", "id": "another-1", "server": "clock", "tool": "now", "args": {}})
elif what == "repeated id":
    call(1), call(1)
elif what == "other tool":
    call(1, "notes", "list_notes")
    done(hear()["error"]["code"])
elif what == "odd names":
    call(1, "", ""), call(2, "a:b", "c\u0000d"), call(3, "__proto__", "constructor")
    done(sorted(hear()["error"]["code"] for _ in range(3)))
elif what == "ready twice":
    say({"type": "ready", "missing": []})
elif what == "garbage":
    say(b"\xff\x00garbage")
elif what == "unknown message":
    say({"type": "format_disk"})
elif what == "too long":
    link.sendall(struct.pack("<I", 0xFFFFFFFF))
elif what == "half a frame":
    link.sendall(struct.pack("<I", 100) + b"{")
elif what == "long value":
    done("x" * 10_000_000)
elif what == "flood":
    for _ in range(20_000):
        say({"type": "console", "level": "log", "text": "x" * 100})
    done(1)
elif what == "hangs up":
    link.close()
    os.close(0)
elif what == "exits":
    os._exit(7)
elif what == "crashes":
    os.kill(os.getpid(), signal.SIGSEGV)
elif what == "after the end":
    done("first")
    done("second")
signal.pause()
