"""Connections in memory and an event loop without a clock: bytes arrive, and time passes, only by an action.

In: what the real agents, nodes and connectors write and await. Out: lanes, one for each direction of each connection,
whose first item an action lets arrive. A lane keeps its order; nothing else does.
"""

from __future__ import annotations

import asyncio
import heapq
import random
from collections import deque
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from contextvars import Context
from dataclasses import dataclass, field
from typing import Any, cast

Factory = Callable[[], asyncio.BaseProtocol]
EARLY = 1e-9  # Timers that are due now, but for rounding.


@dataclass
class Item:
    """Bytes on their way; ``source`` wrote them if others' may overtake them; ``data`` is None at the end."""

    data: bytes | None
    source: object = None


class WireEnd(asyncio.Transport):
    """One end of a connection; ``lane`` is what has been written here and has not arrived at ``peer``."""

    def __init__(self, wires: Wires, name: str, place: str) -> None:
        super().__init__()
        self.name, self.place = name, place
        self.lane: deque[Item] = deque()
        self.protocol: Any = None
        self.peer: WireEnd = self
        self.reads, self.is_over = True, False
        self._wires = wires

    def write(self, data: Any) -> None:
        """Put bytes on their way."""
        self.write_from(None, bytes(data))

    def write_from(self, source: object, data: bytes, *, overtakes: bool = False) -> None:
        """Put bytes on their way; they may overtake the last ones if these are of another source."""
        if self.is_over or not data:
            return
        last = self.lane[-1] if self.lane else None
        may = overtakes and source is not None and last is not None and last.source not in (None, source)
        self.lane.insert(len(self.lane) - may, Item(data, source))

    def get_write_buffer_size(self) -> int:
        """Return 0: nobody is slow unless an action says so."""
        return 0

    def is_closing(self) -> bool:
        """Return True once this end is closed."""
        return self.is_over

    def close(self) -> None:
        """End the connection behind what has been written."""
        if not self.is_over:
            self.is_over = True
            self.lane.append(Item(None))
            self._wires.loop.call_soon(self.protocol.connection_lost, None)
            self._wires.forget_ended(self)

    def abort(self) -> None:
        """End the connection; only some of what has been written arrives."""
        if not self.is_over:
            kept = random.Random(f"{self._wires.seed} {self.name}").randint(0, len(self.lane))
            while len(self.lane) > kept:
                self.lane.pop()
        self.close()

    def pause_reading(self) -> None:
        """Let nothing arrive here."""
        self.reads = False

    def resume_reading(self) -> None:
        """Let bytes arrive again."""
        self.reads = True

    def is_reading(self) -> bool:
        """Return True unless nothing may arrive here."""
        return self.reads

    @property
    def is_ready(self) -> bool:
        """Return True if something may arrive at the other end."""
        return bool(self.lane) and (self.peer.reads or self.peer.is_over)

    def deliver(self) -> None:
        """Let the first item arrive at the other end, where it is lost if that is closed."""
        item, peer = self.lane.popleft(), self.peer
        if peer.is_over:
            self._wires.forget_ended(self)
        elif item.data is None:
            peer.is_over = True
            peer.lane.append(Item(None))
            peer.protocol.connection_lost(None)
            self._wires.forget_ended(self)
        else:
            peer.protocol.data_received(item.data)


@dataclass(order=True)
class _Timer:
    due_s: float
    number: int
    handle: asyncio.TimerHandle = field(compare=False)


class AnyOrderLoop(asyncio.AbstractEventLoop):
    """Runs what is ready when it is asked to; timers are due once somebody moves the time on."""

    def __init__(self) -> None:
        self.now_s = 1_000.0
        self.failures: list[str] = []
        self.wires: Wires
        self._ready: deque[asyncio.Handle] = deque()
        self._timers: list[_Timer] = []
        self._count = 0

    def settle(self) -> None:
        """Run what is ready, and what that makes ready."""
        while self._ready:
            handle = self._ready.popleft()
            if not handle.cancelled():
                handle._run()

    @property
    def next_s(self) -> float | None:
        """When the next timer is due, None without timers."""
        while self._timers and self._timers[0].handle.cancelled():
            heapq.heappop(self._timers)
        return self._timers[0].due_s if self._timers else None

    def pass_time(self, seconds: float) -> None:
        """Move the time on, and run timers at their time."""
        end_s = self.now_s + seconds
        while (due_s := self.next_s) is not None and due_s <= end_s + EARLY:
            self.now_s = max(self.now_s, due_s)
            self._ready.append(heapq.heappop(self._timers).handle)
            self.settle()
        self.now_s = max(self.now_s, end_s)

    # --- what asyncio asks -------------------------------------------------------------------------------------------

    def time(self) -> float:
        """Return the time in seconds."""
        return self.now_s

    def get_debug(self) -> bool:
        """Return False."""
        return False

    def is_running(self) -> bool:
        """Return True: actions run within it."""
        return True

    def is_closed(self) -> bool:
        """Return False."""
        return False

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        """Keep what has failed."""
        error = context.get("exception")
        self.failures.append(f"{context.get('message')}: {error!r}")

    def call_soon(self, callback: Any, *args: Any, context: Context | None = None) -> asyncio.Handle:
        """Run something behind what is ready."""
        handle = asyncio.Handle(callback, args, self, context)
        self._ready.append(handle)
        return handle

    def call_later(
        self, delay: float, callback: Any, *args: Any, context: Context | None = None
    ) -> asyncio.TimerHandle:
        """Run something in a while."""
        return self.call_at(self.now_s + delay, callback, *args, context=context)

    def call_at(self, when: float, callback: Any, *args: Any, context: Context | None = None) -> asyncio.TimerHandle:
        """Run something at a time."""
        handle = asyncio.TimerHandle(when, callback, args, self, context)
        self._count += 1
        heapq.heappush(self._timers, _Timer(when, self._count, handle))
        return handle

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        """Do nothing: it is left out when its time comes."""

    def create_future(self) -> asyncio.Future[Any]:
        """Return a future of this loop."""
        return asyncio.Future(loop=self)

    def create_task(self, coro: Coroutine[Any, Any, Any], **more: Any) -> asyncio.Task[Any]:  # type: ignore[override]
        """Begin a task."""
        return asyncio.Task(coro, loop=self, **more)

    async def create_connection(self, factory: Factory, host: Any = None, port: Any = None, **_: Any) -> Any:  # type: ignore[override]
        """Connect once an action allows it."""
        return await self.wires.connect(factory, cast(str, host), cast(int, port))

    async def create_server(self, factory: Factory, host: Any = None, port: Any = None, **_: Any) -> Any:  # type: ignore[override]
        """Listen."""
        return self.wires.listen(factory, host, port)


