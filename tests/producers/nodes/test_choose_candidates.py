"""Which peers a node measures: all if they are few; otherwise half of them near ones, half the others in turn."""

from __future__ import annotations

import random

import pytest

from regraft.overlay.inventory.inventory import Inventory
from regraft.producers.emulator.place_overlay import place_overlay
from regraft.producers.nodes.links.choose_candidates import CANDIDATES_MAX, NEAR_MAX, CandidateChoice

OWN = "b005"


def inventory(count: int) -> Inventory:
    return place_overlay(count, 8, random.Random(3))


def test_few_peers_are_all_measured() -> None:
    fleet = inventory(CANDIDATES_MAX + 1)
    own = fleet.brokers[5]
    assert CandidateChoice(own, fleet).next(fleet.brokers) == [peer for peer in fleet.brokers if peer != own]


def test_near_peers_stay_and_the_others_take_turns() -> None:
    """The nearest are measured in every turn, and every other peer after enough turns."""
    fleet = inventory(150)
    choice = CandidateChoice(OWN, fleet)
    row = fleet.link_cost[fleet.index[OWN]]
    nearest = {fleet.brokers[place] for place in row.argsort(kind="stable")[1 : NEAR_MAX + 1].tolist()}
    met: set[str] = set()
    for _ in range(60):
        found = choice.next(fleet.brokers)
        assert nearest <= set(found)
        assert len(set(found)) == len(found) == CANDIDATES_MAX
        met |= set(found)
    assert met == set(fleet.brokers) - {OWN}


def test_measurements_override_the_inventory() -> None:
    """A peer nearer than the inventory says becomes a near one once measured; one farther away gets only turns."""
    fleet = inventory(150)
    choice = CandidateChoice(OWN, fleet)
    far = fleet.brokers[int(fleet.link_cost[fleet.index[OWN]].argmax())]
    near = choice.next(fleet.brokers)[0]
    choice.note([(far, 0.1), (near, 10_000.0)])
    after = choice.next(fleet.brokers)[:NEAR_MAX]
    assert far in after
    assert near not in after


@pytest.mark.parametrize("own", ["b000", "b001"])
def test_nodes_choose_differently_but_reproducibly(own: str) -> None:
    fleet = inventory(150)
    first = CandidateChoice(own, fleet).next(fleet.brokers)
    assert first == CandidateChoice(own, fleet).next(fleet.brokers)
    assert set(first) != set(CandidateChoice("b149", fleet).next(fleet.brokers))
