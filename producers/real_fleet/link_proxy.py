"""A TCP proxy between two nodes that delays data, cuts connections and stalls, as a bad network does."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

TICK_S = 1e-6  # Between chunks: timers for the same moment, or with a shrinking delay, could fire out of order.
PIECE_BYTES = 1_024  # What a limited bandwidth passes at once.
HELD_S_MAX = 0.25  # Of data for a limited bandwidth; the rest waits at the sender.


class LinkProxy:
    """Listens on a free port and forwards to port ``target()``, asked at each connection, each chunk after ``delay_s``.

    While it ``is_stalled``, connections stay open but nothing passes; while it ``is_refusing``, it accepts none.
    ``bytes_per_s`` is the bandwidth in each direction, None for no limit.
    """

    def __init__(self, target: Callable[[], int], delay_s: float = 0.0) -> None:
        self.delay_s = delay_s
        self.bytes_per_s: float | None = None
        self.is_stalled = self.is_refusing = False
        self.port = 0
        self._target = target
        self._writers: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None

    async def start(self) -> int:
        """Listen; return the port."""
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]
        return self.port

    def cut(self) -> None:
        """End every connection; data on its way is lost."""
        for writer in list(self._writers):
            writer.transport.abort()
        for task in list(self._tasks):
            task.cancel()

    async def close(self) -> None:
        """Stop listening, and end every connection."""
        if self._server is not None:
            self._server.close()
        self.cut()
        await asyncio.sleep(0)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self.is_refusing:
            writer.transport.abort()
            return
        try:
            far_reader, far_writer = await asyncio.open_connection("127.0.0.1", self._target())
        except OSError:
            writer.transport.abort()
            return
        self._writers |= {writer, far_writer}
        for source, sink in ((reader, far_writer), (far_reader, writer)):
            task = asyncio.create_task(self._forward(source, sink))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _forward(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
        loop = asyncio.get_running_loop()
        due_s = sent_s = 0.0
        try:
            while data := await source.read(1 << 16):
                for piece in _pieces(data, self.bytes_per_s) if not self.is_stalled else ():
                    sent_s = max(loop.time(), sent_s)
                    if self.bytes_per_s is not None:
                        sent_s += len(piece) / self.bytes_per_s
                        await asyncio.sleep(max(sent_s - HELD_S_MAX - loop.time(), 0.0))
                    due_s = max(sent_s + self.delay_s, due_s + TICK_S)
                    loop.call_at(due_s, _write, sink, piece)
        except OSError:
            pass
        finally:
            loop.call_at(max(loop.time() + self.delay_s, due_s + TICK_S), sink.transport.abort)
            self._writers.discard(sink)


def _pieces(data: bytes, bytes_per_s: float | None) -> list[bytes]:
    if bytes_per_s is None:
        return [data]
    return [data[begin : begin + PIECE_BYTES] for begin in range(0, len(data), PIECE_BYTES)]


def _write(sink: asyncio.StreamWriter, data: bytes) -> None:
    if not sink.transport.is_closing():
        sink.write(data)
