"""Opens and closes 50 connections to the bridge at PORT, then sends REQUEST over 50 open ones, TRIES times. Prints the
number of refused requests."""
import socket


def connect():
    return socket.create_connection(("127.0.0.1", PORT), timeout=60)


refused = 0
for _ in range(TRIES):
    for _ in range(50):
        connect().close()
    connections = [connect() for _ in range(50)]
    for bridge in connections:
        bridge.sendall(REQUEST)
    refused += sum(bridge.recv(100).startswith(b"HTTP/1.1 403") for bridge in connections)
print("refused", refused)
