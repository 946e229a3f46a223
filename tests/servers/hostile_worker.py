#!/usr/bin/python3
"""A worker that violates the protocol. The script it receives names the attack."""
import json, os, signal, socket, struct, sys

connection = socket.socket(fileno=0)


def send(message):
    body = message if isinstance(message, bytes) else json.dumps(message, separators=(",", ":")).encode()
    connection.sendall(struct.pack("<I", len(body)) + body)


def receive():
    head = connection.recv(4, socket.MSG_WAITALL)
    if len(head) < 4:
        sys.exit(0)
    return json.loads(connection.recv(struct.unpack("<I", head)[0], socket.MSG_WAITALL))


def call(number, server="clock", tool="now"):
    send({"type": "rpc_call", "id": f"{init['id']}-{number}", "server": server, "tool": tool, "args": {}})


def done(result):
    send({"type": "execution_complete", "success": True, "result": result})


send({"type": "ready", "missing": []})
init = receive()
attack = init["code"]
if attack == "forged id":
    send({"type": "rpc_call", "id": "another-1", "server": "clock", "tool": "now", "args": {}})
elif attack == "repeated id":
    call(1), call(1)
elif attack == "other tool":
    call(1, "notes", "list_notes")
    done(receive()["error"]["code"])
elif attack == "odd names":
    call(1, "", ""), call(2, "a:b", "c\u0000d"), call(3, "__proto__", "constructor")
    done(sorted(receive()["error"]["code"] for _ in range(3)))
elif attack == "ready twice":
    send({"type": "ready", "missing": []})
elif attack == "garbage":
    send(b"\xff\x00garbage")
elif attack == "unknown message":
    send({"type": "format_disk"})
elif attack == "too long":
    connection.sendall(struct.pack("<I", 0xFFFFFFFF))
elif attack == "half a frame":
    connection.sendall(struct.pack("<I", 100) + b"{")
elif attack == "long value":
    done("x" * 10_000_000)
elif attack == "flood":
    for _ in range(20_000):
        send({"type": "console", "level": "log", "text": "x" * 100})
    done(1)
elif attack == "hangs up":
    connection.close()
    os.close(0)
elif attack == "exits":
    os._exit(7)
elif attack == "crashes":
    os.kill(os.getpid(), signal.SIGSEGV)
elif attack == "after the end":
    done("first")
    done("second")
signal.pause()
