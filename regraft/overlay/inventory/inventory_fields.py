"""Read the fields of an inventory's JSON, and name each broker or pair whose value is wrong.

In: the document. Out: names, arrays and numbers, or None and a sentence in ``errors``. What values mean together
belongs to :mod:`overlay.inventory_checks`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import numpy as np

from regraft.overlay.inventory.inventory_schema import FIELDS, PRICES, REQUIRED, SCHEMA_FIELD, unknown_fields
from regraft.overlay.inventory.prices import Prices, PricesError
from regraft.schemas.arrays import Floats
from regraft.schemas.bounds import NAME_LENGTH_MAX, UNCLEAN_ANYWHERE

SHOWN_CHARACTERS_MAX = 60
REASON_LENGTH_MAX = 500
ERRORS_MAX = 1_000  # Of a table: a matrix of nothing but nulls has millions.
OVERLAY_SHAPES: dict[str, Any] = {
    "links": list[tuple[str, str]],
    "ring": msgspec.defstruct("Ring", [("bits", int), ("ids", list[int])]),
    "regions": list[list[str]],
    "region_links": list[tuple[int, int]],
}
PRICE_SHAPES: dict[str, Any] = {
    "currency": str,
    "link_per_gb": list[list[float]],
    "access_per_gb": list[float],
    "message_bytes": float,
    "delay_price": float,
}
NUMBERS = {int, float}  # Not bool, which is an int.


class FieldReader:
    """The fields of one document. A value that cannot be used is None, and ``errors`` says why."""

    def __init__(self, document: Any) -> None:
        self.errors: list[str] = []
        self.document: dict[str, Any] = document if isinstance(document, dict) else {}
        if not isinstance(document, dict):
            self.errors.append(f"it is {shown(document)}: it must be an object with the brokers and their costs")
            return
        self.errors += unknown_fields(self.document, (*FIELDS, SCHEMA_FIELD))
        for name in (each for each in REQUIRED if each not in document):
            what = FIELDS[name]["description"].removesuffix(".")
            self.errors.append(f"{name} is missing: {what[0].lower()}{what[1:]}")

    def names(self) -> tuple[str, ...] | None:
        """Return the brokers: names without control characters."""
        names = self.document.get("brokers")
        if not isinstance(names, list):
            self._note_wrong("brokers", "it must be a list of names")
            return None
        wrong = [
            f"brokers has {shown(name)}: a name has 1 to {NAME_LENGTH_MAX} characters, none of them a control character"
            for name in names
            if not isinstance(name, str) or not 0 < len(name) <= NAME_LENGTH_MAX or UNCLEAN_ANYWHERE.search(name)
        ]
        self.errors += wrong[:ERRORS_MAX]
        return None if wrong else tuple(names)

    def vector(self, name: str, brokers: Sequence[str]) -> Floats | None:
        """Return one number of at least 0 for each broker."""
        values = self.document.get(name)
        if (array := _quickly([values], (1, len(brokers)), 0.0)) is not None:
            row: Floats = array[0]
            return row
        if name not in self.document or not self._is_list(values, len(brokers), name):
            return None
        self._note_numbers([f"{name} of {broker}" for broker in brokers], values or [])
        return None

    def matrix(self, name: str, brokers: Sequence[str]) -> Floats | None:
        """Return one number of at least 0 for each pair of brokers."""
        values, count = self.document.get(name), len(brokers)
        if (array := _quickly(values, (count, count), 0.0)) is not None:
            return array
        if name not in self.document or not self._is_list(values, count, name):
            return None
        rows = [row if self._is_list(row, count, f"{name} of {broker}") else None
                for broker, row in zip(brokers, values or [], strict=True)]  # fmt: skip
        noted = len(self.errors)
        for i, broker in enumerate(brokers):
            row = rows[i]
            if row is None or len(self.errors) - noted >= ERRORS_MAX:
                continue
            for j, peer in enumerate(brokers):
                if row[j] is None:
                    self._note_missing(name, brokers, rows, i, j)
                elif error := _number_error(row[j], f"{name} from {broker} to {peer}"):
                    self.errors.append(error)
        return None

    def _note_missing(
        self, name: str, brokers: Sequence[str], rows: Sequence[list[Any] | None], i: int, j: int
    ) -> None:
        """Note a pair without a value once, whether one direction is missing or both."""
        back = (rows[j] or {j: None, i: None})[i]
        if back is None and j < i:
            return
        there = f"{name} of {brokers[i]} and {brokers[j]} is missing"
        if i == j:
            self.errors.append(f"{name} of {brokers[i]} to itself is missing: give 0")
        elif back is None:
            self.errors.append(f"{there}: give what a notification costs on that link, in use or not")
        else:
            self.errors.append(f"{there} in one direction: give {shown(back)} as from {brokers[j]} to {brokers[i]}")

    def places(self, name: str, brokers: Sequence[str]) -> Floats | None:
        """Return two finite numbers for each broker; None as well if there are none."""
        values, count = self.document.get(name), len(brokers)
        if values is None or (array := _quickly(values, (count, 2), -math.inf)) is not None:
            return None if values is None else array
        if self._is_list(values, count, name):
            for broker, row in zip(brokers, values, strict=True):
                if self._is_list(row, 2, f"{name} of {broker}"):
                    self._note_numbers([f"{name} of {broker}"] * 2, row, least=-math.inf)
        return None

    def whole(self, name: str) -> int | None:
        """Return a whole number of at least 1."""
        value = self.document.get(name)
        if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value < 1 << 31:
            self._note_wrong(name, "it must be a whole number of at least 1")
            return None
        return value

    def truth(self, name: str) -> bool:
        """Return true or false; false if it is missing."""
        value = self.document.get(name, False)
        if not isinstance(value, bool):
            self._note_wrong(name, "it must be true or false")
        return value is True

    def mapping(self, name: str) -> dict[str, Any]:
        """Return an object that may be missing, then empty."""
        value = self.document.get(name, {})
        if not isinstance(value, dict):
            self._note_wrong(name, "it must be an object")
            return {}
        return value

    def has_overlay(self) -> bool:
        """Return True if the fields of the overlay hold pairs, names and numbers as they must."""
        noted = len(self.errors)
        self.errors += _shape_errors(self.document, OVERLAY_SHAPES)
        if ("regions" in self.document) != ("region_links" in self.document):
            self.errors.append("regions and region_links go together: give both or neither")
        return len(self.errors) == noted

    def prices(self) -> Prices | None:
        """Return the prices, None if there are none."""
        if self.document.get("prices") is None:
            return None
        fields = self.mapping("prices")
        wrong = unknown_fields(fields, PRICES, "prices.")
        wrong += [f"prices has no {name}" for name in PRICES if name not in fields and name != "delay_price"]
        wrong += _shape_errors(fields, PRICE_SHAPES, "prices.")
        if not wrong and isinstance(self.document["prices"], dict):
            try:
                return Prices.of_fields(fields)
            except PricesError as error:
                wrong.append(str(error)[:REASON_LENGTH_MAX])
            except (ValueError, OverflowError):  # Of numpy, about rows of different lengths or numbers beyond floats.
                wrong.append("prices.link_per_gb must have a row for each broker, with a number for each broker")
        self.errors += wrong
        return None

    def _note_wrong(self, name: str, limit: str) -> None:
        """Note a value that exists; whether it must has been checked."""
        if name in self.document:
            self.errors.append(f"{name} is {shown(self.document[name])}: {limit}")

    def _is_list(self, value: Any, count: int, name: str) -> bool:
        if not isinstance(value, list):
            self.errors.append(f"{name} is {shown(value)}: it must be a list of {count}")
        elif len(value) != count:
            self.errors.append(f"{name} has {len(value)} entries, {count} are needed: one for each")
        return isinstance(value, list) and len(value) == count

    def _note_numbers(self, names: Sequence[str], values: Sequence[Any], least: float = 0.0) -> None:
        wrong = (_number_error(value, name, least) for name, value in zip(names, values, strict=True))
        self.errors += [error for error in wrong if error][:ERRORS_MAX]


def _shape_errors(fields: Mapping[str, Any], shapes: Mapping[str, Any], within: str = "") -> list[str]:
    """Return one sentence for each field that does not hold the pairs, names or numbers that it must."""
    errors = []
    for name in shapes.keys() & fields.keys():
        try:
            msgspec.convert(fields[name], shapes[name])
        except msgspec.ValidationError as error:
            what, _, place = str(error).replace("`", "").partition(" - at $")
            errors.append(f"{within}{name}{place} cannot be read: {what[0].lower()}{what[1:]}")
    return sorted(errors)


def _quickly(value: Any, shape: tuple[int, int], least: float) -> Floats | None:
    """Return the numbers if all are right, else None: a large table takes seconds number by number."""
    try:
        if not all(set(map(type, row)) <= NUMBERS for row in value):
            return None
        array = np.asarray(value, dtype=np.float64)
    except (TypeError, ValueError, OverflowError):
        return None
    return array if array.shape == shape and np.isfinite(array).all() and (array >= least).all() else None


def _number_error(value: Any, name: str, least: float = 0.0) -> str:
    """Return what is wrong with a number, "" if nothing is."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return f"{name} is {shown(value)}: it must be a number"
    number = float(value) if isinstance(value, float) or abs(value) < 1 << 1000 else math.inf
    if math.isfinite(number) and number >= least:
        return ""
    limit = "it must be a finite number" if least == -math.inf else f"it must be finite, and at least {least:g}"
    return f"{name} is {shown(value)}: {limit}"


def shown(value: Any) -> str:
    """Return a value as JSON would have it, cut."""
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, int) and abs(value) >= 1 << 200:
        return "a number of very many digits"
    text = repr(value[: SHOWN_CHARACTERS_MAX * 2]) if isinstance(value, str | list) else repr(value)
    return text if len(text) <= SHOWN_CHARACTERS_MAX else f"{text[:SHOWN_CHARACTERS_MAX]}..."
