"""Changes of file attributes. Each change is a function of a path; `attempt` prints those that succeed."""
import ctypes, os, platform, subprocess, threading

libc = ctypes.CDLL(None, use_errno=True)
CWD, NOFOLLOW, EMPTY_PATH = -100, 0x100, 0x1000
FCHMODAT2 = 452


def call(*arguments):
    if libc.syscall(*arguments) < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


def opened(path, flags=os.O_RDONLY):
    return os.open(path, flags)


def linked(path):
    link = f"link-{len(os.listdir('.'))}"
    os.symlink(path, link)
    return link


def in_folder(path, change):
    before = os.getcwd()
    os.chdir(os.path.dirname(path))
    try:
        change(os.path.basename(path))
    finally:
        os.chdir(before)


def in_thread(path):
    failures = []

    def run():
        try:
            os.chmod(path, 0o640)
        except OSError as error:
            failures.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    if failures:
        raise failures[0]


def in_program(*words):
    ran = subprocess.run(words, capture_output=True)
    if ran.returncode != 0:
        raise PermissionError(ran.stderr.decode())


def own(path):
    return path, os.getuid(), os.getgid()


def relative(path):
    return os.path.relpath(path)


CHANGES = {
    "chmod": lambda path: os.chmod(path, 0o640),
    "chmod of a descriptor for reading": lambda path: os.chmod(opened(path), 0o640),
    "chmod relative to the working folder": lambda path: os.chmod(relative(path), 0o640),
    "chmod relative to a descriptor": lambda path: os.chmod(relative(path), 0o640, dir_fd=opened(".")),
    "chmod in a folder": lambda path: in_folder(path, lambda name: os.chmod(name, 0o640)),
    "chmod by a link": lambda path: os.chmod(linked(path), 0o640),
    "chmod by a link to a link": lambda path: os.chmod(linked(os.path.abspath(linked(path))), 0o640),
    "chmod by a link to a folder": lambda path: os.chmod(
        os.path.join(linked(os.path.dirname(path)), os.path.basename(path)), 0o640),
    "chmod by a descriptor's path": lambda path: os.chmod(f"/proc/self/fd/{opened(path)}", 0o640),
    "chmod by a descriptor without access": lambda path: os.chmod(f"/dev/fd/{opened(path, os.O_PATH)}", 0o640),
    "chmod through /proc": lambda path: os.chmod("/proc/self/../../" + path, 0o640),
    "chmod without following links": lambda path: os.chmod(path, 0o640, follow_symlinks=False),
    "chmod in another thread": in_thread,
    "chmod in a program": lambda path: in_program("chmod", "640", path),
    "fchmodat2": lambda path: call(FCHMODAT2, CWD, path.encode(), 0o640, 0),
    "fchmodat2 of a descriptor": lambda path: call(FCHMODAT2, opened(path), b"", 0o640, EMPTY_PATH),
    "chown": lambda path: os.chown(*own(path)),
    "lchown": lambda path: os.lchown(*own(path)),
    "fchown": lambda path: os.fchown(*own(opened(path))),
    "chown relative to a descriptor": lambda path: os.chown(*own(relative(path)), dir_fd=opened(".")),
    "utime": lambda path: os.utime(path, (1, 2)),
    "utime now": lambda path: os.utime(path),
    "utime of a descriptor": lambda path: os.utime(opened(path), (1, 2)),
    "utime of a link's target": lambda path: os.utime(linked(path), (1, 2)),
    "touch": lambda path: in_program("touch", "-c", "-d", "2001-01-01", path),
    "setxattr": lambda path: os.setxattr(path, "user.a", b"b"),
    "lsetxattr": lambda path: os.setxattr(path, "user.a", b"b", follow_symlinks=False),
    "fsetxattr": lambda path: os.setxattr(opened(path), "user.a", b"b"),
    "removexattr": lambda path: os.removexattr(path, "user.test"),
}
if platform.machine() == "x86_64":
    times = (ctypes.c_long * 4)(1, 0, 2, 0)
    CHANGES |= {
        "utime(2)": lambda path: call(132, path.encode(), times),
        "utimes(2)": lambda path: call(235, path.encode(), times),
        "futimesat(2)": lambda path: call(261, CWD, path.encode(), times),
        "futimesat(2) of a descriptor": lambda path: call(261, opened(path), None, times),
        "chmod(2)": lambda path: call(90, path.encode(), 0o640),
        "chown(2)": lambda path: call(92, path.encode(), os.getuid(), os.getgid()),
        "lchown(2)": lambda path: call(94, path.encode(), os.getuid(), os.getgid()),
    }


def attempt(path):
    """Prints each change of the file with its result."""
    for name, change in CHANGES.items():
        try:
            change(path)
        except OSError as error:
            print(f"refused: {name}: {error}")
        else:
            print(f"made: {name}")


def race(inside, outside, rounds, change):
    """Makes a change of `shared` while another thread exchanges its content: the paths have equal lengths."""
    shared = ctypes.create_string_buffer(inside.encode())
    stop = False

    def exchange():
        while not stop:
            shared.value = outside.encode()
            shared.value = inside.encode()

    thread = threading.Thread(target=exchange)
    thread.start()
    made = 0
    for _ in range(rounds):
        made += change(shared) == 0
    stop = True
    thread.join()
    return made
