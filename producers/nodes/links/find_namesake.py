"""Whether another process of a node runs: it answers where other nodes reach this one.

In: the node's own address, before the node listens. Out: True if a node of its name answers there. Links refuse the
call (:mod:`producers.nodes.links.run_links`), but say with which name.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress

from regraft.producers.nodes.links.carried_messages import LinkError
from regraft.producers.nodes.links.link_connection import LinkConnection
from regraft.producers.nodes.links.link_session import Hello, LinkSession
from regraft.producers.nodes.links.run_links import LinkTls

ANSWER_S_MAX = 2.0


async def has_namesake(session: LinkSession, host: str, port: int, tls: LinkTls | None) -> bool:
    """Return True if a node with the session's name answers at an address within ``ANSWER_S_MAX``."""
    broker, loop = session.broker, asyncio.get_running_loop()
    answer: asyncio.Future[str] = loop.create_future()

    def note(name: str) -> None:
        if not answer.done():
            answer.set_result(name)

    def take_hello(_: LinkConnection, hello: Hello) -> LinkSession:
        note(hello.broker)
        raise LinkError("only its name was asked for")

    connection = LinkConnection(take_hello, lambda *_: None, lambda *_: note(""), session.hello(broker))
    context = None if tls is None else tls.client
    try:
        with suppress(OSError, TimeoutError, ValueError):  # ValueError: no host has such a name.
            async with asyncio.timeout(ANSWER_S_MAX):
                name = None if context is None else broker
                await loop.create_connection(lambda: connection, host, port, ssl=context, server_hostname=name)
                await answer
    finally:
        connection.end("only its name was asked for")
    # Not what the wait returns: if this process was held up, it is out of time although the answer is here.
    return answer.done() and not answer.cancelled() and answer.result() == broker
