"""Shadow planners on a ring: their own IDs and homes, on the windows that the acting planner's overlay produces."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from regraft.controller.decide.shadow_planners import ShadowPlanner
from regraft.controller.kinds.ring.ring_state import RingContext, RingState
from regraft.controller.settings.controller_settings import ControllerSettings
from regraft.overlay.ring.ring_configuration import RingConfiguration
from regraft.schemas.plan import Proposal
from tests.controller.ring_situations import (
    GOOD_IDS,
    KIND,
    TO_NEW_ROOT,
    TO_ROOT,
    USERS,
    Users,
    situation_of,
    windows_of,
)
from tests.controller.scripted_ring import (
    OTHER,
    RING,
    TOPIC,
    ring_inventory,
    ring_window,
)

INVENTORY = ring_inventory()
SETTINGS = ControllerSettings(bootstrap="nowhere:1", inventory_path=Path("unused"), verify_windows=2)


def no_moves(epoch: int) -> dict[str, str]:
    return {}


def shadow_of(*proposals: Proposal) -> ShadowPlanner:
    def planner(state: RingState, context: RingContext, rng: random.Random) -> list[Proposal]:
        return list(proposals)

    return ShadowPlanner("shadow", [planner], RING, KIND, SETTINGS)


def test_a_shadow_keeps_its_own_ring_and_homes() -> None:
    """The acting planner's changes do not affect it, and its own changes are costed exactly."""
    shadow = shadow_of(GOOD_IDS, TO_NEW_ROOT)
    (first, *_) = windows_of()
    assert shadow.add_window(first, 1000, no_moves) == 150.0
    assert shadow.decide(situation_of(), lambda _: 0.0)
    assert (shadow.plans_made, shadow.id_moves, shadow.moved["users"], shadow.moved["publishers"]) == (1, 6, 1, 0)
    assert shadow.homes_moved == {"u4": "b00"}
    plan = shadow.plans[-1]
    # The acting planner moves u2 to b07 and u4 to b03: for the shadow u2 stays at b02 and u4 where the shadow put it.
    acting = RING.replaced(1, (), {"u4": "b03", "u2": "b07"})
    users = USERS | {"u4": ("b03", [TOPIC]), "u2": ("b07", [TOPIC])}
    window = ring_window(users, {TOPIC: 10}, 4000, 1, acting)
    assert shadow.add_window(window, 5000, lambda _: {"u4": "b04", "u2": "b02"}) == pytest.approx(
        plan.cost_predicted_per_s
    )


def test_a_user_that_moves_by_itself_moves_for_a_shadow_too() -> None:
    """The shadow had put u0 at the root; once the register has u0 at a new home, the shadow has it there."""
    shadow = shadow_of(TO_ROOT)
    shadow.add_window(windows_of()[0], 1000, no_moves)
    assert shadow.decide(situation_of(), lambda _: 0.0)
    assert shadow.homes_moved == {"u0": "b01"}
    users = USERS | {"u0": ("b05", [TOPIC])}
    window = ring_window(users, {TOPIC: 10}, 4000)
    assert shadow.add_window(window, 5000, no_moves) == KIND.cost_per_s(RING, window)
    assert shadow.homes_moved == {}


def test_a_shadow_rolls_back_ids_and_users() -> None:
    """When interests turn after its plan, the earlier ring is cheaper and returns at a later epoch."""
    shadow = shadow_of(GOOD_IDS, TO_NEW_ROOT)
    shadow.add_window(windows_of()[0], 1000, no_moves)
    assert shadow.decide(situation_of(), lambda _: 0.0)
    turned: Users = {"u0": ("b00", [OTHER]), "u4": ("b04", [OTHER]), "u2": ("b05", [OTHER]), "u6": ("b06", [OTHER])}
    for at in range(2):
        window = ring_window(turned, {OTHER: 40}, 4000 + 1000 * at)
        shadow.add_window(window, 5000 + 1000 * at, no_moves)
    assert shadow.plans_rolled_back == 1
    assert isinstance(shadow.overlay, RingConfiguration)
    assert shadow.overlay.id_of == RING.id_of
    assert shadow.overlay.home_of == {"u4": "b04"}
    assert shadow.overlay.epoch == 2


def test_a_window_without_interests_has_no_cost_of_a_shadow() -> None:
    """It has no cost, and no plan is verified on it."""
    shadow = shadow_of(TO_ROOT)
    assert shadow.add_window(windows_of()[0].without_interests(), 1000, no_moves) is None
