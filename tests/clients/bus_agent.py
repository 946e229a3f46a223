"""An agent on the bus that shares no code with Bascule: what bus_nats.py and bus_rabbitmq.py have in common.

It was written from docs/asyncapi.yaml and docs/bus.md, and checks every message that it receives against that document.
It reads one command in JSON from each line of stdin and prints one line of JSON for each: see `Agent.run`.
"""

import asyncio
import json
import os
import sys
import traceback
import uuid
from datetime import datetime, timedelta, timezone
from pathlib import Path

import jsonschema
import yaml

DOCUMENT = yaml.safe_load((Path(__file__).parents[2] / "docs/asyncapi.yaml").read_text())
TIMEOUT = 60


def now(seconds=0):
    return (datetime.now(timezone.utc) + timedelta(seconds=seconds)).isoformat()


def problem_of(envelope):
    """The first violation of the document by a message; None if there is none."""
    if envelope.get("type") not in DOCUMENT["components"]["messages"]:
        return f"type {envelope.get('type')} is not in the document"
    schema = {"$ref": f"#/components/messages/{envelope['type']}/payload", "components": DOCUMENT["components"]}
    error = next(jsonschema.Draft7Validator(schema).iter_errors(envelope), None)
    return error and f"{'/'.join(map(str, error.path))}: {error.message}"


def or_exit(handler):
    """Ends the program if the handler of a message fails: the clients' libraries would only log it."""

    async def handle(*arguments):
        try:
            await handler(*arguments)
        except BaseException:
            traceback.print_exc()
            os._exit(1)

    return handle


class Answer:
    """The messages of one call so far."""

    def __init__(self):
        self.head = None
        self.parts = {}
        self.progress = []
        self.progressed = asyncio.Event()
        self.done = asyncio.get_running_loop().create_future()
        self.answers = 0

    def take(self, envelope):
        body = envelope["body"]
        if envelope["type"] == "ToolProgress":
            self.progress.append(body["progress"])
            self.progressed.set()
            return
        if envelope["type"] == "ToolResultPart":
            self.parts[body["index"]] = body["text"]
        else:
            self.answers += 1
            self.head = self.head or envelope
        expected = ((self.head or {"body": {}})["body"].get("resultParts") or {"count": 0})["count"]
        if self.head and len(self.parts) >= expected and not self.done.done():
            self.done.set_result(self.head)

    async def answered_again(self, answers):
        """Waits for an answer beyond so many."""
        while self.answers <= answers:
            await asyncio.sleep(0.01)


