"""Runs each server of `servers.json` direct and behind Bascule, and compares the two.

`report` prints the results; `mcp_client` speaks to the servers.
"""

import argparse
import hashlib
import json
import os
import shutil
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path

import report
from mcp_client import McpClient, ServerFailed

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
LIST = HERE / "servers.json"
DOCUMENT = ROOT / "docs" / "compatibility.md"
# With less free disk space than this, direct runs no longer keep their downloads for the next run.
MIN_FREE_BYTES = 10 << 30
BROWSERS = ("chromium", "chromium-browser", "google-chrome")
SETTINGS = ("sandbox", "limits", "startTimeoutMs", "timeoutMs")


def main():
    options = parse_options()
    entries = json.loads(LIST.read_text())["servers"]
    if options.only:
        entries = select(entries, options.only)
    results = run_all(entries, options)
    if options.docs:
        report.write_document(DOCUMENT, results)
    print(json.dumps(results, indent=1) if options.json else report.table(results))
    sys.exit(1 if any(report.is_failure(result) for result in results) else 0)


def parse_options():
    parser = argparse.ArgumentParser(prog="make compat", description=__doc__)
    parser.add_argument("--bascule", required=True, help="the program to test")
    parser.add_argument("--folder", required=True, type=Path, help="downloads, homes and results")
    parser.add_argument("--only", default=os.environ.get("COMPAT_ONLY", ""), help="names, separated by commas")
    parser.add_argument("--jobs", type=int, default=int(os.environ.get("COMPAT_JOBS", "2")))
    parser.add_argument("--timeout", type=int, default=600, help="seconds for each start of a server")
    parser.add_argument("--resume", action="store_true", help="keep the results of an earlier run of the same program")
    parser.add_argument("--defaults", action="store_true", help="ignore the `sandbox` and `limits` of the list")
    parser.add_argument("--docs", action="store_true", help="write docs/compatibility.md")
    parser.add_argument("--json", action="store_true", help="print the results as JSON")
    return parser.parse_args()


def select(entries, names):
    wanted = set(names.split(","))
    unknown = wanted - {entry["name"] for entry in entries}
    if unknown:
        sys.exit(f"compat: no such server in {LIST.name}: {', '.join(sorted(unknown))}")
    return [entry for entry in entries if entry["name"] in wanted]


def run_all(entries, options):
    """Results in the order of the entries; a line on stderr for each as it is ready."""
    results = {}
    with ThreadPoolExecutor(options.jobs) as pool:
        runs = {pool.submit(run_or_resume, entry, options): entry["name"] for entry in entries}
        for run in as_completed(runs):
            result = results[runs[run]] = run.result()
            print(f"[{len(results)}/{len(entries)}] {report.line(result)}", file=sys.stderr, flush=True)
    return [results[entry["name"]] for entry in entries]


def run_or_resume(entry, options):
    key = fingerprint(entry, options)
    path = options.folder / "results" / f"{entry['name']}.json"
    if options.resume and path.exists():
        kept = json.loads(path.read_text())
        if kept["key"] == key and not report.is_failure(kept):
            return kept
    result = {**run_server(entry, options), "key": key}
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(result, indent=1))
    return result


