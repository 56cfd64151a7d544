"""Records of every type, drawn within the bounds that the type itself declares."""

import struct
from collections.abc import Callable
from typing import Any

import msgspec
from hypothesis import strategies as st
from msgspec import inspect

from regraft.schemas.bounds import CLEAN, TIME_MS_MAX, WINDOW_MS_MAX
from regraft.schemas.packed_cells import PackedSecond
from regraft.schemas.packed_deliveries import PackedDeliveries
from regraft.schemas.state import BODIES, BrokerCompleteness, Interest, PublisherDelivery, StateRow, WindowClosed

LONG_MIN, LONG_MAX = -(2**63), 2**63 - 1
LENGTH_DRAWN_MAX = 3
# No control characters, none that change text direction, and no lone surrogates, which UTF-8 cannot encode.
CLEAN_TEXT = st.characters(exclude_categories=["Cs", "Cc", "Cf", "Zl", "Zp"])
ANY_TEXT = st.characters(exclude_categories=["Cs"])


def records_of(kind: type[msgspec.Struct]) -> st.SearchStrategy[Any]:
    """Return plausible records of a type."""
    found = inspect.type_info(kind)
    assert isinstance(found, inspect.StructType)
    fields = {field.name: values_of(field.type) for field in found.fields}
    built = st.builds(dict, **{name: fields[name] for name in fields})
    return built.map(lambda values: kind(**CONSISTENT.get(kind, dict)(values)))


def values_of(info: inspect.Type) -> st.SearchStrategy[Any]:
    """Return values of a field."""
    match info:
        case inspect.IntType():
            return st.integers(LONG_MIN if info.ge is None else info.ge, LONG_MAX if info.le is None else info.le)
        case inspect.FloatType():
            return st.floats(info.ge, info.le, allow_nan=False)
        case inspect.StrType():
            letters = CLEAN_TEXT if info.pattern == CLEAN else ANY_TEXT
            return st.text(letters, min_size=info.min_length or 0, max_size=8)
        case inspect.BytesType():
            return st.binary(max_size=16)
        case inspect.BoolType():
            return st.booleans()
        case inspect.NoneType():
            return st.none()
        case inspect.EnumType():
            return st.sampled_from(info.cls)
        case inspect.UnionType():
            return st.one_of(*map(values_of, info.types))
        case inspect.StructType():
            return records_of(info.cls)
        case inspect.TupleType():
            return st.tuples(*map(values_of, info.item_types))
        case inspect.VarTupleType():
            return st.lists(values_of(info.item_type), max_size=LENGTH_DRAWN_MAX).map(tuple)
        case inspect.DictType():
            return st.dictionaries(values_of(info.key_type), values_of(info.value_type), max_size=LENGTH_DRAWN_MAX)
        case _:
            raise NotImplementedError(f"no values of {info}")


Values = dict[str, Any]


def _of_one_length(*names: str) -> Callable[[Values], Values]:
    def cut(values: Values) -> Values:
        length = min(len(values[name]) for name in names)
        return values | {name: values[name][:length] for name in names}

    return cut


def _in_order(*pairs: tuple[str, str]) -> Callable[[Values], Values]:
    def sort(values: Values) -> Values:
        for pair in pairs:
            values = values | dict(zip(pair, sorted(values[name] for name in pair), strict=True))
        return values

    return sort


def _window(values: Values) -> Values:
    start_ms = min(values["window_start_ms"], values["window_end_ms"], TIME_MS_MAX - 1)
    end_ms = max(values["window_start_ms"], values["window_end_ms"])
    end_ms = min(end_ms, start_ms + WINDOW_MS_MAX)
    return values | {"window_start_ms": start_ms, "window_end_ms": max(end_ms, start_ms + 1)}


def _row(values: Values) -> Values:
    """Keep only the first body."""
    kind = next((name for name in BODIES if values[name] is not None), "churn")
    churn = {"churn": msgspec.convert({"broker": "b", "changes": 1, "clients": 1}, _body_type("churn"))}
    kept = {kind: values[kind]} if values[kind] is not None else churn
    return _window(values | dict.fromkeys(BODIES) | kept | {"kind": kind})


def _packed(values: Values) -> Values:
    """Cut the columns to at most three rows of one block each."""
    rows = min(len(values["masks"]), LENGTH_DRAWN_MAX)
    names = {"publishers": "\n".join(f"p{row}" for row in range(rows)), "brokers": "b" if rows else ""}
    small = {"publisher": range(rows), "broker": [0] * rows, "block_counts": [1] * rows}
    large = {name: [len(values[name])] * rows for name in ("notifications", "local_deliveries", "bytes", "blocks")}
    large |= {name: [-len(values[name]) << 59] * rows for name in ("masks", "published")}
    return {
        **names,
        **{name: struct.pack(f"<{rows}I", *numbers) for name, numbers in small.items()},
        **{name: struct.pack(f"<{rows}q", *numbers) for name, numbers in large.items()},
    }


def _second(values: Values) -> Values:
    """Cut the columns to one to three cells."""
    cells = min(len(values["masks"]), LENGTH_DRAWN_MAX - 1) + 1
    text = "".join(letter for letter in values["publishers"] if letter.isalnum())
    counts = {
        name: (values[name] * 7 * cells)[: 7 * cells] or bytes(7 * cells)
        for name in ("blocks", "local_deliveries", "bytes")
    }
    masks = (values["masks"] * 8 * cells)[: 8 * cells] or bytes(8 * cells)
    published = (values["published"] * 8 * cells)[: 8 * cells]
    names = "\n".join(f"p{text}{cell}" for cell in range(cells))
    return values | counts | {"publishers": names, "masks": masks, "published": published}


def _body_type(name: str) -> Any:
    found = next(field.type for field in msgspec.structs.fields(StateRow) if field.name == name)
    return found.__args__[0]


CONSISTENT: dict[type, Callable[[Values], Values]] = {
    Interest: _of_one_length("peers", "common"),
    PublisherDelivery: _of_one_length("blocks", "masks", "published"),
    BrokerCompleteness: _in_order(("sequence_min", "sequence_max"), ("epoch_min", "epoch_max")),
    PackedDeliveries: _packed,
    PackedSecond: _second,
    StateRow: _row,
    WindowClosed: _window,
}
