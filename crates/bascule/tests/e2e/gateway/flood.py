"""Connects to the bridge (at PORT) and hangs up, and then says in a crowd what it wants (REQUEST), TRIES times over. Prints
how many were refused."""
import socket


def connect():
    return socket.create_connection(("127.0.0.1", PORT), timeout=60)


refused = 0
for _ in range(TRIES):
    for _ in range(50):
        connect().close()
    crowd = [connect() for _ in range(50)]
    for bridge in crowd:
        bridge.sendall(REQUEST)
    refused += sum(bridge.recv(100).startswith(b"HTTP/1.1 403") for bridge in crowd)
print("refused", refused)
