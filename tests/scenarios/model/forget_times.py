"""Times as ranks: states that differ only in indistinguishable times become one.

In: a state with notifications under way whose publish times are some of 1 .. clock. Out: the state with these times
counted from 1 without gaps, and all other times where they were between them. Times are compared only with those of
notifications: anything between two times of notifications that are gone is equivalent. If none is under way, what is
still owed can never arrive, so a loss shows at once.
"""

from __future__ import annotations

import dataclasses
from collections import deque
from collections.abc import Callable
from typing import Any

from regraft.producers.brokers.broker_messages import Notification
from tests.scenarios.model.frozen_states import IGNORED_TYPES, Numbers, Parts, Surroundings, is_value, own_names

UNTIMED = (str, int, float, set, frozenset, Surroundings, *IGNORED_TYPES)


def publications_in(frozen: Any) -> int:
    """Return a mask of the notifications in a frozen part: bit n for the one with time 2n + 2."""
    if isinstance(frozen, Notification):
        return 1 << int(frozen.publish_ms) // 2 - 1
    if dataclasses.is_dataclass(frozen):  # For example in a delivery that is held back.
        return publications_in(tuple(getattr(frozen, field.name) for field in dataclasses.fields(frozen)))
    found = 0
    if isinstance(frozen, tuple | frozenset):
        for one in frozen:
            found |= publications_in(one)
    return found


def rank(time: float, mask: int) -> float:
    """Return a time with only the notifications of the mask counted."""
    if time < 1:
        return time  # Before the first move.
    count = (mask & ((1 << int(time - 1) // 2) - 1)).bit_count()  # Those before it.
    return 2 * count + (2 if int(time) % 2 == 0 else 1)


def with_ranks(part: Any, mask: int) -> Any:
    """Return a part with ranks for times; objects are changed in place, values replaced."""
    kind = type(part)
    if part is None or isinstance(part, UNTIMED):
        return part
    if kind in (list, tuple, deque):
        return kind(with_ranks(one, mask) for one in part)
    if kind is dict:  # In place: the tables of two epochs may share one.
        for key, value in part.items():
            part[key] = with_ranks(value, mask)
        return part
    if is_value(kind):
        if not dataclasses.is_dataclass(kind):
            return part
        fields = {field.name: getattr(part, field.name) for field in dataclasses.fields(kind) if field.init}
        changed = {name: _field_with_ranks(name, value, mask) for name, value in fields.items()}
        return part if changed == fields else dataclasses.replace(part, **changed)
    names = own_names(part) if hasattr(part, "__dict__") else [field.name for field in dataclasses.fields(kind)]
    if not callable(part):
        for name in names:
            setattr(part, name, _field_with_ranks(name, getattr(part, name), mask))
    return part


def _field_with_ranks(name: str, value: Any, mask: int) -> Any:
    if not name.endswith("_ms") or name == "boot_ms":
        return with_ranks(value, mask)
    if isinstance(value, dict):
        return {key: rank(time, mask) for key, time in value.items()}
    return value if value is None else rank(value, mask)


class Ranks:
    """For each part by number: the notifications in it, and the part with ranks for times."""

    def __init__(self, key_of: Callable[[int], Any], ranked: Callable[[int, int], int]) -> None:
        self._key_of = key_of
        self._ranked = ranked
        self._held: dict[int, int] = {}
        self._of: dict[tuple[int, int], int] = {}

    def held(self, number: int) -> int:
        """Return the mask of the notifications in a part."""
        found = self._held.get(number)
        if found is None:
            found = self._held[number] = publications_in(self._key_of(number))
        return found

    def of(self, number: int, mask: int) -> int:
        """Return the part with only the notifications of the mask counted."""
        key = number, mask
        found = self._of.get(key)
        if found is None:
            found = self._of[key] = self._ranked(number, mask)
        return found


def ranks_of_parts(parts: Parts) -> Ranks:
    """Return the ranks of cores or clients."""
    return Ranks(parts.key_of, lambda number, mask: parts.number_of(with_ranks(parts.copy_of(number), mask)))


def ranks_of_messages(messages: Numbers[Any]) -> Ranks:
    """Return the ranks of messages."""
    values = messages.values
    return Ranks(values.__getitem__, lambda number, mask: messages.of(with_ranks(values[number], mask)))
