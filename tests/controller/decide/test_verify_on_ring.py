"""A ring's plan is verified on later windows, and IDs and users are moved back if it made things worse."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from regraft.controller.decide.choose_proposals import plan_of
from regraft.controller.decide.verify_gain import observed_gains_per_s, plan_undoing, verify_gain
from regraft.controller.settings.controller_settings import ControllerSettings
from regraft.controller.settings.decision_settings import DecisionSettings
from regraft.controller.state.closed_window import ClosedWindow
from regraft.controller.state.find_homes import configuration_after, configuration_before
from regraft.overlay.overlay_configuration import OverlayConfiguration
from regraft.overlay.ring.ring_configuration import RingConfiguration
from regraft.schemas.plan import ClientMove, IdMove, Plan, Proposal, RingId
from tests.controller.choose_all import choose_proposals
from tests.controller.ring_situations import (
    GOOD_IDS,
    KIND,
    TO_NEW_ROOT,
    TO_ROOT,
    USERS,
    Users,
    only,
    situation_of,
)
from tests.controller.scripted_ring import (
    OTHER,
    RING,
    TOPIC,
    ring_inventory,
    ring_window,
)
from tests.controller.small_kinds import ring_kind

INVENTORY = ring_inventory()
SETTINGS = ControllerSettings(bootstrap="nowhere:1", inventory_path=Path("unused"), verify_windows=2)


def executed(*proposals: Proposal) -> Plan:
    choice = choose_proposals(list(proposals), situation_of(), 1, DecisionSettings())
    assert len(choice.chosen) == len(proposals)
    return plan_of(choice, situation_of().state)


def after_windows(after: OverlayConfiguration, users: Users, count: int = 10) -> tuple[ClosedWindow, ...]:
    assert isinstance(after, RingConfiguration)
    return tuple(ring_window(users, {TOPIC: count}, 4000 + 1000 * at, 1, after) for at in range(2))


def test_the_gain_of_a_plan_is_verified_on_later_windows() -> None:
    """The traffic after the plan, at twice the rate, is costed on the new ring and on the old one."""
    plan = executed(GOOD_IDS, TO_NEW_ROOT)
    after = configuration_after(plan, RING)
    before = configuration_before(plan, after)
    assert before == RingConfiguration.of(0, 3, RING.id_of, {"u4": "b04"})
    windows = after_windows(after, USERS | {"u4": ("b00", [TOPIC])}, 20)
    found = verify_gain(plan, before, after, windows, KIND)
    assert found.cost_without_per_s == 300.0
    assert found.gain_per_s == pytest.approx(2 * (plan.cost_before_per_s - plan.cost_predicted_per_s))
    assert found.cost_counted_per_s is None
    gains = observed_gains_per_s(plan, before, windows, KIND)
    assert gains == pytest.approx([2 * one.gain_per_s for one in plan.proposals])
    without_delay = verify_gain(plan, before, after, windows, ring_kind(INVENTORY, delay_weight=0.0))
    assert without_delay.cost_without_per_s == 20 * 7


def test_a_user_that_has_moved_by_itself_is_there_in_every_comparison() -> None:
    """u0 was moved to the root and has gone to b05 by itself: the plan is neither credited nor blamed for it."""
    plan = executed(TO_ROOT)
    after = configuration_after(plan, RING)
    before = configuration_before(plan, after)
    windows = after_windows(after, USERS | {"u0": ("b05", [TOPIC])})
    assert windows[0].strayed == {"u0"}
    found = verify_gain(plan, before, after, windows, KIND)
    assert (found.gain_per_s, found.cost_observed_per_s) == (0.0, KIND.cost_per_s(RING, windows[0]))
    assert observed_gains_per_s(plan, before, windows, KIND) == [0.0]


def test_undoing_restores_ids_and_users() -> None:
    """Users still where the plan put them move back; one that has left or moved elsewhere is not part of it."""
    plan = executed(GOOD_IDS, TO_NEW_ROOT)
    others = (ClientMove("u2", "b02", "b03"), ClientMove("u9", "b02", "b03"))
    plan = msgspec.structs.replace(plan, moves=(*plan.moves, *others))
    after = configuration_after(plan, RING)
    before = configuration_before(plan, after)
    windows = after_windows(after, USERS | {"u4": ("b00", [TOPIC]), "u2": ("b05", [TOPIC])})
    undo = plan_undoing(plan, before, after, 5, verify_gain(plan, before, after, windows, KIND), windows[-1])
    assert (undo.plan, undo.undoes, undo.epoch_from, undo.epoch_to) == ("plan-5", plan.plan, 1, 5)
    assert undo.moves == undo.proposals[0].moves == (ClientMove("u4", "b00", "b04"),)
    assert set(undo.id_moves) == {IdMove(one.broker, one.id_to, one.id_from) for one in plan.id_moves}
    assert undo.ring_target == tuple(RingId(*pair) for pair in RING.id_of.items())
    assert undo.links_target == ()
    back = configuration_after(undo, after)
    assert isinstance(back, RingConfiguration)
    assert back.id_of == RING.id_of


def test_a_window_is_costed_by_its_own_users_and_rates() -> None:
    """Fig. 2 of Zhao13 at 10 notifications/s; unknown interests have no cost."""
    window = ring_window(USERS | {"v": ("b03", [OTHER])}, {TOPIC: 10, "of nobody": 50})
    assert KIND.cost_per_s(RING, window) == 150.0
    assert ring_kind(INVENTORY, delay_weight=0.0).cost_per_s(RING, window) == 70.0
    at_root = RING.replaced(1, (), {"u0": "b01"})
    assert KIND.cost_per_s(at_root, window) == 150.0 - only(TO_ROOT, situation_of()).gain_per_s
    blind = window.without_interests()
    assert (KIND.can_be_costed(window), KIND.can_be_costed(blind)) == (True, False)
    with pytest.raises(ValueError, match="the users are unknown"):
        KIND.cost_per_s(RING, blind)
