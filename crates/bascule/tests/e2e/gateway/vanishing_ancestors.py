"""Sends REQUEST to the bridge at PORT, TRIES times. Each try is made by the last process of a chain of forks whose other
processes exit while the bridge walks up the ancestors of its peer. Prints the status of each response."""
import random, signal, socket, time


def send_request(release):
    bridge = socket.create_connection(("127.0.0.1", PORT), timeout=20)
    # The bridge may check its peer when the connection opens, or when the request arrives.
    early = random.random() < 0.5
    if early:
        bridge.sendall(REQUEST)
    until = time.perf_counter() + random.random() * 0.006
    while time.perf_counter() < until:
        pass
    os.write(release, b"x" * 99)
    if not early:
        bridge.sendall(REQUEST)
    return bridge.recv(100).split()[1]


def run_chain(released, release, report):
    for _ in range(random.randrange(1, 16)):
        if os.fork():
            os.read(released, 1)
            os._exit(0)
    try:
        status = send_request(release)
    except BaseException as error:
        status = type(error).__name__.encode()
    os.write(report, status)
    os._exit(0)


# Exited children leave no zombies.
signal.signal(signal.SIGCHLD, signal.SIG_IGN)
for _ in range(TRIES):
    (released, release), (result, report) = os.pipe(), os.pipe()
    if os.fork() == 0:
        run_chain(released, release, report)
    print("status", os.read(result, 100).decode())
    for descriptor in (released, release, result, report):
        os.close(descriptor)
