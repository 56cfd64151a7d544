"""Cells of a window -> those of the sample that all brokers report, its share, and what counts cells say beside it.

In: cells by broker and column, of which some may be counts cells (:mod:`schemas.sampled_blocks`). Out: a Sample. The
hand-overs that counts cells count are in the sums of rows and need nothing here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from regraft.overlay.delivery_sets import MaskCells
from regraft.schemas.sampled_blocks import power_of_counts, taken


@dataclass(frozen=True, eq=False)
class Sample:
    """``cells`` over ``columns`` are of all blocks of the sample with ``share``, which brokers of a larger one share.

    ``published_at`` are the brokers, by position, that published something of a publisher outside their own samples.
    """

    cells: MaskCells
    columns: tuple[tuple[str, int], ...]
    share: float
    published_at: Mapping[str, Sequence[int]]


def take_sample(cells: MaskCells, columns: tuple[tuple[str, int], ...]) -> Sample:
    """Return what is in the sample of the least share that any cell tells; all of it where none tells one."""
    powers = [power_of_counts(block) for _, block in columns]
    power = max((each for each in powers if each is not None), default=0)
    if not any(each is not None for each in powers):
        return Sample(cells, columns, 1.0, {})
    assert cells.published is not None
    is_counts = np.array([each is not None for each in powers], dtype=np.bool_)
    flagged = np.flatnonzero(is_counts[cells.column] & (cells.published != 0))
    published_at: dict[str, list[int]] = {}
    for row, column in sorted(set(zip(cells.row[flagged].tolist(), cells.column[flagged].tolist(), strict=True))):
        published_at.setdefault(columns[column][0], []).append(row)
    is_kept = ~is_counts & _in_sample(columns, power)
    place = np.cumsum(is_kept) - 1
    kept = is_kept[cells.column]
    taken_cells = MaskCells(cells.row[kept], place[cells.column[kept]], cells.masks[kept], cells.published[kept])
    taken_columns = tuple(columns[at] for at in np.flatnonzero(is_kept).tolist())
    rows_at = {publisher: tuple(dict.fromkeys(rows)) for publisher, rows in published_at.items()}
    return Sample(taken_cells, taken_columns, 1 / (1 << power), rows_at)


def _in_sample(columns: Sequence[tuple[str, int]], power: int) -> NDArray[np.bool_]:
    blocks_of: dict[str, list[int]] = {}
    for at, (publisher, _) in enumerate(columns):
        blocks_of.setdefault(publisher, []).append(at)
    found = np.zeros(len(columns), dtype=np.bool_)
    for publisher, places in blocks_of.items():
        blocks = np.array([columns[at][1] for at in places], dtype=np.int64)
        found[places] = taken(publisher, blocks, power)
    return found
