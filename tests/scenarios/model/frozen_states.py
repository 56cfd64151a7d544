"""Mutable parts of a model as small integers: equal states of a part have one number, and a number gives the part back.

A core or a client is frozen into a key (what determines its future; counters and caches are left out) and kept as a
pickle, from which a copy is made when it must take a step that was not computed yet. Immutable values (configurations,
messages, predicates) are shared by all copies. What a part is and what steps it takes belong to the modules that use
this one.
"""

from __future__ import annotations

import dataclasses
import io
import pickle
from collections import deque
from collections.abc import Hashable, Mapping
from typing import Any, Generic, TypeVar

import msgspec

from regraft.overlay.ring.ring_configuration import RingConfiguration
from regraft.overlay.scot.scot_configuration import ScotConfiguration
from regraft.overlay.tree.tree_configuration import TreeConfiguration
from regraft.producers.brokers.match_content import MatchIndex
from regraft.producers.emulator.count_users import BrokerTopics, UserCounts
from regraft.producers.emulator.publisher_clients import MoveCounts
from regraft.producers.emulator.subscriber_clients import HomesInTurn

# Counters, caches, and what follows from the configuration: none of it affects what happens next.
IGNORED_FIELDS = {
    "asked_ms",
    "boot_ms",
    "control_messages",
    "control_messages_sent",
    "covered_forwards",
    "held_count_max",
    "left_ms",
    "moved_count",
    "neighbours",
    "next_hop",
    "now_ms",
    "reconnected_count",
    "_next_hop",
    "_parent",
    "_rendezvous",
    "_sent",
}
# The references from a part of a core to others: each part is frozen once, where it is owned.
WIRING = {
    "_change",
    "_descent",
    "_endings",
    "_interests",
    "_known",
    "_links",
    "_moves",
    "_publishers",
    "_state",
    "_trees",
}
OVERLAYS = (TreeConfiguration, RingConfiguration, ScotConfiguration)
IGNORED_TYPES = (MatchIndex, MoveCounts, UserCounts, BrokerTopics, HomesInTurn)
UNORDERED_FIELDS = {"_gone_publishers", "advertisements"}  # Dicts whose order of iteration has no effect.

Value = TypeVar("Value", bound=Hashable)


class Numbers(Generic[Value]):
    """Gives equal values one number, counted from 0."""

    def __init__(self) -> None:
        self.values: list[Value] = []
        self._at: dict[Value, int] = {}

    def of(self, value: Value) -> int:
        """Return the number of a value."""
        number = self._at.get(value)
        if number is None:
            number = self._at[value] = len(self.values)
            self.values.append(value)
        return number


class Parts:
    """Frozen states of cores or clients by number."""

    def __init__(self) -> None:
        self._keys: Numbers[Hashable] = Numbers()
        self._pickles: list[bytes] = []

    def __len__(self) -> int:
        return len(self._pickles)

    def number_of(self, part: Any) -> int:
        """Return the number of a part's present state."""
        number = self._keys.of(frozen(part))
        if number == len(self._pickles):
            buffer = io.BytesIO()
            _Pickler(buffer, protocol=5).dump(part)
            self._pickles.append(buffer.getvalue())
        return number

    def key_of(self, number: int) -> Hashable:
        """Return the frozen state of this number."""
        return self._keys.values[number]

    def copy_of(self, number: int) -> Any:
        """Return a part in the state of this number, for the caller to change."""
        return pickle.loads(self._pickles[number])


class Surroundings:
    """The environment, ledger and request functions of a client object; all copies share :data:`SURROUNDINGS`."""

    def __init__(self) -> None:
        self.now: float = 0.0
        self.asked: list[tuple[str, Any]] = []
        self.noted: list[tuple[Any, ...]] = []

    def __reduce__(self) -> str:
        return "SURROUNDINGS"

    def begin(self, now: float) -> None:
        """Forget earlier requests and notes."""
        self.now, self.asked, self.noted = now, [], []

    def ask(self, home: str, request: Any) -> None:
        """Note a request of a client."""
        self.asked.append((home, request))

    def ignore(self, *_: Any) -> None:
        """Accept calls that the model does not follow."""

    def confirm_partly(self, subscription: str, *_: Any) -> None:
        """In place of the ledger: nothing is owed yet."""

    def confirm(self, subscription: str, *_: Any) -> None:
        """In place of the ledger: a subscription is confirmed."""
        self.noted.append(("confirm", subscription))

    def cancel(self, subscription: str, *_: Any) -> None:
        """In place of the ledger: a subscription has ended."""
        self.noted.append(("cancel", subscription))

    publish = drop = ignore  # Also for the ledger: notifications are recorded with the requests.


SURROUNDINGS = Surroundings()


def frozen(part: Any) -> Hashable:
    """Return a value that is equal for two parts if they have the same future."""
    kind = type(part)
    if part is None or kind in (int, str, float, bool) or is_value(kind):
        return part.epoch if isinstance(part, OVERLAYS) else _as_is(part)
    if isinstance(part, str):
        return part
    if kind in (list, tuple, deque):
        return tuple([frozen(one) for one in part])
    if kind in (set, frozenset):
        return frozenset(part)
    if isinstance(part, Mapping):
        return tuple([(key, frozen(value)) for key, value in part.items()])
    if isinstance(part, IGNORED_TYPES) or callable(part) or kind is Surroundings:
        return None
    return (kind.__name__, *(_frozen_field(name, getattr(part, name)) for name in _fields_of(part)))


def own_names(part: Any) -> list[str]:
    """Return the attributes of an object except references from a part of a core to others."""
    is_of_core = type(part).__module__.startswith("regraft.producers.brokers.")
    return [name for name in part.__dict__ if not is_of_core or name not in WIRING]


def _frozen_field(name: str, value: Any) -> Hashable:
    found = frozen(value)
    return frozenset(found) if name in UNORDERED_FIELDS and isinstance(found, tuple) else found


def _as_is(value: Hashable) -> Hashable:
    return value


_FIELDS: dict[type, tuple[str, ...]] = {}


def _fields_of(part: Any) -> tuple[str, ...]:
    kind = type(part)
    if hasattr(part, "__dict__"):
        return tuple(sorted(name for name in own_names(part) if name not in IGNORED_FIELDS))
    if kind not in _FIELDS:
        names = {field.name for field in dataclasses.fields(kind)}
        _FIELDS[kind] = tuple(sorted(names - IGNORED_FIELDS))
    return _FIELDS[kind]


_IS_VALUE: dict[type, bool] = {}


def is_value(kind: type) -> bool:
    """Return True if objects of a type are immutable values, which copies may share."""
    known = _IS_VALUE.get(kind)
    if known is None:
        is_frozen = dataclasses.is_dataclass(kind) and kind.__dataclass_params__.frozen  # type: ignore[attr-defined]
        known = is_frozen or (issubclass(kind, msgspec.Struct) and kind.__struct_config__.frozen)
        _IS_VALUE[kind] = known
    return known


_SHARED: Numbers[Hashable] = Numbers()


def _shared(number: int) -> Any:
    return _SHARED.values[number]


class _Pickler(pickle.Pickler):
    """Writes immutable values as their number only."""

    def reducer_override(self, part: Any) -> Any:
        if is_value(type(part)):
            return _shared, (_SHARED.of(part),)
        return NotImplemented
