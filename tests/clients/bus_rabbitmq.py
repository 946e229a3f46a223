"""An agent on RabbitMQ: `bus_rabbitmq.py URL AGENT`. See bus_agent.py for its commands."""

import asyncio
import sys

import aio_pika
from bus_agent import Agent


class RabbitMqTransport:
    def __init__(self, channel, exchange):
        self.channel = channel
        self.exchange = exchange

    async def subscribe(self, topic, handler):
        queue = await self.channel.declare_queue(exclusive=True)
        await queue.bind(self.exchange, routing_key=topic)

        async def receive(message):
            await handler(message.body, message.headers)

        await queue.consume(receive, no_ack=True)

    async def publish(self, topic, payload, headers):
        message = aio_pika.Message(payload, headers=headers, delivery_mode=aio_pika.DeliveryMode.PERSISTENT)
        # Only requests and dead letters have a queue of their own. A request without one reaches no bridge, and comes back.
        await self.exchange.publish(message, routing_key=topic, mandatory=topic.startswith("tool.invoke."))

    async def read_object(self, bucket, name):
        raise NotImplementedError("RabbitMQ has no objects: long results come in parts")


async def main(url, agent):
    connection = await aio_pika.connect(url)
    async with connection:
        channel = await connection.channel(publisher_confirms=True, on_return_raises=True)
        exchange = await channel.declare_exchange("bascule", aio_pika.ExchangeType.TOPIC, durable=True)
        await Agent(RabbitMqTransport(channel, exchange), agent).run()


asyncio.run(main(*sys.argv[1:3]))
