"""The queue in which a RabbitMQ keeps for a node what is published at an exchange.

What it is bound to belongs to :mod:`producers.nodes.amqp.amqp_bindings`.
"""

from __future__ import annotations

import secrets

from regraft.producers.nodes.amqp.drive_pika import PikaChannel

KEPT_MS = 7 * 24 * 3_600_000  # The broker keeps a durable queue for this long while a node is away.
UNDER_WAY_MAX = 500  # Unacknowledged messages of a durable queue.


async def declare_queue(main: PikaChannel, own: str, *, is_durable: bool) -> str:
    """Declare and return the node's queue; a durable one outlasts the connection. Raises ClosedError."""
    if not is_durable:
        queue = f"{own}.{secrets.token_hex(4)}"
        await main.ask(main.channel.queue_declare, queue=queue, exclusive=True)
        return queue
    await main.ask(main.channel.basic_qos, prefetch_count=UNDER_WAY_MAX)
    kind = {"x-queue-type": "quorum", "x-expires": KEPT_MS}
    await main.ask(main.channel.queue_declare, queue=own, durable=True, arguments=kind)
    return own
