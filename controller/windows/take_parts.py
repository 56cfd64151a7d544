"""Separate cells of whole brokers from those of parts of their subscribers (:mod:`schemas.part_blocks`).

In: cells by broker and column. Out: the cells without those of parts, and the parts. What a part would be worth
elsewhere belongs to :mod:`controller.state.window_parts`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from regraft.controller.state.window_parts import PartKey, ReceivedPart, WindowParts
from regraft.overlay.sets.delivery_sets import DeliverySets, MaskCells
from regraft.schemas.part_blocks import part_of_block

Columns = tuple[tuple[str, int], ...]
Planes = Mapping[PartKey, Sequence[tuple[tuple[str, int], int, int]]]  # Publisher and block, plane, mask.


def split_parts(cells: MaskCells, columns: Columns, brokers: Sequence[str]) -> tuple[MaskCells, Columns, Planes]:
    """Return the cells and columns of whole brokers, and the planes of each part."""
    named = [part_of_block(block) for _, block in columns]
    if not any(named):
        return cells, columns, {}
    is_whole = np.array([part is None for part in named], dtype=np.bool_)
    planes: dict[PartKey, list[tuple[tuple[str, int], int, int]]] = {}
    apart = np.flatnonzero(~is_whole[cells.column])
    for row, column, mask in zip(
        *(each[apart].tolist() for each in (cells.row, cells.column, cells.masks)), strict=True
    ):
        part = named[column]
        assert part is not None
        plane = (columns[column][0], part.block), part.plane, mask
        planes.setdefault((brokers[row], part.number), []).append(plane)
    kept = is_whole[cells.column]
    place = np.cumsum(is_whole) - 1
    whole = MaskCells(cells.row[kept], place[cells.column[kept]], cells.masks[kept], cells.published[kept])
    return whole, tuple(columns[at] for at in np.flatnonzero(is_whole).tolist()), planes


def parts_of(planes: Planes, sets: DeliverySets) -> WindowParts:
    """Return the parts, restricted to the notifications in the window's delivery sets."""
    return WindowParts({key: ReceivedPart.of_planes(entries, sets, sets.share) for key, entries in planes.items()})
