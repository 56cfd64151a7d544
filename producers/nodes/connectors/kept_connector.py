"""What connectors share that keep a connection to their broker open themselves, and check what crosses.

In: addresses, and what a subclass does with one connection. Out: a start that succeeds or says what to do, and a next
connection after each one that ends.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable

import structlog

from regraft.infra.process.end_tasks import end_tasks
from regraft.producers.nodes.connectors.connector import ConnectorError, LocalMessage, PlainConnector
from regraft.producers.nodes.connectors.connector_addresses import ConnectorAddresses, RetryPause
from regraft.producers.nodes.connectors.connector_checks import ConnectorChecks
from regraft.producers.nodes.connectors.look_for_nodes import NodeSearch

log = structlog.get_logger(__name__)


class KeptConnector(PlainConnector):
    """A connector to a broker at any of ``addresses``; ``send`` publishes there what the node itself has to say."""

    def __init__(
        self,
        addresses: ConnectorAddresses,
        name: str,
        overlay: str,
        send: Callable[[LocalMessage], None],
        connect_s_max: float,
    ) -> None:
        self.counts: Counter[str] = Counter()
        self._addresses, self._name, self._connect_s_max = addresses, name, connect_s_max
        self._reason = "no answer"
        self._search = NodeSearch(overlay, name, send)
        self._checks = ConnectorChecks(name, self.counts, self.release, overlay, self._search)
        self._first: asyncio.Future[None] | None = None
        self._tasks: list[asyncio.Task[None]] = []

    async def start(self, on_interest: Callable[[str, bool], None], on_message: Callable[[LocalMessage], None]) -> None:
        """Open the connector; raise ConnectorError if the broker cannot be reached, or nothing reports what its clients
        want.
        """
        self._checks.begin(on_interest, on_message)
        self._prepare()
        loop = asyncio.get_running_loop()
        self._first = loop.create_future()
        self._tasks = [loop.create_task(self._keep_open())]
        try:
            async with asyncio.timeout(self._connect_s_max):
                await asyncio.shield(self._first)
            await self._settle()
        except ConnectorError:
            await self.close()
            raise
        except TimeoutError as error:
            await self.close()
            raise ConnectorError(self._advice()) from error

    def _prepare(self) -> None:
        """Get ready for the first connection; raise ConnectorError if that cannot succeed."""
        raise NotImplementedError

    async def _settle(self) -> None:
        """Do what remains once the first connection is open; raise ConnectorError if it is of no use."""

    def _advice(self) -> str:
        """Return why no connection has opened in time, and what to do."""
        raise NotImplementedError

    @property
    def error(self) -> str:
        """Return which other node the broker reaches by itself, "" if none is known."""
        return self._checks.error

    async def _keep_open(self) -> None:
        pause = RetryPause()
        while True:
            try:
                self._reason = await self._stay_open(pause)
                log.warning("connector_closed", broker=self._name, reason=self._reason)
            except OSError as error:  # Includes TimeoutError, which has no text.
                self._reason = str(error) or "no answer"
                log.debug("connector_not_reached", broker=self._name, reason=self._reason)
            except Exception as error:  # Whatever happens, the connector is opened again.
                self._reason = repr(error)
                log.exception("connector_failed", broker=self._name)
            await self._leave()
            self.counts["refused"] += 1
            if self._addresses.advance():
                await asyncio.sleep(pause.after(time.monotonic()))

    async def _stay_open(self, pause: RetryPause) -> str:
        """Connect, and return why the connection has ended once it has; raise OSError if there is none."""
        raise NotImplementedError

    async def _leave(self) -> None:
        """Leave a connection that has ended, or is to end."""
        raise NotImplementedError

    def _note_first(self) -> bool:
        """Note that a connection is usable; return True if it is the first."""
        if self._first is None or self._first.done():
            return False
        self._first.set_result(None)
        return True

    async def close(self) -> None:
        """Close the connector."""
        await self._end_tasks()
        await self._leave()

    async def _end_tasks(self) -> None:
        await end_tasks(self._tasks)
        self._tasks = []