@contextmanager
def running(loop: AnyOrderLoop) -> Iterator[AnyOrderLoop]:
    """Let what is called meanwhile run in a loop."""
    before = asyncio._get_running_loop()
    asyncio._set_running_loop(loop)
    try:
        yield loop
    finally:
        asyncio._set_running_loop(before)


class Listener:
    """What listens at a place until it is closed."""

    def __init__(self, listeners: dict[tuple[str, int], Factory], place: tuple[str, int]) -> None:
        self._listeners, self._place = listeners, place

    def close(self) -> None:
        """Accept nothing more."""
        self._listeners.pop(self._place, None)


@dataclass
class Call:
    """A connection that somebody waits for."""

    factory: Factory
    place: tuple[str, int]
    answered: asyncio.Future[WireEnd]


class Wires:
    """All connections; ``calls`` are those that are being opened, by number, ``ends`` the open ends by name."""

    def __init__(self, loop: AnyOrderLoop, seed: int) -> None:
        self.loop, self.seed = loop, seed
        self.calls: dict[str, Call] = {}
        self.ends: dict[str, WireEnd] = {}
        self._listeners: dict[tuple[str, int], Factory] = {}
        self._count = 0
        loop.wires = self

    def listen(self, factory: Factory, host: str, port: int) -> Listener:
        """Accept connections at a place."""
        self._listeners[host, port] = factory
        return Listener(self._listeners, (host, port))

    async def connect(self, factory: Factory, host: str, port: int) -> tuple[WireEnd, asyncio.BaseProtocol]:
        """Return a connection once it is accepted; raise OSError if nobody listens then."""
        self._count += 1
        name = f"{host}:{port}#{self._count}"
        self.calls[name] = Call(factory, (host, port), self.loop.create_future())
        try:
            end = await self.calls[name].answered
        finally:
            self.calls.pop(name, None)
        return end, end.protocol

    def answer(self, name: str) -> None:
        """Let a call be accepted or refused."""
        call = self.calls.pop(name)
        if call.answered.done():
            return
        listening = self._listeners.get(call.place)
        if listening is None:
            call.answered.set_exception(ConnectionRefusedError(f"nobody listens at {call.place[0]}"))
            return
        call.answered.set_result(self.join(name, call.place[0], call.factory(), listening()))

    def join(self, name: str, place: str, calling: asyncio.BaseProtocol, called: asyncio.BaseProtocol) -> WireEnd:
        """Connect two protocols; return the calling one's end."""
        ends = [WireEnd(self, f"{name}{way}", place) for way in (">", "<")]
        for end, peer, protocol in zip(ends, reversed(ends), (calling, called), strict=True):
            end.peer, end.protocol = peer, protocol
            self.ends[end.name] = end
        for end in ends:
            end.protocol.connection_made(end)
        return ends[0]

    def forget_ended(self, end: WireEnd) -> None:
        """Forget a connection from which nothing more comes."""
        if end.is_over and end.peer.is_over:
            for each in (end, end.peer):
                self.ends.pop(each.name, None)

    def ready(self) -> list[str]:
        """Return the ends at which something has been written that may arrive."""
        return [name for name, end in self.ends.items() if end.is_ready]

    def on_the_way(self, host: str, reader: type[asyncio.BaseProtocol]) -> list[bytes]:
        """Return what has been written at a host and has not arrived at readers of a sort."""
        ends = [end for end in self.ends.values() if end.place == host and isinstance(end.peer.protocol, reader)]
        return [item.data for end in ends for item in end.lane if item.data is not None]
