"""The official Python client with `server-everything`, directly or through a bridge.

    python official.py PREFIX ASKING URL             over Streamable HTTP
    python official.py PREFIX ASKING COMMAND ARG…    over stdio

PREFIX is the prefix of tool and prompt names. ASKING lists the tools that send requests to the client: for sampling,
elicitation and, if there is a third, roots. Prints the results as one JSON document.
"""

import asyncio
import json
import os
import sys

import mcp_types as types
from mcp import Client, StdioServerParameters

prefix, asking, target, *arguments = sys.argv[1:]


async def list_roots(_):
    return types.ListRootsResult(roots=[types.Root(uri="file:///a-root", name="a root")])


async def sample(_, __):
    content = types.TextContent(type="text", text="sampled")
    return types.CreateMessageResult(role="assistant", model="none", content=content)


async def elicit(_, __):
    return types.ElicitResult(action="accept", content={"name": "elicited"})


def server():
    if target.startswith("http"):
        return target
    return StdioServerParameters(command=target, args=arguments, env=dict(os.environ))


async def main():
    async with Client(
        server(), list_roots_callback=list_roots, sampling_callback=sample, elicitation_callback=elicit
    ) as client:
        progress = []

        async def report(done, total, message):
            progress.append(done)

        async def call(name, arguments=None, **options):
            result = await client.call_tool(name, arguments or {}, **options)
            return "\n".join(getattr(block, "text", "") for block in result.content)

        seen = {"tools": [tool.name for tool in (await client.list_tools()).tools]}
        seen["echo"] = await call(prefix + "echo", {"message": "hello"})
        long = {"duration": 0.3, "steps": 3}
        seen["long"] = await call(prefix + "trigger-long-running-operation", long, progress_callback=report)
        seen["progress"] = progress
        resource = (await client.list_resources()).resources[0]
        seen["resource"] = len((await client.read_resource(str(resource.uri))).contents[0].text) > 0
        seen["prompts"] = [prompt.name for prompt in (await client.list_prompts()).prompts]
        prompt = await client.get_prompt(prefix + "args-prompt", {"city": "Bern"})
        seen["prompt"] = prompt.messages[0].content.text
        sampling, elicitation, *roots = asking.split(",")
        seen["sampling"] = await call(sampling, {"prompt": "say"})
        seen["elicitation"] = await call(elicitation, {"message": "say"})
        if roots:
            seen["roots"] = await call(*roots)
        print(json.dumps(seen))


asyncio.run(main())
