"""A small MCP client over stdio, which starts a server and ends all of its processes."""

import json
import os
import queue
import signal
import subprocess
import threading
import time

PROTOCOL_VERSION = "2025-11-25"
CLIENT = {"name": "bascule-compat", "version": "1"}
STDERR_LINES = 30


class ServerFailed(Exception):
    """The server ended, sent an error, or did not respond in time."""


class McpClient:
    """One server process. `deadline` (of `time.monotonic`) ends every wait."""

    def __init__(self, command, env, cwd, deadline):
        self.deadline = deadline
        self.next_id = 0
        self.closed = False
        self.stderr = []
        self.messages = queue.Queue()
        self.process = subprocess.Popen(
            command, env=env, cwd=cwd, start_new_session=True,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        threading.Thread(target=self._read_stdout, daemon=True).start()
        self.stderr_reader = threading.Thread(target=self._read_stderr, daemon=True)
        self.stderr_reader.start()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def initialize(self):
        params = {"protocolVersion": PROTOCOL_VERSION, "capabilities": {}, "clientInfo": CLIENT}
        result = self.request("initialize", params)
        self._send({"method": "notifications/initialized"})
        return result

    def list_tools(self):
        tools, cursor = [], None
        while True:
            result = self.request("tools/list", {"cursor": cursor} if cursor else {})
            tools += result["tools"]
            cursor = result.get("nextCursor")
            if not cursor:
                return tools

    def call(self, tool, arguments):
        return self.request("tools/call", {"name": tool, "arguments": arguments})

    def request(self, method, params):
        self.next_id += 1
        self._send({"id": self.next_id, "method": method, "params": params})
        while True:
            message = self._receive(method)
            if "method" in message and "id" in message:
                self._answer(message)
            elif message.get("id") == self.next_id:
                if "error" in message:
                    raise ServerFailed(f"{method}: {message['error'].get('message')}")
                return message["result"]

    def memory_mb(self):
        """Proportional resident memory of the server's processes, without the package manager that waits for them."""
        _, *started = process_tree(self.process.pid)
        return sum(proportional_kb(pid) for pid in started or [self.process.pid]) // 1024

    def close(self):
        """Closes stdin and waits for the server, then kills what is left of it."""
        if self.closed:
            return
        self.closed = True
        tree = process_tree(self.process.pid)
        try:
            self.process.stdin.close()
        except OSError:
            pass
        for end in (None, signal.SIGTERM, signal.SIGKILL):
            if end:
                kill_all(tree, end)
            try:
                self.process.wait(timeout=5)
                break
            except subprocess.TimeoutExpired:
                tree = process_tree(self.process.pid) or tree
        kill_all(tree, signal.SIGKILL)

    def stderr_end(self):
        self.stderr_reader.join(timeout=5)
        return "\n".join(self.stderr)

    def _answer(self, request):
        if request["method"] == "ping":
            self._send({"id": request["id"], "result": {}})
        else:
            self._send({"id": request["id"], "error": {"code": -32601, "message": "not supported by this client"}})

    def _send(self, message):
        line = json.dumps({"jsonrpc": "2.0", **message}) + "\n"
        try:
            self.process.stdin.write(line.encode())
            self.process.stdin.flush()
        except OSError as error:
            raise ServerFailed(f"the server closed stdin: {error}{self._exit()}") from error

    def _receive(self, method):
        try:
            message = self.messages.get(timeout=max(0.1, self.deadline - time.monotonic()))
        except queue.Empty:
            raise ServerFailed(f"{method}: no response in time") from None
        if message is None:
            raise ServerFailed(f"{method}: the server closed stdout{self._exit()}")
        return message

    def _exit(self):
        try:
            code = self.process.wait(timeout=5)
        except subprocess.TimeoutExpired:
            return ""
        self.stderr_reader.join(timeout=5)
        return f", exit code {code}"

    def _read_stdout(self):
        for line in self.process.stdout:
            try:
                message = json.loads(line)
            except ValueError:
                continue
            if isinstance(message, dict):
                self.messages.put(message)
        self.messages.put(None)

    def _read_stderr(self):
        for line in self.process.stderr:
            self.stderr.append(line.decode(errors="replace").rstrip())
            del self.stderr[:-STDERR_LINES]


def process_tree(root):
    """The process and its descendants."""
    children = {}
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            parent = parent_of(entry)
            children.setdefault(parent, []).append(int(entry))
    found, waiting = [], [root]
    while waiting:
        pid = waiting.pop()
        found.append(pid)
        waiting += children.get(pid, [])
    return found


def parent_of(pid):
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as stat:
            return int(stat.read().rpartition(")")[2].split()[1])
    except (OSError, IndexError):
        return 0


def proportional_kb(pid):
    try:
        with open(f"/proc/{pid}/smaps_rollup", encoding="utf-8") as rollup:
            return next((int(line.split()[1]) for line in rollup if line.startswith("Pss:")), 0)
    except OSError:
        return 0


def kill_all(pids, number):
    for pid in pids:
        try:
            os.kill(pid, number)
        except OSError:
            pass
