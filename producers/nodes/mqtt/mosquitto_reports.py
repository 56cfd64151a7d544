"""What a Mosquitto reports of its clients: its log as messages, and the log file for what happened before.

In: lines in any form. Out: entries for :mod:`producers.nodes.mqtt.mqtt_interest`, and which kinds of lines are missing.
At each connection the node subscribes to a filter of its own and unsubscribes again: the lines about that show how
lines begin, what the log calls the node, and that both are reported.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from collections import Counter, deque
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import structlog

from regraft.infra.process.handle_each import count_logged
from regraft.producers.nodes.mqtt.log_line_form import CUT, UNREADABLE, LineError, LineForm, form_of
from regraft.producers.nodes.mqtt.mqtt_interest import CONNECTING, LOG_TOPIC, MqttInterest

LOG_BYTES_MAX = 16 << 20  # At most per read, from the end of the file: some 250,000 lines.


@dataclass
class MosquittoLog:
    """One log file. ``read`` continues after the lines it has returned, and starts over if the file has shrunk."""

    file: Path
    _position: int = 0

    def read(self, own_filter: str) -> list[bytes] | None:
        """Return the new lines up to that of the subscription to ``own_filter``, None if there is none yet.

        Raises OSError if the file cannot be read.
        """
        with self.file.open("rb") as log:
            size = log.seek(0, 2)
            begin = self._position if self._position <= size else 0
            is_cut = size - begin > LOG_BYTES_MAX
            begin = max(begin, size - LOG_BYTES_MAX)
            log.seek(begin)
            content = log.read(LOG_BYTES_MAX)
        own = f" {own_filter}\n".encode()
        place = content.find(own)  # The first: the second is of the end of this subscription.
        if place < 0:
            return None
        end = place + len(own)
        self._position = begin + end
        lines = content[:end].split(b"\n")[:-1]
        return lines[1:] if is_cut else lines


log = structlog.get_logger(__name__)

LINES_MAX = 100_000
SUBSCRIBE, UNSUBSCRIBE, NOTICE = "M/subscribe", "M/unsubscribe", "N"
NOT_READ = "log_not_read"
WANTED_LINES = {  # What a log without these lines does not show, and what to set.
    UNSUBSCRIBE: "that a client unsubscribes (`log_type unsubscribe`)",
    NOTICE: "that a client connects or leaves (`log_type notice`, and `connection_messages true`)",
}


class MosquittoReports:
    """The reports of one broker. ``names`` are what its log may call the node; ``file`` is None without a log file."""

    def __init__(self, broker: str, names: Sequence[str], file: Path | None, counts: Counter[str]) -> None:
        self.counts = counts
        self.own_filter = ""  # Of this connection.
        self.file_error = ""
        self.is_caught_up = file is None
        self.is_outdated = False  # Lines begin otherwise than at the last connection.
        self.file = file
        self._broker, self._names = broker, tuple(names)
        self._log = None if file is None else MosquittoLog(file)
        self._form: LineForm | None = None
        self._missing = dict(WANTED_LINES)
        self._waiting: deque[tuple[str, bytes]] = deque(maxlen=LINES_MAX)  # Until form and file are known.

    def begin_connection(self) -> str:
        """Return a filter to subscribe to, and to unsubscribe from again, over a new connection."""
        self.own_filter = f"{LOG_TOPIC}regraft-{secrets.token_hex(8)}"
        self.is_caught_up, self.is_outdated = self._log is None, False
        if self._log is not None:
            self._waiting.clear()  # The file holds them, too, and maybe the end of these clients.
        return self.own_filter

    @property
    def is_understood(self) -> bool:
        """Return True once the broker has reported a subscription of this node."""
        return self._form is not None

    @property
    def missing(self) -> tuple[str, ...]:
        """What the broker has not reported yet, although the node did it."""
        return tuple(self._missing.values())

    @property
    def missing_error(self) -> str:
        """What the broker does not report, and what to do."""
        if not self.is_understood:
            return (
                "does not report what its clients want: let Mosquitto `log_dest topic` with `log_type subscribe`, "
                f"`log_type unsubscribe` and `log_type notice`, and let this client read {LOG_TOPIC}#; for any other "
                "broker name the filters in connectors.mqtt.filters"
            )
        return (
            f"reports what its clients subscribe to, but not {', nor '.join(self.missing)}: their subscriptions would "
            "never expire. Set that, or name the filters in connectors.mqtt.filters"
        )

    def take(self, interest: MqttInterest, topic: str, line: bytes, now_s: float) -> None:
        """Process a line of the log, now or once form and file are known."""
        kind = topic.removeprefix(LOG_TOPIC)
        if kind == SUBSCRIBE and (form := self._own_form(line)) is not None:
            self._form = form
            interest.note_own(form.own_name)
            self._handle_waiting(interest, now_s)
        elif self._form is None or not self.is_caught_up:
            self._waiting.append((kind, line))
        elif not self._handle(interest, kind, line, now_s):
            self.is_outdated = True
            self._waiting.append((kind, line))

    def _own_form(self, line: bytes) -> LineForm | None:
        return form_of(line.decode(errors="replace"), self.own_filter, self._names)

    def catch_up(self, interest: MqttInterest, now_s: float) -> bool:
        """Process the log file up to our own subscription, then later lines; return False if it is not there yet."""
        if self._log is None or self.is_caught_up:
            return self.is_caught_up
        try:
            lines, self.file_error = self._log.read(self.own_filter), ""
        except OSError as error:
            lines, self.file_error = None, f"cannot be read ({error.strerror or error})"
            self._note(NOT_READ, f"{self.file}: {self.file_error}")
        if lines is None:
            return False
        with interest.net_changes():
            if (form := self._own_form(lines[-1])) is not None:  # What collects the output may add its own time.
                interest.note_own(form.own_name)
                entries = [entry for line in lines if (entry := self._entry(form, line)) is not None]
                interest.catch_up(entries, now_s)
            self.is_caught_up = True
            self._handle_waiting(interest, now_s)
        return True

    def _handle_waiting(self, interest: MqttInterest, now_s: float) -> None:
        while self._waiting and self._form is not None and self.is_caught_up:
            kind, line = self._waiting.popleft()
            if not self._handle(interest, kind, line, now_s):
                self._note(UNREADABLE, f"{line!r:.200} does not begin like {self._form.example!r}")

    def _handle(self, interest: MqttInterest, kind: str, line: bytes, now_s: float) -> bool:
        """Process a line; return False if it has another form than the node's own."""
        if self._form is None:
            return False
        try:
            entry = self._form.entry(line)
        except LineError as error:
            if error.what == CUT:
                self._note(CUT, str(error))
            return error.what == CUT
        if kind == UNSUBSCRIBE and entry == f"{self._form.own_name} {self.own_filter}":
            self._missing.pop(UNSUBSCRIBE, None)
        elif kind == NOTICE and entry.startswith(CONNECTING):
            self._missing.pop(NOTICE, None)
        interest.handle(kind, entry, now_s)
        return True

    def _entry(self, form: LineForm, line: bytes) -> str | None:
        try:
            return form.entry(line)
        except LineError as error:
            self._note(error.what, f"{self.file}: {error}")
            return None

    def _note(self, what: str, reason: str) -> None:
        count_logged(self.counts, what, log.warning, what, broker=self._broker, reason=reason)


@asynccontextmanager
async def knocking(host: str, port: int) -> AsyncIterator[None]:
    """Hold a connection that says nothing: a Mosquitto reports it before it asks who is there."""
    try:
        _, writer = await asyncio.open_connection(host, port)
    except OSError:  # Then the connector's own connection ends as well, and is made again.
        yield
        return
    try:
        yield
    finally:
        writer.transport.abort()


async def comes_true(condition: Callable[[], bool], s_max: float) -> bool:
    """Wait until a condition holds, for ``s_max`` at most; return whether it does."""
    until_s = time.monotonic() + s_max
    while not (is_true := condition()) and time.monotonic() < until_s:
        await asyncio.sleep(0.01)
    return is_true
