"""Content-based matching: predicates, filters, relations between two filters, and an index over many filters.

In: filters and the content of notifications. Out: which filters match. Who subscribed, and where matches are sent,
belongs to the callers: the brokers' tables, the ledger and the connectors of nodes.
"""

from __future__ import annotations

import math
import operator
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

Content = Mapping[str, float | str]


class Operator(StrEnum):
    """How a predicate compares; the ordering operators order numbers by size and texts by code points."""

    EQ = "eq"
    LT = "<"
    LE = "<="
    GT = ">"
    GE = ">="
    NE = "!="
    PREFIX = "prefix"
    PRESENT = "present"


class PredicateError(ValueError):
    """An invalid predicate; the message names the value and the reason."""


@dataclass(frozen=True, slots=True)
class Predicate:
    """One condition on one attribute: present and of the type of ``value``, which is None only for ``present``."""

    attribute: str
    operator: Operator
    value: float | str | None = None

    def __post_init__(self) -> None:
        if (self.value is None) != (self.operator is Operator.PRESENT):
            raise PredicateError(
                f"{self.attribute} {self.operator} {self.value!r}: every operator but `present` needs a value"
            )
        if self.operator is Operator.PREFIX and not isinstance(self.value, str):
            raise PredicateError(f"{self.attribute} prefix {self.value!r}: a prefix is text")
        if self.value is not None and not isinstance(self.value, str) and not math.isfinite(self.value):
            raise PredicateError(f"{self.attribute} {self.operator} {self.value}: a number must be finite")


Filter = tuple[Predicate, ...]

_COMPARE: dict[Operator, Callable[[Any, Any], bool]] = {
    Operator.EQ: operator.eq,
    Operator.LT: operator.lt,
    Operator.LE: operator.le,
    Operator.GT: operator.gt,
    Operator.GE: operator.ge,
    Operator.NE: operator.ne,
    Operator.PREFIX: str.startswith,
    Operator.PRESENT: lambda value, _: True,
}
_OPPOSITE = {
    Operator.EQ: Operator.NE,
    Operator.NE: Operator.EQ,
    Operator.LT: Operator.GE,
    Operator.GE: Operator.LT,
    Operator.GT: Operator.LE,
    Operator.LE: Operator.GT,
}

# --- one filter, one content -------------------------------------------------------------------------------------


def matches(filter_: Filter, content: Content) -> bool:
    """Return True if the content fulfils every predicate; an absent attribute or one of another type fulfils none."""
    return all(
        predicate.attribute in content and _satisfies(predicate, content[predicate.attribute]) for predicate in filter_
    )


def _satisfies(predicate: Predicate, value: float | str) -> bool:
    if predicate.operator is Operator.PRESENT:
        return True
    if isinstance(value, str) is not isinstance(predicate.value, str):
        return False
    return _COMPARE[predicate.operator](value, predicate.value)


# --- two filters -------------------------------------------------------------------------------------------------


def intersects(advertisement: Filter, subscription: Filter) -> bool:
    """Return True if some content matches both filters.

    Exact, except for numbers so close that no float lies between them: then it returns True.
    """
    for offered in advertisement:  # Nearly all pairs differ in one equality: check that before the exact search.
        if offered.operator is Operator.EQ:
            for wanted in subscription:
                if (
                    wanted.operator is Operator.EQ
                    and wanted.attribute == offered.attribute
                    and wanted.value != offered.value
                ):
                    return False
    return all(_is_satisfiable(predicates) for predicates in _by_attribute(advertisement + subscription).values())


def covers(wide: Filter, narrow: Filter) -> bool:
    """Return True if every content that matches ``narrow`` matches ``wide``; exact as :func:`intersects` is."""
    given = _by_attribute(narrow)
    if all(
        predicate.attribute in given and _is_implied(given[predicate.attribute], predicate)
        for predicate in wide
        if predicate not in narrow
    ):
        return True
    return not all(_is_satisfiable(predicates) for predicates in given.values())


def _by_attribute(filter_: Filter) -> dict[str, list[Predicate]]:
    by_attribute: dict[str, list[Predicate]] = {}
    for predicate in filter_:
        by_attribute.setdefault(predicate.attribute, []).append(predicate)
    return by_attribute


def _is_implied(given: list[Predicate], implied: Predicate) -> bool:
    """Return True if every value that fulfils the given predicates on one attribute also fulfils ``implied``."""
    typed = [predicate for predicate in given if predicate.value is not None]
    if implied.value is None:
        return True
    if not typed or isinstance(typed[0].value, str) is not isinstance(implied.value, str):
        return False
    return not any(_is_satisfiable([*given, refusal]) for refusal in _refusals(implied))


def _refusals(predicate: Predicate) -> list[Predicate]:
    """Return predicates of which a value of the same type fulfils one if and only if it fails the given one."""
    if predicate.operator is not Operator.PREFIX:
        return [Predicate(predicate.attribute, _OPPOSITE[predicate.operator], predicate.value)]
    prefix = str(predicate.value)
    refused = [Predicate(predicate.attribute, Operator.LT, prefix)]
    raisable = prefix.rstrip(chr(sys.maxunicode))
    if raisable:  # The first text after all those that start with the prefix.
        above = raisable[:-1] + chr(ord(raisable[-1]) + 1)
        refused.append(Predicate(predicate.attribute, Operator.GE, above))
    return refused


