"""Figures on mobile clients: what check-ins did, and what plans did about it."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import cast

import numpy as np

from regraft.producers.real_fleet.fleet_agents import FleetAgents
from regraft.producers.real_fleet.mobile_clients import DAYS_PER_S, MobileClients
from regraft.producers.workloads.checkin_data import DAY_MINUTES, checkins_of
from regraft.producers.workloads.checkin_walks import CheckinWalks

BROKERS = ("b1", "b2", "b3")


@dataclass
class PlacedAgents:
    """In place of agents: a test moves clients as plans would."""

    homes: dict[str, str] = field(default_factory=lambda: {"phone": "b1", "tablet": "b1"})
    places: list[tuple[str, str]] = field(default_factory=list)

    def place(self, home: str, at: str) -> None:
        self.places.append((home, at))

    def homes_at(self, broker: str) -> dict[str, str]:
        return dict(self.homes)


def _delay_ms(one: str, other: str) -> float:
    return 10.0 * abs(BROKERS.index(one) - BROKERS.index(other))


def _minute_s(minute: float) -> float:
    return minute / DAY_MINUTES / DAYS_PER_S


def test_only_what_brings_clients_nearer_to_where_they_are_counts() -> None:
    """A plan before they roam and one that takes them further away do not, however many move."""
    user = np.zeros(3, dtype=np.int64)
    data = checkins_of(user, np.array([100, 200, 300]), np.full(3, 40.7), np.array([3.0, 2.0, 1.0]), 30)
    agents = PlacedAgents()
    walks = CheckinWalks(BROKERS, ("b1",), _delay_ms, random.Random(1), data)
    mobile = MobileClients(walks, cast(FleetAgents, agents), _delay_ms)
    mobile.follow(_minute_s(50))
    assert mobile.status()["mobile_trip_ms"] is None
    agents.homes["tablet"] = "b2"  # It has not moved: links were cheaper there.
    mobile.follow(_minute_s(101))
    assert agents.places == [("b1", "b3")]
    assert mobile.status() == {
        "checkins_moving": 1,
        "clients_brought_nearer": 0,
        "clients_brought_to_nearest": 0,
        "brought_trip_ms_before": None,
        "brought_trip_ms_after": None,
        "mobile_trip_ms": 30.0,
        "mobile_unplanned_trip_ms": 40.0,
    }
    agents.homes |= {"phone": "b2", "tablet": "b3"}
    mobile.follow(_minute_s(150))
    agents.homes["tablet"] = "b1"
    mobile.follow(_minute_s(151))
    status = mobile.status()
    assert (status["clients_brought_nearer"], status["clients_brought_to_nearest"]) == (2, 1)
    assert (status["brought_trip_ms_before"], status["brought_trip_ms_after"]) == (30.0, 10.0)
    assert status["mobile_unplanned_trip_ms"] == 40.0
    mobile.follow(_minute_s(301))
    assert agents.places[-1] == ("b1", "b1")
    assert mobile.status()["checkins_moving"] == 2
    for homes in ({}, {"phone": "b1", "tablet": "b1"}):  # Their agent dies, and they begin again where it is.
        agents.homes = homes
        mobile.follow(_minute_s(302))
    assert mobile.status()["clients_brought_nearer"] == 2
