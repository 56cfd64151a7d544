"""The merged contents of the brokers' caches at a moment: each distinct set of brokers with its multiplicity."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from regraft.api.overlays import DeliverySets, digit_planes, fill_in, merge_sets
from regraft_lab.psoop.paper_workload import Ids, Workload


@dataclass(frozen=True, eq=False)
class Caches:
    """The identifiers in all caches: the brokers in row q of ``holds`` (sets, brokers) cache ``counts[q]`` of them."""

    holds: NDArray[np.bool_]
    counts: NDArray[np.int64]

    @cached_property
    def interest(self) -> NDArray[np.int64]:
        """I_ij = |cache_i & cache_j|, with the size of each cache on the diagonal; exact up to 2^24 identifiers."""
        held = self.holds.astype(np.float32)
        common = held.T @ (held * self.counts[:, None].astype(np.float32))
        return np.asarray(np.rint(common), dtype=np.int64)

    def delivery_sets(self, brokers: Sequence[str], span_s: float) -> DeliverySets:
        """Return the identifiers as delivery sets, one bit each, in no particular order."""
        rows = np.packbits(self.holds, axis=1, bitorder="little")
        padded = np.zeros((len(rows), -(-rows.shape[1] // 8) * 8), dtype=np.uint8)
        padded[:, : rows.shape[1]] = rows
        held = padded.view("<u8").astype(np.uint64)
        each = np.repeat(held, self.counts, axis=0)
        words, _ = digit_planes(each, np.ones(len(each), dtype=np.int64), len(brokers))
        columns = tuple(("cached", column) for column in range(words.shape[1]))
        sets = DeliverySets(tuple(brokers), columns, words, span_s, words)
        # Finding the sets again among hundreds of thousands of bits would be slow.
        fill_in(sets, DeliverySets.distinct, merge_sets([(held, self.counts)], len(brokers)))
        return sets


class CacheReader:
    """Reads the caches of one workload at any moment.

    A cache holds a broker's newest identifiers (published or delivered there), so its oldest one determines it.
    """

    def __init__(self, workload: Workload) -> None:
        self._workload = workload
        flows = len(workload.members)
        by_flow = np.argsort(workload.flow_of, kind="stable")
        per_flow = np.bincount(workload.flow_of, minlength=flows)
        # Flows are numbered by type, then time, so the ids of a type are contiguous in ``by_flow``.
        ends = np.cumsum(per_flow)
        type_count = workload.settings.type_count
        type_ends = np.cumsum(np.bincount(workload.type_of_flow, weights=per_flow, minlength=type_count)).astype(int)
        type_starts = np.concatenate([[0], type_ends[:-1]])
        self._ids_of_type = [by_flow[a:b] for a, b in zip(type_starts, type_ends, strict=True)]
        self._flow_from = ends - per_flow - type_starts[workload.type_of_flow]
        self._flow_to = ends - type_starts[workload.type_of_flow]
        self._ids_of_broker = _ids_of_broker(workload)

    def newest(self, end_id: int, size_max: int) -> Caches:
        """Return the caches just before ``end_id`` if each keeps at most ``size_max`` identifiers."""
        oldest = np.zeros(len(self._ids_of_broker), dtype=np.int64)
        for broker, ids in enumerate(self._ids_of_broker):
            kept_from = int(np.searchsorted(ids, end_id)) - size_max
            if kept_from > 0:
                oldest[broker] = ids[kept_from]
        return self._held(oldest, end_id)

    def between(self, first_id: int, end_id: int) -> Caches:
        """Return the caches just before ``end_id`` if each keeps all identifiers from ``first_id`` on."""
        return self._held(np.full(len(self._ids_of_broker), first_id, dtype=np.int64), end_id)

    def _held(self, oldest: Ids, end_id: int) -> Caches:
        """Cut each flow where a cache of its members begins: between cuts, the same brokers cache all identifiers."""
        members, types = self._workload.members, self._workload.type_of_flow
        wanted = np.append(oldest, end_id)
        places = np.array([np.searchsorted(ids, wanted) for ids in self._ids_of_type])
        flow_to = np.minimum(self._flow_to, places[types, -1])
        live = np.flatnonzero(self._flow_from < flow_to)
        cuts = np.clip(places[types[live, None], members[live]], self._flow_from[live, None], flow_to[live, None])
        order = np.argsort(cuts, axis=1, kind="stable")
        joining = np.take_along_axis(members[live], order, axis=1)
        edges = np.column_stack([np.take_along_axis(cuts, order, axis=1), flow_to[live]])
        lengths = np.diff(edges, axis=1)  # Column k: ids cached by the first k + 1 joining brokers.
        row, last = np.nonzero(lengths)
        holds = np.zeros((len(row), len(oldest)), dtype=np.bool_)
        for place in range(members.shape[1]):
            chosen = np.flatnonzero(last >= place)
            holds[chosen, joining[row[chosen], place]] = True
        return _with_single_merged(holds, lengths[row, last], last == 0)


def _with_single_merged(holds: NDArray[np.bool_], counts: Ids, single: NDArray[np.bool_]) -> Caches:
    """Merge the sets of single brokers: many old identifiers of quiet brokers, without common interest."""
    totals = np.bincount(holds[single].argmax(axis=1), weights=counts[single], minlength=holds.shape[1]).astype(
        np.int64
    )
    brokers = np.flatnonzero(totals)
    merged = np.zeros((len(brokers), holds.shape[1]), dtype=np.bool_)
    merged[np.arange(len(brokers)), brokers] = True
    return Caches(np.concatenate([holds[~single], merged]), np.concatenate([counts[~single], totals[brokers]]))


def _ids_of_broker(workload: Workload) -> list[Ids]:
    """Return the ids that each broker published or delivered, in order of time."""
    ids: list[Ids] = []
    wanting = [[] for _ in range(workload.settings.broker_count)]  # type: list[list[int]]
    for flow, brokers in enumerate(workload.members.tolist()):
        for broker in brokers:
            wanting[broker].append(flow)
    by_flow = np.argsort(workload.flow_of, kind="stable")
    ends = np.cumsum(np.bincount(workload.flow_of, minlength=len(workload.members)))
    starts = np.concatenate([[0], ends[:-1]])
    for flows in wanting:
        parts = [by_flow[starts[flow] : ends[flow]] for flow in flows]
        ids.append(np.sort(np.concatenate(parts)) if parts else np.zeros(0, dtype=np.int64))
    return ids
