"""Notice messages that circulate over a way that takes stamps off, such as a bridge of MQTT 3.1.1, and stop them.

A message that repeats itself quickly may be a client's, or one that the broker returns again and again. To find out,
everything that arrives is held for a moment. A circulating message stops when it is not carried on, and comes back each
time that one copy of it is, as few copies as there are ways. Anything else is a client's: then all that was held is
passed on, in order. What circulates is refused, and for a while, so is whatever repeats itself.
"""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from collections.abc import Callable

from regraft.producers.nodes.connectors.connector import LocalMessage

REPEATS_MAX, SPAN_S = 50, 2.0  # This many equal messages in this time may be one that circulates.
HOLD_S = 0.5  # It has stopped after half of this, and comes back within half.
TRIALS, RETURNS_MAX = 3, 3  # How often it must come back, and how many copies at a time.
LATE_MAX = 20  # Trials that end late are repeated, at most this often: copies of a client may still wait.
TRUSTED_S, FOUND_S = 60.0, 60.0
MARKS_MAX = 10_000
HELD_MAX = 20_000  # More are passed on at once.


class EchoWatch:
    """The echoes of one broker; ``pass_on`` takes a message, ``refuse`` an echo."""

    def __init__(self, pass_on: Callable[[LocalMessage], None], refuse: Callable[[LocalMessage], None]) -> None:
        self._pass_on, self._refuse = pass_on, refuse
        self._seen: OrderedDict[int, tuple[float, int]] = OrderedDict()  # Mark -> begin of its span, count.
        self._trusted: dict[int, float] = {}
        self._suspect, self._heed_s, self._returns = 0, 0.0, 0
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
            self._returns += mark == self._suspect and time.monotonic() >= self._heed_s
            self._held.append(message)
            if len(self._held) > HELD_MAX:
                self._end(is_echo=False)
        elif count > 1 and self._has_found():
            self._found_s = time.monotonic()
            self._refuse(message)
        elif count > REPEATS_MAX and time.monotonic() - self._trusted.get(mark, -TRUSTED_S) > TRUSTED_S:
            self._suspect, self._held = mark, [message]
            self._heed_s, self._returns = time.monotonic() + HOLD_S / 2, 0
            asyncio.get_running_loop().call_later(HOLD_S, self._judge, mark, 0, 0)
        else:
            self._pass_on(message)

    def _judge(self, suspect: int, trials: int, late: int) -> None:
        """Decide after a time without any copy carried on, and after each of some with one.

        ``late`` of the trials before ended so late that they are not among ``trials``.
        """
        if suspect != self._suspect:
            return
        is_late = time.monotonic() - self._heed_s > HOLD_S * 3 / 4  # It began half of the time ago.
        if late > LATE_MAX or not (1 <= self._returns <= RETURNS_MAX if trials else self._returns == 0):
            self._end(is_echo=False)
        elif trials == TRIALS and not is_late:
            self._end(is_echo=True)
        else:
            place = next(place for place, message in enumerate(self._held) if _mark_of(message) == suspect)
            self._heed_s, self._returns = time.monotonic(), 0
            self._pass_on(self._held.pop(place))
            following = (trials, late + 1) if is_late and trials else (trials + 1, late)
            asyncio.get_running_loop().call_later(HOLD_S / 2, self._judge, suspect, *following)

    def _end(self, *, is_echo: bool) -> None:
        """Pass on what was held, without the suspect if that is an echo."""
        suspect, held, now_s = self._suspect, self._held, time.monotonic()
        self._suspect, self._held = 0, []
        if is_echo:
            self._found_s = now_s
        else:
            self._trusted = {mark: since for mark, since in self._trusted.items() if now_s - since < TRUSTED_S}
            self._trusted[suspect] = now_s
        for message in held:
            (self._refuse if is_echo and _mark_of(message) == suspect else self._pass_on)(message)

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
