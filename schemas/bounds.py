"""Which values are plausible: the bounded types of records' fields, and a list of a record's bounds.

The types below bound the values of each field; :func:`schemas.codec.decode` enforces them, and readers of columns use
:func:`field_bounds`. Bounds are wide enough for all measurements, and narrow enough that sums over a window fit into 64
bits. A value outside is an error of the sender, never a large measurement.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import Annotated, TypeVar

import msgspec
from msgspec import Meta

RECORD_BYTES_MAX = 8 << 20  # Kafka's default is 1 MiB. Longer records are refused before they are decoded.
NAME_LENGTH_MAX = 256
TEXT_LENGTH_MAX = 10_000
ITEMS_MAX = 1 << 17
TIME_MS_MAX = 253_402_300_799_999  # The end of the year 9999; later times overflow in window arithmetic.
SECOND_MAX = TIME_MS_MAX // 1_000
SEQUENCE_MAX = (1 << 62) - 1  # So that a block fits into seven bytes.
BLOCK_MAX = SEQUENCE_MAX // 64
TOTAL_MAX = 1 << 58  # Nine months at 10 GB/s.
SUM_MAX = (1 << 63) - 1
PLAN_MESSAGES_MAX = 1 << 40  # Of one broker for one plan; the sum over any fleet fits into 64 bits.
WINDOW_MS_MAX = 24 * 3_600_000
RTT_MS_MAX = 3_600_000.0
MEASURE_MAX = 1e30  # For values derived from totals: rates, means, congestion.
# Control characters, and those that change a text's direction or break lines, as in a regex character class.
UNCLEAN = r"\x00-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069"
UNCLEAN_ANYWHERE = re.compile(f"[{UNCLEAN}]")
CLEAN = rf"^[^{UNCLEAN}]*\Z"

Name = Annotated[str, Meta(min_length=1, max_length=NAME_LENGTH_MAX, pattern=CLEAN)]
NameOrNone = Annotated[str, Meta(max_length=NAME_LENGTH_MAX, pattern=CLEAN)]  # Empty if there is nothing to name.
Entity = Annotated[str, Meta(min_length=1, max_length=2 * NAME_LENGTH_MAX + 1, pattern=CLEAN)]
Text = Annotated[str, Meta(max_length=TEXT_LENGTH_MAX)]
StoredText = Annotated[str, Meta(max_length=4 * TEXT_LENGTH_MAX)]  # Composed of texts, before these were shortened.
TimeMs = Annotated[int, Meta(ge=0, le=TIME_MS_MAX)]
DifferenceMs = Annotated[int, Meta(ge=-TIME_MS_MAX, le=TIME_MS_MAX)]  # Between two clocks.
Second = Annotated[int, Meta(ge=0, le=SECOND_MAX)]
Offset = Annotated[int, Meta(ge=-1, le=SEQUENCE_MAX)]  # -1 if the record is in no topic.
SequenceNumber = Annotated[int, Meta(ge=0, le=SEQUENCE_MAX)]
Block = Annotated[int, Meta(ge=0, le=BLOCK_MAX)]
Epoch = Annotated[int, Meta(ge=0, le=1 << 53)]  # Shown in a browser, whose numbers are doubles.
Length = Annotated[int, Meta(ge=0, le=(1 << 31) - 1)]
Total = Annotated[int, Meta(ge=0, le=TOTAL_MAX)]  # A counter of one sender.
Sum = Annotated[int, Meta(ge=0, le=SUM_MAX)]  # Of totals.
PlanMessages = Annotated[int, Meta(ge=0, le=PLAN_MESSAGES_MAX)]
RttMs = Annotated[float, Meta(ge=0, le=RTT_MS_MAX)]  # Also rejects infinity and NaN.
Measure = Annotated[float, Meta(ge=0, le=MEASURE_MAX)]
Number = Annotated[float, Meta(ge=-1e300, le=1e300)]
Item = TypeVar("Item")
Items = Annotated[tuple[Item, ...], Meta(max_length=ITEMS_MAX)]


@dataclass(frozen=True, slots=True)
class FieldBound:
    """The bound of one field: numbers from ``least`` to ``most``, or that many characters or items.

    ``path`` is the field's name, after that of a list if the field is in a list's records. A text with ``is_clean``
    must not have UNCLEAN characters.
    """

    path: tuple[str, ...]
    least: float | None
    most: float | None
    is_text: bool = False
    is_list: bool = False
    is_clean: bool = False

    @property
    def name(self) -> str:
        """The path as a dotted name."""
        return ".".join(self.path)

    def accepts_text(self, text: str) -> bool:
        """Return True if a text is within the bounds."""
        is_within = (self.least or 0) <= len(text) and (self.most is None or len(text) <= self.most)
        return is_within and not (self.is_clean and UNCLEAN_ANYWHERE.search(text))


@cache
def field_bounds(record_type: type[msgspec.Struct]) -> tuple[FieldBound, ...]:
    """Return the bounds of a record's fields, and of the fields of records in its lists, in field order."""
    return tuple(_bounds_of(record_type, ()))


def span_error(start_ms: int, end_ms: int) -> str:
    """Return what is wrong with the span of a window, "" if nothing is."""
    if 0 < end_ms - start_ms <= WINDOW_MS_MAX:
        return ""
    return f"the window goes from {start_ms} to {end_ms} ms: it must end after its start, by at most {WINDOW_MS_MAX} ms"


def _bounds_of(record_type: type[msgspec.Struct], path: tuple[str, ...]) -> Iterator[FieldBound]:
    info = msgspec.inspect.type_info(record_type)
    assert isinstance(info, msgspec.inspect.StructType)
    for field in info.fields:
        place, kind = (*path, field.name), field.type
        if isinstance(kind, msgspec.inspect.IntType | msgspec.inspect.FloatType):
            if kind.ge is not None or kind.le is not None:
                yield FieldBound(place, kind.ge, kind.le)
        elif isinstance(kind, msgspec.inspect.StrType):
            if kind.pattern or kind.max_length is not None:
                yield FieldBound(place, kind.min_length, kind.max_length, is_text=True, is_clean=kind.pattern == CLEAN)
        elif isinstance(kind, msgspec.inspect.VarTupleType):
            yield FieldBound(place, None, kind.max_length, is_list=True)
            if isinstance(kind.item_type, msgspec.inspect.StructType):
                yield from _bounds_of(kind.item_type.cls, place)