def fingerprint(entry, options):
    program = Path(options.bascule).stat()
    text = json.dumps([entry, program.st_size, program.st_mtime_ns, options.defaults], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def run_server(entry, options):
    """The server direct, then behind Bascule, in the same working folder."""
    if entry.get("browser") and not find_browser():
        return report.skipped(entry, "no Chromium is installed")
    folder = options.folder / "servers" / entry["name"]
    settings = {} if options.defaults else {key: entry[key] for key in SETTINGS if key in entry}
    command, env = command_of(entry, folder)
    caches = options.folder / "caches"
    if shutil.disk_usage(options.folder).free < MIN_FREE_BYTES:
        # Another server may be using the shared caches, so they stay; this one downloads into its own folder.
        caches = folder / "caches"
    direct = observe(entry, folder, command, direct_env(caches, folder, env), options)
    config = write_config(folder, entry["name"], command, env, settings)
    bridge = [options.bascule, "--config", str(config), "serve", "--stdio", "--server", entry["name"]]
    behind = observe(entry, folder, bridge, bridge_env(folder), options)
    shutil.rmtree(folder, ignore_errors=True)
    return report.compare(entry, settings, command, direct, behind)


def command_of(entry, folder):
    """The command with its pinned version, and its environment variables."""
    package, version = entry["package"], entry["version"]
    fill = lambda text: text.replace("{work}", str(folder / "work")).replace("{browser}", find_browser() or "")
    extra = [f"--with={requirement}" for requirement in entry.get("with", [])]
    if entry["registry"] == "npm" and "program" in entry:
        command = ["npx", "-y", f"--package={package}@{version}", *entry["program"].split()]
    elif entry["registry"] == "npm":
        command = ["npx", "-y", f"{package}@{version}"]
    elif "program" in entry:
        command = ["uvx", *extra, "--from", f"{package}=={version}", *entry["program"].split()]
    else:
        command = ["uvx", *extra, f"{package}=={version}"]
    env = {name: fill(value) for name, value in entry.get("env", {}).items()}
    return command + [fill(argument) for argument in entry.get("args", [])], env


def find_browser():
    return next(filter(None, map(shutil.which, BROWSERS)), None)


def observe(entry, folder, command, env, options):
    """Starts a server in a new working folder and reports its tools and the result of the call."""
    work = prepare_work(folder)
    started = time.monotonic()
    with McpClient(command, env, work, started + options.timeout) as client:
        try:
            client.initialize()
            seen = {"tools": client.list_tools(), "seconds": round(time.monotonic() - started, 1)}
            if "call" in entry:
                seen["result"] = call(client, entry["call"], work)
            seen["memory"] = client.memory_mb()
            check_survival(client)
            return seen
        except ServerFailed as failure:
            # The bridge reports the cause on stderr as well, perhaps a moment later.
            client.close()
            return {"error": str(failure), "stderr": client.stderr_end()}


def check_survival(client):
    """A server over its memory limit is killed a moment after it has started."""
    time.sleep(2)
    client.list_tools()


def call(client, wanted, work):
    client.deadline = time.monotonic() + 60
    arguments = json.loads(json.dumps(wanted.get("arguments", {})).replace("{work}", str(work)))
    return client.call(wanted["tool"], arguments)


def prepare_work(folder):
    """A working folder with a text, a table and a commit, equal for each run."""
    work = folder / "work"
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir(parents=True)
    (work / "note.txt").write_text("a bascule is a drawbridge\n")
    (work / "table.csv").write_text("city,bridges\nHamburg,2500\nVenice,435\n")
    git = ["git", "-C", str(work), "-c", "user.name=compat", "-c", "user.email=compat@example.com"]
    for arguments in (["init", "-q", "-b", "main"], ["add", "."], ["commit", "-q", "-m", "first"]):
        subprocess.run(git + arguments, check=True)
    return work


def direct_env(caches, folder, env):
    """The user's environment with another home and download caches."""
    home = folder / "home"
    home.mkdir(parents=True, exist_ok=True)
    return {**os.environ, "HOME": str(home), "npm_config_cache": str(caches / "npm"), "UV_CACHE_DIR": str(caches / "uv"),
            "XDG_RUNTIME_DIR": str(home), **env}


def bridge_env(folder):
    """The user's environment. Homes of servers and the control socket are in the folder."""
    runtime = folder / "run"
    runtime.mkdir(mode=0o700, parents=True, exist_ok=True)
    return {**os.environ, "XDG_DATA_HOME": str(folder / "data"), "XDG_RUNTIME_DIR": str(runtime)}


def write_config(folder, name, command, env, settings):
    config = folder / "config" / "mcp.json"
    config.parent.mkdir(parents=True, exist_ok=True)
    entry = {"command": command[0], "args": command[1:], "env": env, **settings}
    config.write_text(json.dumps({"mcpServers": {name: entry}}, indent=1))
    return config


if __name__ == "__main__":
    main()
