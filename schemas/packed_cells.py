"""Delivery cells of one second packed by columns: the record in a batch, its byte layout and its invariants.

All numbers are little-endian and packed without gaps. A record of C cells holds:

==================== ========= ======================================================================================
``second``           long      publish time of all cells, in seconds since 1970
``publishers``       text      names, one per line and cell; a publisher with two blocks is named twice
``blocks``           C uint56  as in :class:`schemas.telemetry.Delivery`; so are the others
``masks``            C int64   what was delivered
``published``        C int64   what was published; empty if nothing was in any cell
``local_deliveries`` C uint56  hand-overs; so are ``bytes``
==================== ========= ======================================================================================

Seven bytes hold exactly the range of blocks, so any bytes of the right length are plausible numbers, and Spark can
validate a record by its lengths alone.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence

from msgspec import Struct

from regraft.schemas.bounds import NAME_LENGTH_MAX, UNCLEAN_ANYWHERE, Second

Cell = tuple[str, int, int, int, int, int]  # publisher, block, mask, local deliveries, bytes, published
Column = bytes
SEPARATOR = "\n"  # Names have no control characters.
COUNT_BYTES, MASK_BYTES = 7, 8
COUNT_MAX = (1 << 8 * COUNT_BYTES) - 1


class PackedSecond(Struct, frozen=True):
    """Cells of one second, in the layout that the module's docstring specifies."""

    second: Second
    publishers: str
    blocks: Column
    masks: Column
    published: Column
    local_deliveries: Column
    bytes: Column

    def __post_init__(self) -> None:
        names = self.publishers.split(SEPARATOR)
        lengths = [len(name) for name in names]
        if not 0 < min(lengths) <= max(lengths) <= NAME_LENGTH_MAX:
            lengths_text = f"{min(lengths)} to {max(lengths)} characters"
            raise ValueError(f"publishers have names of {lengths_text}: they have 1 to {NAME_LENGTH_MAX}")
        if UNCLEAN_ANYWHERE.search(self.publishers.replace(SEPARATOR, "")):
            raise ValueError("a publisher's name has a control character")
        for name in ("blocks", "masks", "published", "local_deliveries", "bytes"):
            width = MASK_BYTES if name in ("masks", "published") else COUNT_BYTES
            found_bytes = len(getattr(self, name))
            if found_bytes != width * len(names) and not (name == "published" and found_bytes == 0):
                raise ValueError(f"{name} has {found_bytes} bytes, {len(names)} publishers need {width * len(names)}")

    @classmethod
    def of(cls, second: int, cells: Sequence[Cell]) -> PackedSecond:
        """Pack the cells of one second, at least one; counters saturate at seven bytes."""
        publishers, blocks, masks, local_deliveries, sizes, published = zip(*cells, strict=True)
        return cls(
            second,
            SEPARATOR.join(publishers),
            _counts(blocks),
            _masks(masks),
            _masks(published) if any(published) else b"",
            _counts(local_deliveries),
            _counts(sizes),
        )

    def cells(self) -> Iterator[Cell]:
        """Iterate over the cells."""
        names = self.publishers.split(SEPARATOR)
        masks = struct.unpack(f"<{len(names)}q", self.masks)
        published = struct.unpack(f"<{len(names)}q", self.published) if self.published else (0,) * len(names)
        counters = (_numbers(self.local_deliveries), _numbers(self.bytes))
        return zip(names, _numbers(self.blocks), masks, *counters, published, strict=True)


def _counts(values: Sequence[int]) -> bytes:
    return b"".join(min(value, COUNT_MAX).to_bytes(COUNT_BYTES, "little") for value in values)


def _masks(values: Sequence[int]) -> bytes:
    return struct.pack(f"<{len(values)}q", *values)


def _numbers(packed: bytes) -> list[int]:
    return [
        int.from_bytes(packed[place : place + COUNT_BYTES], "little") for place in range(0, len(packed), COUNT_BYTES)
    ]
