"""What a client of a NATS server is subscribed to: what others want, and each message arrives once.

Subjects may overlap, and the server would send a client a copy for each that matches. All of them are in one queue
group without any other member, of which the server chooses one subscription for each message, whatever the subject by
which it is a member. So it also does while they change, if one that another replaces stays for a moment: the server may
be handing over a message for which it has looked before.

The node's own subjects are in no group: a node at a leaf port names no group in its questions and answers.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Collection
from typing import Any

import structlog
from nats.aio.client import Client

from regraft.producers.nodes.connectors.wanted_subjects import AskedSubjects

log = structlog.get_logger(__name__)

EVERYTHING = ">"
FLUSH_S_MAX = 2
STAY_S = 1.0  # Of a subscription that is not asked for any more.


class NatsSubscriptions:
    """The subscriptions of one connector, over all its connections; ``own`` are subjects of the node, always
    subscribed.
    """

    def __init__(self, *own: str) -> None:
        self.own = set(own)
        self._asked = AskedSubjects(EVERYTHING)
        self._group = f"regraft-{secrets.token_hex(8)}"
        self._client: Client | None = None
        self._there: dict[str, Any] = {}  # Subject -> its subscription at the client.
        self._unasked_s: dict[str, float] = {}  # Since when a subject is not asked for any more.
        self._asking: asyncio.Task[None] | None = None
        self._changing = asyncio.Lock()

    async def begin(self, client: Client) -> None:
        """Subscribe with a new connection; raise OSError or NatsError if it fails."""
        async with self._changing:
            self._client, self._there, self._unasked_s = client, {}, {}
            await self._change(client)

    def ask_for(self, subjects: Collection[str]) -> asyncio.Future[Any] | None:
        """Subscribe further subjects; what is returned completes once the server has them."""
        if self._asked.add(subjects):
            self.settle()
        return None if self._asking is None or self._asking.done() else self._asking

    def ask_only(self, subjects: Collection[str]) -> None:
        """Subscribe these subjects, and unsubscribe others."""
        if any(self._asked.replace(subjects)):
            self.settle()

    def settle(self) -> None:
        """Bring what is subscribed to what is asked for; without a connection, the next one does."""
        if self._client is not None:
            self._asking = asyncio.get_running_loop().create_task(self._settle(self._client))

    async def _settle(self, client: Client) -> None:
        async with self._changing:
            if client is not self._client:
                return
            try:
                await self._change(client)
            except Exception as error:  # Tried again, unless another connection begins with all subjects.
                log.debug("subjects_not_asked", reason=repr(error))
                asyncio.get_running_loop().call_later(STAY_S, self.settle)

    async def _change(self, client: Client) -> None:
        wanted, now_s = self._asked.asked | self.own, time.monotonic()
        for subject in sorted(wanted - self._there.keys()):
            self._there[subject] = await client.subscribe(subject, queue="" if subject in self.own else self._group)
        since_s = {subject: self._unasked_s.get(subject, now_s) for subject in self._there.keys() - wanted}
        self._unasked_s = {subject: each_s for subject, each_s in since_s.items() if now_s - each_s < STAY_S}
        for subject in sorted(since_s.keys() - self._unasked_s.keys()):
            await self._there.pop(subject).unsubscribe()
        if self._unasked_s:
            asyncio.get_running_loop().call_later(STAY_S, self.settle)
        await reach_server(client)


async def reach_server(client: Client) -> None:
    """Wait until the server has processed what the client has sent so far.

    Twice, because the library writes the ping of a flush past commands that still wait to be written.
    """
    for _ in range(2):
        await client.flush(FLUSH_S_MAX)
