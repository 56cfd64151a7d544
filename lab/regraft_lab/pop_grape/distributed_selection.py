"""GRAPE's selection at a publisher's home, from the reports of a trace session: Cheung09, section 4.2.

The home knows neither other brokers nor the tree beyond these. Both metrics and the choice by priority and weight are
those of the central planner; gathering belongs to :mod:`experiments.pop_grape.distributed_grape`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from regraft.api.overlays import Words
from regraft.api.planners import Priority, select
from regraft.api.trees import HopDelays, RootedTree, SessionMetrics, TraceSessions, TreeConfiguration
from regraft_lab.pop_grape.distributed_traces import BYTE_BITS, BrokerReport

WORD_BYTES = 8
ROUND_TRIP_SHARE = 0.5  # One-way delay from the publisher to a broker, as a share of the ping.


@dataclass(frozen=True, slots=True)
class GrapeSettings:
    """The settings of GRAPE.

    ``threshold``: G_threshold, notifications in a trace session. ``priority``: the metric to minimise first.
    ``weight_percent``: by how much; 100 keeps only the best. ``link_delays``: include the delays of links in the output
    delays; the paper's Algorithm 1 does not, but here they are most of a notification's delay. ``pings``: count the
    delay from the publisher to a candidate, as in the paper.
    """

    threshold: int = 100
    priority: Priority = "load"
    weight_percent: int = 100
    link_delays: bool = True
    pings: bool = True

    def errors(self) -> list[str]:
        """Return every error as one sentence with the value, the limit and what to do; empty if there is none."""
        errors = []
        if self.threshold < 1:
            errors.append(f"threshold is {self.threshold}: at least 1 notification makes a trace session")
        if not 0 <= self.weight_percent <= 100:
            errors.append(f"weight_percent is {self.weight_percent}: must be from 0 to 100")
        if self.priority not in ("load", "delay"):
            errors.append(f"priority is {self.priority!r}: must be load or delay")
        return errors


class Selection:
    """The selection for one publisher. Candidates are the home and the brokers that answered."""

    def __init__(self, settings: GrapeSettings, reports: Sequence[BrokerReport]) -> None:
        self._settings = settings
        self._home = reports[0].broker
        self._reports = {report.broker: report for report in reports}
        self.tree = answered_tree(reports)
        self._rooted = RootedTree.of(self.tree)
        self._metrics = SessionMetrics(self._rooted, session_of(reports))
        self._is_present = np.array([broker == self._home for broker in self.tree.brokers])

    @property
    def messages(self) -> NDArray[np.float64]:
        """The messages through all brokers with the publisher at each candidate (Algorithm 2), in order of names."""
        return np.asarray(self._metrics.messages[0])

    def delays_ms(self, round_trips_ms: Mapping[str, float]) -> NDArray[np.float64]:
        """Return the mean delivery delay with the publisher at each candidate (Algorithm 1), in order of names.

        Half of the publisher's round trip to a candidate is added; 0 if it was not measured.
        """
        pings_ms = np.array([ROUND_TRIP_SHARE * round_trips_ms.get(broker, 0.0) for broker in self.tree.brokers])
        return np.asarray(self._metrics.delays_ms(self._hop_delays(), pings_ms)[0])

    @property
    def to_ping(self) -> tuple[str, ...]:
        """The candidates whose round trips matter: all if delay has priority, else those that remain after load.

        Empty without pings or if only one candidate remains.
        """
        settings, brokers = self._settings, self.tree.brokers
        if not settings.pings or len(brokers) == 1:
            return ()
        if settings.priority == "delay":
            return brokers
        kept = tuple(broker for place, broker in enumerate(brokers) if self._is_kept(place))
        return kept if len(kept) > 1 else ()

    def target(self, round_trips_ms: Mapping[str, float]) -> str:
        """Return the broker to move to; ties go to the home."""
        settings = self._settings
        delays_ms = self.delays_ms(round_trips_ms)
        chosen = select(self.messages, delays_ms, self._is_present, settings.priority, settings.weight_percent)
        return self.tree.brokers[chosen]

    def _is_kept(self, place: int) -> bool:
        """Return True if a candidate remains after load, that is if it would be chosen given the least delay."""
        delays_ms = np.ones(len(self.messages))
        delays_ms[place] = 0.0
        nobody = np.zeros(len(delays_ms), dtype=np.bool_)
        return select(self.messages, delays_ms, nobody, "load", self._settings.weight_percent) == place

    def _hop_delays(self) -> HopDelays:
        """Return the reported queueing, matching and output delays by link of the tree."""
        brokers = self.tree.brokers
        inside = np.array([_inside_ms(self._reports[broker]) for broker in brokers])
        local = inside + np.array([self._reports[broker].output_ms[-1] for broker in brokers])
        outward, inward = np.zeros(len(brokers)), np.zeros(len(brokers))
        for child, parent in enumerate(self._rooted.parents):
            if child != parent:
                outward[child] = inside[parent] + self._output_ms(brokers[parent], brokers[child])
                inward[child] = inside[child] + self._output_ms(brokers[child], brokers[parent])
        return HopDelays(outward, inward, local)

    def _output_ms(self, broker: str, peer: str) -> float:
        report = self._reports[broker]
        return report.output_ms[report.neighbours.index(peer)]


def answered_tree(reports: Sequence[BrokerReport]) -> TreeConfiguration:
    """Return the known part of the tree: the brokers that answered, and the links among them."""
    brokers = {report.broker for report in reports}
    links = {
        (report.broker, peer)
        for report in reports
        for peer in report.neighbours
        if report.broker < peer and peer in brokers
    }
    return TreeConfiguration.of(0, brokers, links)


def session_of(reports: Sequence[BrokerReport]) -> TraceSessions:
    """Return the bit vectors and deliveries of one session in the planner's form, brokers in order of names."""
    ordered = sorted(reports, key=lambda report: report.broker)
    length = max((report.bits.bit_length() for report in ordered), default=0)
    columns = max(-(-length // (WORD_BYTES * BYTE_BITS)), 1)
    rows = [np.frombuffer(report.bits.to_bytes(WORD_BYTES * columns, "little"), "<u8") for report in ordered]
    words: Words = np.array(rows, dtype=np.uint64)
    deliveries = np.array([[report.deliveries for report in ordered]], dtype=np.float64)
    return TraceSessions(("",), words, np.array([0], dtype=np.intp), np.array([length], dtype=np.int64), deliveries)


def _inside_ms(report: BrokerReport) -> float:
    return report.queueing_ms + report.matching_ms
