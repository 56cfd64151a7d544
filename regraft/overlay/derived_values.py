"""Derived values: what an immutable object computes of itself on first use, handed on instead of computed again.

A value is named by the property itself (``TreeState.sets``): one that was renamed is an error, not a cache that stays
empty without notice. :class:`KeptField` keeps a field in a smaller form. No other module reaches into an object's
``__dict__``.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import Any, Generic, TypeVar

Key = TypeVar("Key")
Value = TypeVar("Value")


class derived_value(cached_property[Value]):  # noqa: N801 - used like cached_property
    """A cached property that :func:`hand_on` and :func:`fill_in` accept."""


def hand_on(source: object, target: object, *values: derived_value[Any]) -> None:
    """Give the target what the source has computed of these values; the rest it computes itself if it is asked."""
    for value in values:
        name = _name(value)
        if name in source.__dict__:
            target.__dict__[name] = source.__dict__[name]


def fill_in(target: object, value: derived_value[Value], known: Value) -> None:
    """Set a value that the caller knows, so that the target does not compute it."""
    target.__dict__[_name(value)] = known


def _name(value: derived_value[Any]) -> str:
    assert value.attrname is not None, "a derived value is defined in a class"
    return value.attrname


class KeptField(Generic[Value]):
    """A descriptor for a field of a dataclass that is kept as what ``pack`` returns, and unpacked when it is read."""

    def __init__(self, name: str, pack: Callable[[Value], Callable[[], Value]]) -> None:
        self._name, self._pack = f"_{name}", pack

    def __get__(self, instance: object, owner: type) -> Value:
        unpacked: Callable[[], Value] = instance.__dict__[self._name]
        return unpacked()

    def __set__(self, instance: object, value: Value) -> None:
        instance.__dict__[self._name] = self._pack(value)


class LastResult(Generic[Key, Value]):
    """The result for the key that was asked last, kept until another is asked; no part of its owner's value."""

    def __init__(self) -> None:
        self._kept: tuple[Key, Value] | None = None

    def of(self, key: Key, compute: Callable[[], Value]) -> Value:
        """Return the result for a key; it is computed unless the key was the last one asked."""
        if self._kept is None or self._kept[0] != key:
            self._kept = key, compute()
        return self._kept[1]
