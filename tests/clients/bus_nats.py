"""An agent on NATS: `bus_nats.py URL AGENT`. See bus_agent.py for its commands."""

import asyncio
import sys

import nats
from bus_agent import Agent


class NatsTransport:
    def __init__(self, client):
        self.client = client

    async def subscribe(self, topic, handler):
        async def receive(message):
            await handler(message.data, message.headers or {})

        await self.client.subscribe(topic, cb=receive)
        await self.client.flush()

    async def publish(self, topic, payload, headers):
        await self.client.publish(topic, payload, headers=headers)
        await self.client.flush()

    async def read_object(self, bucket, name):
        store = await self.client.jetstream().object_store(bucket)
        return (await store.get(name)).data


async def main(url, agent):
    client = await nats.connect(url)
    await Agent(NatsTransport(client), agent).run()
    await client.drain()


asyncio.run(main(*sys.argv[1:3]))
