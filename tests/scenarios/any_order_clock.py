"""The time of an any-order run: it advances only by actions, and due timers fire after the action."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any


@dataclass
class Timer:
    """Something that happens at a time, with the callbacks of a simpy event."""

    due_ms: float
    value: Any
    callbacks: list[Callable[[Any], None]] = field(default_factory=list)


class Clock:
    """The time of the clients, in steps of one, with the part of a simpy environment that they use."""

    def __init__(self) -> None:
        self.now = 0
        self._timers: list[Timer] = []

    def timeout(self, delay_ms: float, value: Any = None) -> Timer:
        """Return a timer whose callbacks are called when its time has come."""
        self._timers.append(Timer(self.now + delay_ms, value))
        return self._timers[-1]

    @property
    def next_ms(self) -> float | None:
        """When the next timer is due, or None without timers."""
        return min((timer.due_ms for timer in self._timers), default=None)

    @property
    def is_any_due(self) -> bool:
        """Return True if a timer's time has come."""
        return self.next_ms is not None and self.next_ms <= self.now

    def serve(self) -> None:
        """Call the callbacks of all due timers, the earliest first, including timers that they set."""
        while self.is_any_due:
            next_ms = self.next_ms
            timer = next(one for one in self._timers if one.due_ms == next_ms)
            self._timers.remove(timer)
            for callback in timer.callbacks:
                callback(timer)
