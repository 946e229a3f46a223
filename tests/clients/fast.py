"""The `fastmcp` client with `server-everything`, directly or through a bridge.

    python fast.py PREFIX ASKING URL             over Streamable HTTP
    python fast.py PREFIX ASKING COMMAND ARG…    over stdio

PREFIX is the prefix of tool and prompt names. ASKING lists the tools that send requests to the client: for sampling,
elicitation and, if there is a third, roots. Prints the results as one JSON document.
"""

import asyncio
import json
import os
import sys

from fastmcp import Client
from fastmcp.client.transports import StdioTransport

prefix, asking, target, *arguments = sys.argv[1:]


async def sample(messages, parameters, context):
    return "sampled"


async def elicit(message, response_type, parameters, context):
    return {"name": "elicited"}


def server():
    if target.startswith("http"):
        return target
    return StdioTransport(command=target, args=arguments, env=dict(os.environ))


async def main():
    async with Client(
        server(), roots=["file:///a-root"], sampling_handler=sample, elicitation_handler=elicit
    ) as client:
        progress = []

        async def report(done, total, message):
            progress.append(done)

        async def call(name, arguments=None, **options):
            result = await client.call_tool(name, arguments or {}, **options)
            return "\n".join(getattr(block, "text", "") for block in result.content)

        seen = {"tools": [tool.name for tool in await client.list_tools()]}
        seen["echo"] = await call(prefix + "echo", {"message": "hello"})
        long = {"duration": 0.3, "steps": 3}
        seen["long"] = await call(prefix + "trigger-long-running-operation", long, progress_handler=report)
        seen["progress"] = progress
        resource = (await client.list_resources())[0]
        seen["resource"] = len((await client.read_resource(str(resource.uri)))[0].text) > 0
        seen["prompts"] = [prompt.name for prompt in await client.list_prompts()]
        prompt = await client.get_prompt(prefix + "args-prompt", {"city": "Bern"})
        seen["prompt"] = prompt.messages[0].content.text
        sampling, elicitation, *roots = asking.split(",")
        seen["sampling"] = await call(sampling, {"prompt": "say"})
        seen["elicitation"] = await call(elicitation, {"message": "say"})
        if roots:
            seen["roots"] = await call(*roots)
        print(json.dumps(seen))


asyncio.run(main())
