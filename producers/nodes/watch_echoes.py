"""Notice messages that circulate over a way that takes stamps off, such as a bridge of MQTT 3.1.1, and stop them.

In: messages handed over and taken. Out: what is passed on. A message that repeats itself quickly may be a sensor's, or
one that the broker returns again and again. To find out, everything that arrives is held for a moment: a circulating
message stops when it is not carried on, a sensor does not. Then what was held is passed on, in order, without what
circulated; and for a while, so is nothing that repeats itself.
"""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from collections.abc import Callable

from regraft.producers.nodes.doors import LocalMessage

REPEATS_MAX, SPAN_S = 50, 2.0  # This many equal messages in this time may be one that circulates.
HOLD_S = 0.5  # It has stopped after half of this.
TRUSTED_S, FOUND_S = 60.0, 60.0
MARKS_MAX = 10_000
HELD_MAX = 20_000  # More are passed on at once.


class EchoWatch:
    """The echoes of one broker; ``pass_on`` takes a message, ``refuse`` an echo."""

    def __init__(self, pass_on: Callable[[LocalMessage], None], refuse: Callable[[LocalMessage], None]) -> None:
        self._pass_on, self._refuse = pass_on, refuse
        self._seen: OrderedDict[int, tuple[float, int]] = OrderedDict()  # Mark -> begin of its span, count.
        self._trusted: dict[int, float] = {}
        self._suspect, self._until_s, self._is_repeated = 0, 0.0, False
        self._held: list[LocalMessage] = []
        self._found_s = -FOUND_S

    @property
    def is_suspected(self) -> bool:
        """Return True if something circulates, or may."""
        return bool(self._suspect) or self._has_found()

    def note_handed_over(self, message: LocalMessage) -> None:
        """Note a message that the broker is handed."""
        self._count(_mark_of(message))

    def take(self, message: LocalMessage) -> None:
        """Pass on a message that the broker sends, or hold or refuse it."""
        mark = _mark_of(message)
        count = self._count(mark)
        if self._suspect:
            self._is_repeated |= mark == self._suspect and time.monotonic() > self._until_s - HOLD_S / 2
            self._held.append(message)
            if len(self._held) > HELD_MAX:
                self._decide()
        elif count > 1 and self._has_found():
            self._found_s = time.monotonic()
            self._refuse(message)
        elif count > REPEATS_MAX and time.monotonic() - self._trusted.get(mark, -TRUSTED_S) > TRUSTED_S:
            self._suspect, self._until_s, self._is_repeated = mark, time.monotonic() + HOLD_S, False
            self._held = [message]
            asyncio.get_running_loop().call_later(HOLD_S, self._decide)
        else:
            self._pass_on(message)

    def _decide(self) -> None:
        suspect, held = self._suspect, self._held
        if not suspect:
            return
        self._suspect, self._held = 0, []
        if self._is_repeated:
            self._trusted = {
                mark: since for mark, since in self._trusted.items() if time.monotonic() - since < TRUSTED_S
            }
            self._trusted[suspect] = time.monotonic()
        else:
            self._found_s = time.monotonic()
        for message in held:
            is_echo = not self._is_repeated and _mark_of(message) == suspect
            (self._refuse if is_echo else self._pass_on)(message)

    def _has_found(self) -> bool:
        return time.monotonic() - self._found_s < FOUND_S

    def _count(self, mark: int) -> int:
        """Return how often a message with this mark was seen in its span."""
        now_s = time.monotonic()
        begin_s, count = self._seen.get(mark, (now_s, 0))
        begin_s, count = (begin_s, count + 1) if now_s - begin_s < SPAN_S else (now_s, 1)
        self._seen[mark] = begin_s, count
        self._seen.move_to_end(mark)
        if len(self._seen) > MARKS_MAX:
            self._seen.popitem(last=False)
        return count


def _mark_of(message: LocalMessage) -> int:
    return hash((message.subject, message.payload)) or 1
