"""Read the fields of an inventory's JSON, and name the broker or the pair whose value is wrong.

In: the document. Out: names, arrays and numbers, or ValueError with one sentence. What values mean together belongs to
:mod:`overlay.inventory`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from regraft.schemas.bounds import NAME_LENGTH_MAX, UNCLEAN_ANYWHERE

Floats = NDArray[np.float64]

SHOWN_CHARACTERS_MAX = 60


def field_of(document: Any, name: str) -> Any:
    """Return a field that must exist."""
    if not isinstance(document, dict):
        raise ValueError(f"it is {_shown(document)}: it must be an object with the brokers and their costs")
    if name not in document:
        raise ValueError(f"it has no {name}")
    return document[name]


def names_of(document: Any) -> tuple[str, ...]:
    """Return the brokers: names without control characters, each once."""
    found = field_of(document, "brokers")
    if not isinstance(found, list):
        raise ValueError(f"brokers is {_shown(found)}: it must be a list of names")
    for name in found:
        if not isinstance(name, str) or not 0 < len(name) <= NAME_LENGTH_MAX or UNCLEAN_ANYWHERE.search(name):
            raise ValueError(
                f"brokers has {_shown(name)}: a name has 1 to {NAME_LENGTH_MAX} characters, none of them a control "
                "character"
            )
    if len(set(found)) < len(found):
        twice = next(name for place, name in enumerate(found) if name in found[:place])
        raise ValueError(f"brokers has {twice} twice: each name must be unique")
    return tuple(found)


def vector_of(document: Any, name: str, brokers: Sequence[str]) -> Floats:
    """Return one number of at least 0 for each broker."""
    found = field_of(document, name)
    if (array := _quickly(found, (len(brokers),), 0.0)) is not None:
        return array
    values = zip(brokers, _list_of(found, len(brokers), name), strict=True)
    return np.array([_number(value, f"{name} of {broker}") for broker, value in values], dtype=np.float64)


def matrix_of(document: Any, name: str, brokers: Sequence[str]) -> Floats:
    """Return one number of at least 0 for each pair of brokers."""
    found, count = field_of(document, name), len(brokers)
    if (array := _quickly(found, (count, count), 0.0)) is not None:
        return array
    table = []
    for broker, row in zip(brokers, _list_of(found, count, name), strict=True):
        values = zip(brokers, _list_of(row, count, f"{name} of {broker}"), strict=True)
        table.append([_number(value, f"{name} from {broker} to {peer}") for peer, value in values])
    return np.array(table, dtype=np.float64).reshape(count, count)


def places_of(document: Any, name: str, brokers: Sequence[str]) -> Floats:
    """Return two finite numbers for each broker."""
    found, count = field_of(document, name), len(brokers)
    if (array := _quickly(found, (count, 2), -math.inf)) is not None:
        return array
    table = []
    for broker, row in zip(brokers, _list_of(found, count, name), strict=True):
        pair = _list_of(row, 2, f"{name} of {broker}")
        table.append([_number(value, f"{name} of {broker}", least=-math.inf) for value in pair])
    return np.array(table, dtype=np.float64).reshape(count, 2)


def whole_of(document: Any, name: str) -> int:
    """Return a whole number of at least 1."""
    found = field_of(document, name)
    if isinstance(found, bool) or not isinstance(found, int) or not 1 <= found < 1 << 31:
        raise ValueError(f"{name} is {_shown(found)}: it must be a whole number of at least 1")
    return found


def mapping_of(document: Any, name: str) -> Mapping[str, Any]:
    """Return an object that may be missing, then empty."""
    found = document.get(name, {})
    if not isinstance(found, dict):
        raise ValueError(f"{name} is {_shown(found)}: it must be an object")
    return found


def asymmetric_pair(costs: Floats, brokers: Sequence[str]) -> str:
    """Return the first pair whose costs differ by direction, with both, "" if there is none."""
    close = np.isclose(costs, costs.T)
    if close.all():
        return ""
    one, other = (int(place[0]) for place in np.nonzero(~close))
    there, back = f"{brokers[one]} to {brokers[other]}", f"{brokers[other]} to {brokers[one]}"
    return f"{costs[one, other]:g} from {there}, {costs[other, one]:g} from {back}"


def _quickly(found: Any, shape: tuple[int, ...], least: float) -> Floats | None:
    """Return the numbers if all are right, else None: a large table takes seconds number by number."""
    try:
        array = np.asarray(found, dtype=np.float64)
    except (TypeError, ValueError, OverflowError):
        return None
    return array if array.shape == shape and np.isfinite(array).all() and (array >= least).all() else None


def _list_of(found: Any, count: int, name: str) -> list[Any]:
    if not isinstance(found, list):
        raise ValueError(f"{name} is {_shown(found)}: it must be a list of {count}")
    if len(found) != count:
        raise ValueError(f"{name} has {len(found)} entries, {count} are needed: one for each")
    return found


def _number(value: Any, name: str, least: float = 0.0) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError(f"{name} is {_shown(value)}: it must be a number")
    number = float(value) if isinstance(value, float) or abs(value) < 1 << 1000 else math.inf
    if not math.isfinite(number) or number < least:
        limit = "it must be a finite number" if least == -math.inf else f"it must be finite, and at least {least:g}"
        raise ValueError(f"{name} is {_shown(value)}: {limit}")
    return number


def _shown(value: Any) -> str:
    """Return a value as JSON would have it, cut."""
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, int) and abs(value) >= 1 << 200:
        return "a number of very many digits"
    text = repr(value[: SHOWN_CHARACTERS_MAX * 2]) if isinstance(value, str | list) else repr(value)
    return text if len(text) <= SHOWN_CHARACTERS_MAX else f"{text[:SHOWN_CHARACTERS_MAX]}..."
