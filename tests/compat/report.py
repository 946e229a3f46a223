"""Compares two runs of a server, and prints the results as a table and as a page of the documentation."""

import json
import platform
from datetime import date

START, END = "<!-- results -->\n", "<!-- end of results -->\n"
PATHS = 80


def compare(entry, settings, command, direct, behind):
    """The result of one server, as it is stored and printed with `--json`."""
    outcome, reason = judge(entry, direct, behind)
    result = summarise(entry, outcome, reason)
    result |= {"command": command, "settings": settings, "tools": len(direct["tools"]) if "tools" in direct else None,
               "memoryMb": direct.get("memory"),
               "secondsDirect": direct.get("seconds"), "secondsBehind": behind.get("seconds")}
    if is_failure(result):
        result |= {"stderrDirect": direct.get("stderr"), "stderrBehind": behind.get("stderr")}
    return result


def skipped(entry, reason):
    return summarise(entry, "skipped", reason)


def summarise(entry, outcome, reason):
    result = {key: entry[key] for key in ("name", "registry", "package", "version")}
    return result | {"command": None, "settings": {}, "outcome": outcome, "reason": reason, "lacks": entry.get("lacks"),
                     "tools": None, "call": entry["call"]["tool"] if "call" in entry else None, "memoryMb": None,
                     "secondsDirect": None, "secondsBehind": None}


def judge(entry, direct, behind):
    """The outcome and its reason."""
    if "error" in direct:
        return judge_without_direct(entry, direct, behind)
    if "error" in behind:
        return "fails behind Bascule", behind["error"]
    difference = differing_tools(direct["tools"], behind["tools"]) or differing_result(entry, direct, behind)
    if difference:
        return "differs", difference
    if len(direct["tools"]) != entry.get("tools"):
        return "list is wrong", f"{len(direct['tools'])} tools, {entry.get('tools')} in the list"
    return "works", None


def judge_without_direct(entry, direct, behind):
    key = entry.get("lacks")
    if not key:
        return "fails direct", direct["error"]
    if key in behind.get("stderr", "") + behind.get("error", ""):
        return "lacks a key", None
    return "differs", f"direct it asks for `{key}`, behind Bascule: {behind.get('error', 'it starts')}"


def differing_tools(direct, behind):
    schemas = lambda tools: {tool["name"]: (tool.get("inputSchema"), tool.get("outputSchema")) for tool in tools}
    direct, behind = schemas(direct), schemas(behind)
    names = sorted(name for name in direct.keys() | behind.keys() if direct.get(name) != behind.get(name))
    return f"tools differ: {', '.join(names)[:PATHS]}" if names else None


def differing_result(entry, direct, behind):
    """A result that varies from call to call is compared in its kind only."""
    if "call" not in entry:
        return None
    seen = [shape(run["result"]) if entry["call"].get("varies") else run["result"] for run in (direct, behind)]
    return None if seen[0] == seen[1] else f"results differ: {json.dumps(seen[0])[:400]} and {json.dumps(seen[1])[:400]}"


def shape(result):
    return [bool(result.get("isError")), [content.get("type") for content in result.get("content", [])]]


def is_failure(result):
    return result["outcome"] not in ("works", "lacks a key", "skipped")


def line(result):
    reason = f": {result['reason']}" if result["reason"] else ""
    times = f" ({result['secondsDirect']} s direct, {result['secondsBehind']} s behind, {result['memoryMb']} MB)"
    return f"{result['name']}: {result['outcome']}{reason}{times if result['secondsBehind'] else ''}"


def table(results):
    heads = ("server", "version", "tools", "call", "memory", "outcome")
    rows = [heads] + [cells(result) for result in results]
    widths = [max(len(row[column]) for row in rows) for column in range(len(heads))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip() for row in rows]
    return "\n".join(lines + [summary(results)])


def cells(result):
    entry = " with an entry" if result["settings"] else ""
    lacks = f" ({result['lacks']})" if result["outcome"] == "lacks a key" else ""
    reason = f": {result['reason']}" if result["reason"] else ""
    text = lambda value, unit="": "–" if value is None else f"{value}{unit}"
    return (result["package"], result["version"], text(result["tools"]), text(result["call"]),
            text(result["memoryMb"], " MB"), result["outcome"] + entry + lacks + reason)


def summary(results):
    works = [result for result in results if result["outcome"] == "works"]
    entries = sum(1 for result in works if result["settings"])
    lacking = sum(1 for result in results if result["outcome"] == "lacks a key")
    failed = sum(1 for result in results if is_failure(result))
    return (f"{len(works)} of {len(results)} servers work, {entries} of them with an entry; "
            f"{lacking} do not start without a key; {failed} failed")


def write_document(path, results):
    """Replaces the results in the page."""
    before, rest = path.read_text().split(START)
    after = rest.split(END)[1]
    path.write_text(before + START + document(results) + END + after)


def document(results):
    text = f"\n{date.today().isoformat()}, Linux {platform.release().split('-')[0]}: {summary(results)}.\n\n"
    text += "| server | version | tools | call | memory | outcome |\n|---|---|---|---|---|---|\n"
    for result in results:
        package, *rest = cells(result)
        settings = f" `{json.dumps(result['settings'])[1:-1]}`" if result["settings"] else ""
        text += f"| {result['registry']} `{package}` | {' | '.join(rest)}{settings} |\n"
    return text + "\n"
