"""The mobile clients of a fleet: they roam as check-ins say, and plans may bring them to a nearer broker.

In: walks, and the agents that carry these clients. Out: places of agents, and figures on how far clients were from
their homes. Only clients with subscriptions count: agents do not report where others are.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from regraft.producers.real_fleet.fleet_agents import FleetAgents
from regraft.producers.workloads.checkin_data import DAY_MINUTES
from regraft.producers.workloads.checkin_walks import CheckinWalks

# Days of check-ins in a second: agents and plans take half a minute to follow.
DAYS_PER_S = 0.05


@dataclass(slots=True)
class _Mean:
    total: float = 0.0
    count: int = 0

    def add(self, value: float) -> None:
        self.total += value
        self.count += 1

    @property
    def rounded(self) -> float | None:
        return round(self.total / self.count, 1) if self.count else None


@dataclass(slots=True)
class MobileClients:
    """``delay_ms`` is the delay between the places of two brokers."""

    walks: CheckinWalks
    agents: FleetAgents
    delay_ms: Callable[[str, str], float]
    _at: dict[str, str] = field(default_factory=dict)  # Where those that begin at a broker are, once they have moved.
    _homes: dict[str, dict[str, str]] = field(default_factory=dict)  # By where they begin: homes as last seen.
    _moved_count: int = 0
    _followed_count: int = 0
    _arrived_count: int = 0
    _before: _Mean = field(default_factory=_Mean)
    _after: _Mean = field(default_factory=_Mean)
    _all: _Mean = field(default_factory=_Mean)
    _unmoved: _Mean = field(default_factory=_Mean)

    def follow(self, elapsed_s: float) -> None:
        """Let clients be where the check-ins say, and note whether plans have brought them nearer."""
        for broker, at in self.walks.moves_until(elapsed_s * DAYS_PER_S * DAY_MINUTES):
            self._note_homes(broker)  # What a plan did until now, it did for where they were.
            self.agents.place(broker, at)
            self._at[broker] = at
            self._moved_count += 1
        for broker in self._at:
            self._note_homes(broker)
            self._sample(broker)

    def _trip_ms(self, one: str, other: str) -> float:
        return 2 * self.delay_ms(one, other)

    def _note_homes(self, broker: str) -> None:
        """Compare the homes of an agent's clients with those last seen."""
        at, seen = self._at.get(broker, broker), self._homes.get(broker, {})
        self._homes[broker] = self.agents.homes_at(broker)
        for client, home in self._homes[broker].items():
            before = seen.get(client, broker)  # Those that were away begin again.
            before_ms, after_ms = self._trip_ms(at, before), self._trip_ms(at, home)
            if after_ms < before_ms:
                self._followed_count += 1
                self._arrived_count += home == at
                self._before.add(before_ms)
                self._after.add(after_ms)

    def _sample(self, broker: str) -> None:
        """Note how far clients that have moved are from their homes, and from where they began."""
        at = self._at[broker]
        for home in self.agents.homes_at(broker).values():
            self._all.add(self._trip_ms(at, home))
            self._unmoved.add(self._trip_ms(at, broker))

    def status(self) -> dict[str, float | None]:
        """Return the status file's figures."""
        return {
            "checkins_moving": self._moved_count,
            "clients_brought_nearer": self._followed_count,
            "clients_brought_to_nearest": self._arrived_count,
            "brought_trip_ms_before": self._before.rounded,
            "brought_trip_ms_after": self._after.rounded,
            "mobile_trip_ms": self._all.rounded,
            "mobile_unplanned_trip_ms": self._unmoved.rounded,
        }
