"""Begins a session at the bridge (at PORT, with REQUEST), TRIES times over, each time as the last of a line of processes of
which all others end while it is looked at: who goes up the line step by step may find that it leads nowhere. Prints what
came of each try."""
import random, signal, socket, time


def ask(end):
    bridge = socket.create_connection(("127.0.0.1", PORT), timeout=20)
    # The look may begin with the connection, or with the request.
    early = random.random() < 0.5
    if early:
        bridge.sendall(REQUEST)
    until = time.perf_counter() + random.random() * 0.006
    while time.perf_counter() < until:
        pass
    os.write(end, b"x" * 99)
    if not early:
        bridge.sendall(REQUEST)
    return bridge.recv(100).split()[1]


def last_of_line(wait, end, told):
    for _ in range(random.randrange(1, 16)):
        if os.fork():
            os.read(wait, 1)
            os._exit(0)
    try:
        status = ask(end)
    except BaseException as error:
        status = type(error).__name__.encode()
    os.write(told, status)
    os._exit(0)


# Who has ended is gone at once, and nobody need wait for it.
signal.signal(signal.SIGCHLD, signal.SIG_IGN)
for _ in range(TRIES):
    (wait, end), (heard, told) = os.pipe(), os.pipe()
    if os.fork() == 0:
        last_of_line(wait, end, told)
    print("said", os.read(heard, 100).decode())
    for descriptor in (wait, end, heard, told):
        os.close(descriptor)
