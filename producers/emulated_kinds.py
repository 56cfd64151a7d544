"""What differs in the emulator between the kinds of overlay: where brokers are placed and which clients there are.

The brokers' cores, by the same names, are in :mod:`producers.emulator.starting_point`.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from regraft.overlay.inventory.inventory import Inventory
from regraft.overlay.ring.ring_configuration import RingConfiguration
from regraft.overlay.scot.scot_configuration import ScotConfiguration
from regraft.overlay.tree.tree_configuration import TreeConfiguration
from regraft.producers.brokers.scot_routing import ScotBroker
from regraft.producers.emulator.emulate_overlay import EmulatedOverlay
from regraft.producers.emulator.meter_queues import LinkMeter
from regraft.producers.emulator.place_overlay import place_overlay, place_ring, place_scot
from regraft.producers.emulator_settings import EmulatorSettings
from regraft.producers.workloads.burst_detours import BurstDetours
from regraft.producers.workloads.checkin_settings import CheckinSettings
from regraft.producers.workloads.checkin_workload import CheckinWorkload
from regraft.producers.workloads.stock_settings import Detours, WorkloadSettings
from regraft.producers.workloads.stock_workload import StockWorkload


class ScotWorkload(StockWorkload):
    """Publishers and subscribers of stock quotes, and the meters of links and bursts."""

    def __init__(
        self, overlay: EmulatedOverlay, settings: WorkloadSettings, rng: random.Random, detours: Detours
    ) -> None:
        super().__init__(overlay, settings, rng)
        self._emulated = overlay
        self.links = LinkMeter(overlay)
        self.bursts = BurstDetours(detours, self._set_dynamic, lambda: overlay.env.now)
        self.on_burst = self.bursts.note

    def _set_dynamic(self, is_dynamic: bool) -> None:
        self.links.is_dynamic = is_dynamic

    def start(self) -> None:
        """Connect all clients and begin measuring."""
        self._emulated.ledger.watch = self.bursts.meter.take
        self.links.start()
        super().start()

    def counts(self) -> dict[str, Any]:
        """Return the status file's figures on congestion and bursts."""
        cores = (broker.core for broker in self._emulated.brokers.values())
        return {
            "clusters_diverted": sum(core.links.diverted for core in cores if isinstance(core, ScotBroker)),
            "congested_link_windows": self.links.congested_windows,
            **self.bursts.figures(),
        }


CLUSTERS = 4  # Clusters of a demo's structured cyclic overlay.


class Workload(Protocol):
    """Who publishes and subscribes to what. ``regime_changed_ms``: when interests shifted, None if they have not."""

    regime_changed_ms: float | None

    def start(self) -> None:
        """Connect clients and let them publish."""

    def stop(self) -> None:
        """Stop publishing and changing anything."""

    def publisher_rate_per_s(self, publisher: str) -> float:
        """Return how many notifications per second a publisher sends on average."""


@dataclass(frozen=True)
class EmulatedKind:
    """One kind of overlay as the emulator runs it.

    ``place`` puts brokers on measured hosts, given their number, the cap of links and the random source.
    ``settings_of`` selects the workload's settings from the emulator's. ``workload`` makes the clients; ``counts``
    returns their part of the status file.
    """

    place: Callable[[int, int, random.Random], Inventory]
    settings_of: Callable[[EmulatorSettings], WorkloadSettings | CheckinSettings]
    workload: Callable[[EmulatedOverlay, EmulatorSettings, random.Random], Workload]
    counts: Callable[[EmulatedOverlay, Workload], dict[str, Any]]


def workload_of(overlay: EmulatedOverlay, settings: EmulatorSettings, rng: random.Random) -> Workload:
    """Return the workload for the kind of overlay: topics on a ring, content on the others."""
    return EMULATED_KINDS[overlay.inventory.bootstrap.KIND].workload(overlay, settings, rng)


def _user_counts(overlay: EmulatedOverlay, workload: Workload) -> dict[str, Any]:
    users = overlay.users
    return {
        "users": users.user_count,
        "users_moved": users.counts.moved,
        "user_wait_ms_max": round(users.counts.wait_ms_max, 1),
        "subscriptions": users.subscription_count,
        "ended_subscriptions_waiting": sum(broker.core.ended_count for broker in overlay.brokers.values()),
        "broker_subscriptions": users.topics.subscription_count,
        "broker_subscription_changes": users.topics.changes,
        "broker_subscription_changes_at_first_homes": users.topics_at_first_homes.changes,
    }


def _burst_counts(overlay: EmulatedOverlay, workload: Workload) -> dict[str, Any]:
    return workload.counts() if isinstance(workload, ScotWorkload) else {}


EMULATED_KINDS = {
    TreeConfiguration.KIND: EmulatedKind(
        place=place_overlay,
        settings_of=lambda settings: settings.workload,
        workload=lambda overlay, settings, rng: StockWorkload(overlay, settings.workload, rng),
        counts=lambda overlay, workload: {},
    ),
    RingConfiguration.KIND: EmulatedKind(
        place=lambda brokers, _, rng: place_ring(brokers, rng),
        settings_of=lambda settings: settings.checkins,
        workload=lambda overlay, settings, rng: CheckinWorkload(overlay, settings.checkins, rng),
        counts=_user_counts,
    ),
    ScotConfiguration.KIND: EmulatedKind(
        place=lambda brokers, _, rng: place_scot(brokers, CLUSTERS, rng),
        settings_of=lambda settings: settings.workload,
        workload=lambda overlay, settings, rng: ScotWorkload(
            overlay, settings.workload, rng, Detours(settings.detours)
        ),
        counts=_burst_counts,
    ),
}