def _is_satisfiable(predicates: Sequence[Predicate]) -> bool:
    """Return True if one value fulfils all of these predicates on one attribute."""
    if len(predicates) == 1:  # By far the most frequent case; no text sorts before the empty one.
        return predicates[0].operator is not Operator.LT or predicates[0].value != ""
    typed = [predicate for predicate in predicates if predicate.value is not None]
    if not typed:
        return True
    text_count = sum(isinstance(predicate.value, str) for predicate in typed)
    if text_count not in (0, len(typed)):
        return False
    for predicate in typed:
        if predicate.operator is Operator.EQ and predicate.value is not None:
            return all(_satisfies(other, predicate.value) for other in typed)
    return _text_exists(typed) if text_count else _number_exists(typed)


def _number_exists(typed: list[Predicate]) -> bool:
    bounds = [(predicate, float(predicate.value or 0)) for predicate in typed]
    lower = max((value for predicate, value in bounds if predicate.operator in (">", ">=")), default=-math.inf)
    upper = min((value for predicate, value in bounds if predicate.operator in ("<", "<=")), default=math.inf)
    # There are more numbers between two different bounds than `!=` can refuse.
    return lower < upper or (lower == upper and all(_satisfies(predicate, lower) for predicate in typed))


def _text_exists(typed: list[Predicate]) -> bool:
    """Return True if the least text that fulfils lower bounds, prefixes and `!=` also fulfils the rest.

    The text right after t is t + NUL, so the least one always exists.
    """
    least = ""
    for predicate in typed:
        value = str(predicate.value)
        if predicate.operator in (Operator.GE, Operator.PREFIX):
            least = max(least, value)
        elif predicate.operator is Operator.GT:
            least = max(least, value + "\0")
    refused = {predicate.value for predicate in typed if predicate.operator is Operator.NE}
    while least in refused:
        least += "\0"
    return all(_satisfies(predicate, least) for predicate in typed)


# --- many filters, one content -----------------------------------------------------------------------------------

_Test = tuple[str, Callable[[Any, Any], bool], Any, bool | None]  # attribute, compare, value, is it a text
_Residue = tuple[_Test, ...]
_Bucket = dict[str, dict[_Residue, dict[str, None]]]  # destination -> residue -> keys, in order of arrival


class MatchIndex:
    """Filters by key, each with a destination; queried for the destinations whose filters match a content.

    One look-up per set of attributes decides all equalities of all filters that name them, however many filters there
    are; only the remaining predicates of a filter (its residue) are tested, once for all filters with the same residue.
    """

    def __init__(self) -> None:
        self._filters: dict[str, tuple[Filter, str]] = {}
        self._buckets: dict[tuple[str, ...], dict[tuple[float | str, ...], _Bucket]] = {}

    def __len__(self) -> int:
        return len(self._filters)

    def __contains__(self, key: object) -> bool:
        return key in self._filters

    def add(self, key: str, filter_: Filter, destination: str) -> None:
        """Add a filter; raise KeyError if the key is in use."""
        if key in self._filters:
            raise KeyError(f"{key} is already in the index: remove it first")
        self._filters[key] = (filter_, destination)
        attributes, values, residue = _split(filter_)
        bucket = self._buckets.setdefault(attributes, {}).setdefault(values, {})
        bucket.setdefault(destination, {}).setdefault(residue, {})[key] = None

    def remove(self, key: str) -> None:
        """Remove a filter; raise KeyError if no filter has this key."""
        filter_, destination = self._filters.pop(key)
        attributes, values, residue = _split(filter_)
        by_values = self._buckets[attributes]
        bucket = by_values[values]
        del bucket[destination][residue][key]
        if not bucket[destination][residue]:
            del bucket[destination][residue]
        if not bucket[destination]:
            del bucket[destination]
        if not bucket:
            del by_values[values]
        if not by_values:
            del self._buckets[attributes]

    def destinations(self, content: Content, exclude: str | None = None) -> set[str]:
        """Return every destination except ``exclude`` that has at least one matching filter."""
        destinations_found: set[str] = set()
        for bucket in self._candidates(content):
            for destination, residues in bucket.items():
                if destination != exclude and destination not in destinations_found:
                    for residue in residues:
                        if _passes(residue, content):
                            destinations_found.add(destination)
                            break
        return destinations_found

    def keys_for(self, content: Content, destination: str) -> list[str]:
        """Return the keys of all matching filters of one destination."""
        keys_found: list[str] = []
        for bucket in self._candidates(content):
            for residue, keys in bucket.get(destination, {}).items():
                if _passes(residue, content):
                    keys_found += keys
        return keys_found

    def _candidates(self, content: Content) -> list[_Bucket]:
        buckets: list[_Bucket] = []
        for attributes, by_values in self._buckets.items():
            try:
                values = tuple([content[attribute] for attribute in attributes])
            except KeyError:
                continue
            bucket = by_values.get(values)
            if bucket is not None:
                buckets.append(bucket)
        return buckets


def _split(filter_: Filter) -> tuple[tuple[str, ...], tuple[float | str, ...], _Residue]:
    """Return the attributes and values of the equalities, and the tests that remain."""
    equal: dict[str, float | str] = {}
    rest: dict[_Test, None] = {}
    for predicate in filter_:
        value = predicate.value
        if value is not None and predicate.operator is Operator.EQ and equal.get(predicate.attribute, value) == value:
            equal[predicate.attribute] = value
        else:
            is_text = None if value is None else isinstance(value, str)
            rest[predicate.attribute, _COMPARE[predicate.operator], value, is_text] = None
    attributes = tuple(sorted(equal))
    return attributes, tuple(equal[attribute] for attribute in attributes), tuple(rest)


def _passes(residue: _Residue, content: Content) -> bool:
    for attribute, compare, value, is_text in residue:
        given = content.get(attribute)
        if given is None:
            return False
        if is_text is not None and (isinstance(given, str) is not is_text or not compare(given, value)):
            return False
    return True
