"""The traffic of Jaeger07's evaluation: publications over time, and the brokers that want them.

In: rates and a seeded generator. Out: all notifications of a run in order of time, each with its V(n). It depends
neither on costs nor on the tree, so the workload is the same for every planner. Links and costs do not belong here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from regraft.api.overlays import DeliverySets

Ids = NDArray[np.int64]


@dataclass(frozen=True)
class WorkloadSettings:
    """The numbers of Jaeger07, sections 5 and 5.1.

    ``load_change_ticks``: the times from which new subscribers choose brokers by newly drawn load values.
    """

    broker_count: int = 100
    type_count: int = 50
    subscribers_per_type: int = 9
    publications_per_tick: float = 0.2
    subscriptions_ended_per_tick: float = 0.0004
    duration_ticks: int = 25_000
    load_change_ticks: tuple[int, ...] = ()

    @property
    def lifetime_ticks(self) -> float:
        """The mean lifetime of a subscription."""
        return 1 / self.subscriptions_ended_per_tick


@dataclass(frozen=True, eq=False)
class Workload:
    """All notifications of a run; a notification's id is its index in order of time.

    ``members`` (flows, 1 + subscribers): the brokers of V(n), publisher first; a flow is one type between two changes
    of its subscribers. ``type_of_flow`` and ``began_at`` are by flow, ``flow_of`` and ``time_of`` by id.
    """

    settings: WorkloadSettings
    members: NDArray[np.int64]
    type_of_flow: NDArray[np.int64]
    began_at: NDArray[np.float64]
    flow_of: NDArray[np.int64]
    time_of: NDArray[np.float64]

    @property
    def notification_count(self) -> int:
        """The number of notifications published."""
        return len(self.flow_of)

    @property
    def subscriptions_issued(self) -> int:
        """The number of subscriptions issued: those at the start and every replacement."""
        first = self.settings.type_count * self.settings.subscribers_per_type
        return first + len(self.members) - self.settings.type_count

    def members_at(self, tick: float) -> NDArray[np.int64]:
        """Return the brokers that want each type at a time, publisher first, shape (types, 1 + subscribers)."""
        begun = np.flatnonzero(self.began_at <= tick)
        # Flows of a type are in order of time; for repeated indices the last assignment wins.
        newest = np.zeros(self.settings.type_count, dtype=np.int64)
        newest[self.type_of_flow[begun]] = begun
        return self.members[newest]

    def first_id_at(self, tick: float) -> int:
        """Return the id of the first notification at or after a time; the number of notifications if there is none."""
        return int(np.searchsorted(self.time_of, tick))

    def delivery_sets(self, brokers: Sequence[str], first_id: int, end_id: int, span_s: float) -> DeliverySets:
        """Return V(n) of the ids in [first_id, end_id), in order of time."""
        count = end_id - first_id
        dense = np.zeros((len(brokers), -(-count // 64) * 64), dtype=np.uint8)
        dense[self.members[self.flow_of[first_id:end_id]], np.arange(count)[:, None]] = 1
        words = np.packbits(dense, axis=1, bitorder="little").view(np.uint64)
        columns = tuple(("all", column) for column in range(words.shape[1]))
        return DeliverySets(tuple(brokers), columns, words, span_s, words)

    def published_sets(self, brokers: Sequence[str], first_id: int, end_id: int, span_s: float) -> DeliverySets:
        """Return the same with a publisher for each type, and with delivered separate from published."""
        flows = self.flow_of[first_id:end_id]
        types = self.type_of_flow[flows]
        order = np.argsort(types, kind="stable")
        within = np.arange(len(flows)) - np.searchsorted(types[order], types[order])
        columns, column_of = np.unique(types[order] * len(self.flow_of) + within // 64, return_inverse=True)
        bits = np.uint64(1) << (within % 64).astype(np.uint64)
        delivered = np.zeros((len(brokers), len(columns)), dtype=np.uint64)
        members = self.members[flows[order]]
        np.bitwise_or.at(delivered, (members[:, 1:], column_of[:, None]), bits[:, None])
        words = delivered.copy()
        np.bitwise_or.at(words, (members[:, 0], column_of), bits)
        names = tuple((f"p{column // len(self.flow_of)}", column % len(self.flow_of)) for column in columns.tolist())
        return DeliverySets(tuple(brokers), names, words, span_s, delivered)

    def homes(self, brokers: Sequence[str]) -> dict[str, str]:
        """Return the home of each type's publisher; publishers do not move."""
        firsts = {int(type_): int(flow[0]) for type_, flow in zip(self.type_of_flow, self.members, strict=True)}
        return {f"p{number}": brokers[home] for number, home in sorted(firsts.items())}


def draw_workload(settings: WorkloadSettings, rng: np.random.Generator) -> Workload:
    """Return the notifications of one run.

    Source: Jaeger07, sections 5 and 5.1. Readings: the 9 subscribers of a type are at 9 different brokers other than
    the publisher's, so V(n) has 10 brokers, also after replacements; publishers do not move. Cost O(notifications log).
    """
    subscribers = draw_subscribers(settings, rng)
    times, flows = [], []
    flow_count = 0
    for _, changed_at in subscribers:
        count = rng.poisson(settings.publications_per_tick * settings.duration_ticks)
        at = np.sort(rng.uniform(0, settings.duration_ticks, count))
        times.append(at)
        flows.append(flow_count + np.searchsorted(changed_at, at))
        flow_count += len(changed_at) + 1
    time_of = np.concatenate(times)
    order = np.argsort(time_of, kind="stable")
    lengths = [len(members) for members, _ in subscribers]
    return Workload(
        settings,
        np.concatenate([members for members, _ in subscribers]),
        np.repeat(np.arange(settings.type_count), lengths),
        np.concatenate([np.append(0.0, changed_at) for _, changed_at in subscribers]),
        np.concatenate(flows)[order],
        time_of[order],
    )


def draw_subscribers(
    settings: WorkloadSettings, rng: np.random.Generator
) -> list[tuple[NDArray[np.int64], NDArray[np.float64]]]:
    """Return for each type V(n) of its flows and the times at which one flow follows another."""
    starts = (0, *settings.load_change_ticks)
    # A broker is drawn by the place of a uniform number among the cumulative load values.
    sums = np.cumsum(rng.uniform(size=(len(starts), settings.broker_count)), axis=1)
    shares = sums / sums[:, -1:]
    drawn = []
    for _ in range(settings.type_count):
        present: list[int] = []
        while len(present) <= settings.subscribers_per_type:
            present.append(_other_broker(present, shares[0], rng))
        changes = rng.poisson(
            settings.subscriptions_ended_per_tick * settings.subscribers_per_type * settings.duration_ticks
        )
        changed_at = np.sort(rng.uniform(0, settings.duration_ticks, changes))
        members = [list(present)]
        for at in changed_at:
            leaving = 1 + int(rng.integers(settings.subscribers_per_type))
            staying = present[:leaving] + present[leaving + 1 :]
            present[leaving] = _other_broker(staying, shares[np.searchsorted(starts, at, side="right") - 1], rng)
            members.append(list(present))
        drawn.append((np.array(members, dtype=np.int64), changed_at))
    return drawn


def _other_broker(taken: Sequence[int], shares: NDArray[np.float64], rng: np.random.Generator) -> int:
    """Draw brokers by their shares of the load until one is not taken."""
    while True:
        broker = int(np.searchsorted(shares, rng.random(), side="right"))
        if broker not in taken:
            return broker
