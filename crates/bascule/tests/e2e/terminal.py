"""Runs a command on a terminal of its own and answers its question.

Usage: terminal.py ANSWER HOOK COMMAND…; HOOK is a shell command that runs when the question is there. Prints JSON: the exit
code, the output, and whether the command asked.
"""
import ctypes, json, os, pty, signal, subprocess, sys


def die_with_parent():
    """A killed test must not leave this process, or the command, waiting for an answer."""
    PR_SET_PDEATHSIG = 1
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


die_with_parent()
answer, hook, command = sys.argv[1], sys.argv[2], sys.argv[3:]
pid, terminal = pty.fork()
if pid == 0:
    die_with_parent()
    # A test that runs in the background of a shell ignores it, and so would the command.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    os.execvp(command[0], command)
output, asked = b"", False
while True:
    try:
        part = os.read(terminal, 65536)
    except OSError:  # The other end is closed.
        break
    if not part:
        break
    output += part
    if not asked and b"[y/N] " in output:
        asked = True
        subprocess.run(hook, shell=True, check=True)
        os.write(terminal, answer.encode())
status = os.waitpid(pid, 0)[1]
code = os.waitstatus_to_exitcode(status)
print(json.dumps({"code": code, "output": output.decode(errors="replace"), "asked": asked}))