class Agent:
    """One agent. `transport` has `subscribe(topic, handler)`, `publish(topic, payload, headers)` and `read_object(bucket, name)`."""

    def __init__(self, transport, name):
        self.transport = transport
        self.name = name
        self.reply_to = f"tool.result.{name}.{uuid.uuid4().hex}"
        self.calls = {}
        self.tools = asyncio.Queue()
        self.problems = []
        self.tool_parts = {}

    async def connect(self):
        await self.transport.subscribe(self.reply_to, or_exit(self.on_answer))
        await self.transport.subscribe(f"tool.meta.mcp.{self.name}", or_exit(self.on_availability))

    def check(self, payload, headers):
        envelope = json.loads(payload)
        problem = problem_of(envelope)
        if not problem and headers.get("rb-content-trust") != envelope["headers"]["rb-content-trust"]:
            problem = "the broker's header differs from the envelope's"
        if problem:
            self.problems.append(problem)
        return envelope

    async def on_answer(self, payload, headers):
        envelope = self.check(payload, headers)
        call = self.calls.get(envelope["body"]["toolCallId"])
        if call:
            call.take(envelope)

    async def on_availability(self, payload, headers):
        envelope = self.check(payload, headers)
        body = envelope["body"]
        if envelope["type"] == "ToolResultPart":
            announced, parts = self.tool_parts.get(body["toolCallId"], (None, None))
            if announced is None:
                return
            parts[body["index"]] = body["text"]
            if len(parts) < announced["toolsParts"]["count"]:
                return
            body = {**announced, "tools": json.loads("".join(parts[index] for index in sorted(parts)))}
        elif body.get("toolsParts"):
            self.tool_parts[envelope["messageId"]] = (body, {})
            return
        elif body.get("toolsObject"):
            stored = body["toolsObject"]
            body = {**body, "tools": json.loads(await self.transport.read_object(stored["bucket"], stored["name"]))}
        self.tools.put_nowait(body)

    async def send(self, topic, kind, body, **fields):
        headers = {"rb-content-trust": "tool-request"}
        envelope = {
            "version": 1,
            "messageId": uuid.uuid4().hex,
            "type": kind,
            "source": self.name,
            "timestamp": now(),
            "headers": headers,
            "body": body,
            **fields,
        }
        problem = problem_of(envelope)
        assert problem is None, problem
        await self.transport.publish(topic, json.dumps(envelope).encode(), headers)
        return envelope

    async def refresh(self, server=None):
        """Asks for the tools and returns what the bridge publishes."""
        while not self.tools.empty():
            self.tools.get_nowait()
        body = {"agent": self.name, "server": server}
        await self.send("tool.meta.mcp.refresh", "McpMetadataRefreshRequest", body)
        return await asyncio.wait_for(self.tools.get(), TIMEOUT)

    async def call(self, tool, arguments=None, progress=False, cancel=None, deadline=30, repeat=1, shared=False):
        """Calls a tool. `cancel`: at once, or after the first `progress`. `repeat`: sends the same message several times."""
        call_id = f"call-{uuid.uuid4().hex}"
        call = self.calls[call_id] = Answer()
        body = {"toolCallId": call_id, "toolName": tool, "arguments": arguments or {}, "deadline": now(deadline)}
        if progress:
            body["progress"] = True
        topic = "tool.invoke.mcp" if shared else f"tool.invoke.mcp.{self.name}"
        fields = {"correlationId": f"python-{call_id}", "replyTo": self.reply_to}
        envelope = await self.send(topic, "ToolInvokeRequest", body, **fields)
        if cancel == "progress":
            await asyncio.wait_for(call.progressed.wait(), TIMEOUT)
        if cancel:
            await self.send(f"tool.cancel.mcp.{self.name}", "ToolCancelRequest", {"toolCallId": call_id})
        head = await asyncio.wait_for(call.done, TIMEOUT)
        for _ in range(repeat - 1):
            # The same message again: the bridge answers from its records.
            answers = call.answers
            await self.transport.publish(topic, json.dumps(envelope).encode(), envelope["headers"])
            await asyncio.wait_for(call.answered_again(answers), TIMEOUT)
        return await self.describe(call, head, fields["correlationId"])

    async def describe(self, call, head, correlation_id):
        body, way = head["body"], "message"
        result = body.get("result")
        if body.get("resultObject"):
            way, stored = "object", body["resultObject"]
            text = await self.transport.read_object(stored["bucket"], stored["name"])
            assert len(text) == stored["bytes"], (len(text), stored)
            result = json.loads(text)
        if body.get("resultParts"):
            way = "parts"
            text = "".join(call.parts[index] for index in range(body["resultParts"]["count"]))
            assert len(text.encode()) == body["resultParts"]["bytes"]
            result = json.loads(text)
        return {
            "type": head["type"],
            "trust": head["headers"]["rb-content-trust"],
            "correlated": head["correlationId"] == correlation_id,
            "way": way,
            "answers": call.answers,
            "progress": call.progress,
            "code": body.get("code"),
            "retryable": body.get("isRetryable"),
            "message": body.get("message"),
            "isError": body.get("isError"),
            "result": result,
        }

    async def run(self):
        """Reads commands until stdin ends."""
        await self.connect()
        print(json.dumps({"ready": True}), flush=True)
        loop = asyncio.get_running_loop()
        while line := await loop.run_in_executor(None, sys.stdin.readline):
            command = json.loads(line)
            action = command.pop("do")
            if action == "refresh":
                outcome = await self.refresh(**command)
            elif action == "call":
                outcome = await self.call(**command)
            elif action == "calls":
                outcome = await asyncio.gather(*(self.call(**one) for one in command["calls"]))
            elif action == "next_tools":
                outcome = await asyncio.wait_for(self.tools.get(), TIMEOUT)
            elif action == "publish":
                await self.transport.publish(command["topic"], command["payload"].encode(), {})
                outcome = {}
            else:
                raise ValueError(action)
            print(json.dumps({"outcome": outcome, "problems": self.problems}), flush=True)
