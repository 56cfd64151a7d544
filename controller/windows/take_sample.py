"""Reduce cells of a window to the sample that all brokers report, with its share and what counts cells add.

Hand-overs in counts cells are part of the sums of rows and need nothing here.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from regraft.overlay.sets.delivery_sets import MaskCells
from regraft.schemas.sampled_blocks import SampleRule, rule_of_counts, sample_masks

ALL_BITS = np.uint64((1 << 64) - 1)


@dataclass(frozen=True, eq=False)
class Sample:
    """The smallest sample, with its ``share``: its ``cells`` over ``columns``, cut out of larger ones if needed.

    ``published_at`` are the brokers, by position, that published something of a publisher outside their own samples.
    """

    cells: MaskCells
    columns: tuple[tuple[str, int], ...]
    share: float
    published_at: Mapping[str, Sequence[int]]


def take_sample(cells: MaskCells, columns: tuple[tuple[str, int], ...]) -> Sample:
    """Return what is in all samples that cells name; everything if none names one.

    Samples with runs of the same length are nested, so the smallest one counts. Those with different lengths are
    independent, so the share of what is in both is the product of their shares.
    """
    rules = [rule_of_counts(block) for _, block in columns]
    if not any(rules):
        return Sample(cells, columns, 1.0, {})
    is_counts = np.array([each is not None for each in rules], dtype=np.bool_)
    flagged = np.flatnonzero(is_counts[cells.column] & (cells.published != 0))
    published_at: dict[str, list[int]] = {}
    for row, column in sorted(set(zip(cells.row[flagged].tolist(), cells.column[flagged].tolist(), strict=True))):
        published_at.setdefault(columns[column][0], []).append(row)
    least = _least(each for each in rules if each is not None)
    in_sample = np.where(is_counts, np.uint64(0), _sample_masks(columns, least))
    place = np.cumsum(in_sample != 0) - 1
    kept = in_sample[cells.column] != 0
    column, mask = place[cells.column[kept]], in_sample[cells.column[kept]]
    taken_cells = MaskCells(cells.row[kept], column, cells.masks[kept] & mask, cells.published[kept] & mask)
    taken_columns = tuple(columns[at] for at in np.flatnonzero(in_sample).tolist())
    rows_at = {publisher: tuple(dict.fromkeys(rows)) for publisher, rows in published_at.items()}
    return Sample(taken_cells, taken_columns, 1 / (1 << sum(rule.power for rule in least)), rows_at)


def _least(rules: Iterable[SampleRule]) -> tuple[SampleRule, ...]:
    """Return the rule with the smallest share for each length of runs."""
    powers: dict[int, int] = {}
    for rule in rules:
        powers[rule.run] = max(rule.power, powers.get(rule.run, 0))
    return tuple(SampleRule(power, run) for run, power in sorted(powers.items()))


def _sample_masks(columns: Sequence[tuple[str, int]], rules: Sequence[SampleRule]) -> NDArray[np.uint64]:
    """Return which bits of each column are in all samples; arbitrary for columns of counts."""
    places_of: dict[str, list[int]] = {}
    for at, (publisher, _) in enumerate(columns):
        places_of.setdefault(publisher, []).append(at)
    masks = np.full(len(columns), ALL_BITS)
    for publisher, places in places_of.items():
        blocks = np.array([columns[at][1] for at in places], dtype=np.int64)
        for rule in rules:
            masks[places] &= sample_masks(publisher, blocks, rule)
    return masks
