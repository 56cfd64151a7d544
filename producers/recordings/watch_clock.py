"""Detect where a clock went back: a message of a partition has an earlier time than the one before it.

Memory grows with the number of blocks only.
"""

from __future__ import annotations

from collections import defaultdict
from itertools import pairwise

BACK_MS_MIN = 1_000  # Messages of several producers may be out of order by less.
SPANS_KEPT_MAX = 1_000_000

Place = tuple[str, int]
Moment = tuple[int, int]  # offset, time


class ClockWatch:
    """Watches the messages of several partitions, block by block."""

    def __init__(self) -> None:
        self._in_block: dict[Place, tuple[Moment, Moment]] = {}  # The first and the last message.
        self._spans: dict[Place, list[tuple[Moment, Moment]]] = defaultdict(list)
        self._kept = 0
        self._jumps = 0
        self._back_ms_max = 0
        self._topic = ""

    def note(self, topic: str, partition: int, offset: int, time_ms: int) -> None:
        """Note a message."""
        place = (topic, partition)
        moment = (offset, time_ms)
        first, last = self._in_block.get(place, (moment, moment))
        if last[1] - time_ms >= BACK_MS_MIN:
            self._note_jump(topic, last[1] - time_ms)
        self._in_block[place] = (first, moment)

    def end_block(self) -> None:
        """Note that the block has ended."""
        for place, span in self._in_block.items():
            if self._kept < SPANS_KEPT_MAX:
                self._spans[place].append(span)
                self._kept += 1
        self._in_block.clear()

    def warning(self) -> str:
        """Describe how often a clock went back and how far; empty if it never did."""
        self.end_block()
        for (topic, _), spans in self._spans.items():
            spans.sort()
            for (_, last), (first, _) in pairwise(spans):
                if last[1] - first[1] >= BACK_MS_MIN:
                    self._note_jump(topic, last[1] - first[1])
        self._spans.clear()
        if not self._jumps:
            return ""
        return (
            f"Time jumps back {self._jumps} times in {self._topic}, by at most {self._back_ms_max / 1000:.1f} s: "
            "the messages are read in the order of their times."
        )

    def _note_jump(self, topic: str, back_ms: int) -> None:
        self._jumps += 1
        if back_ms > self._back_ms_max:
            self._back_ms_max, self._topic = back_ms, topic
