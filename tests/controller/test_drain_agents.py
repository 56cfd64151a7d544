"""A drained broker whose clients stay: those beside agents leave first, by name, and then the broker leaves."""

from dataclasses import replace
from typing import Any

import pytest

from regraft.controller.kinds.overlay_kind import OverlayKind
from regraft.controller.kinds.ring.ring_kind import RingKind
from regraft.controller.kinds.scot.scot_kind import ScotKind
from regraft.controller.kinds.tree.tree_kind import TreeKind
from regraft.controller.settings.member_settings import MemberSettings
from regraft.schemas.client import Client, Role
from regraft.schemas.member import MemberState
from regraft.schemas.order import OrderKind
from regraft.schemas.plan import ClientMove
from regraft.schemas.plan_life import LIFE
from tests.controller.scripted_fleet import ScriptedFleet
from tests.controller.scripted_overlay import settings_of
from tests.overlay.small_overlays import inventory_of, line_of

MOVABLE = ("east.c-1.1", "east.c-1.2", "east.c-2.1")
QUICK = MemberSettings(silence_ms=2_000, return_pause_ms=2_000, batch_ms=500, retry_ms=1_000)


class AgentFleet(ScriptedFleet):
    """A fleet whose agents bring their clients to where plans in force want them."""

    def connect(self, home: str, *names: str, may_move: bool = True, **more: Any) -> None:
        for name in names:
            self.ports.clients.put(Client(name, Role.SUBSCRIBER, home, (), 0.0, self.now_ms, may_move=may_move, **more))

    def tick(self) -> None:
        super().tick()
        for plan in self.plans:
            for move in plan.moves if LIFE[plan.phase].is_in_force else ():
                self.connect(move.home_to, move.client)


def draining(*, members: MemberSettings = QUICK, dry_run: bool = False, reaches: tuple[str, ...] = ()) -> AgentFleet:
    """Return a fleet in which three subscribers of b02 may move and one stays, and b02 is being drained."""
    inventory = replace(inventory_of(line_of(5), {("b02", "b03"): 2.0}), clients_stay=True)
    fleet = AgentFleet(inventory, lambda _: [{"b02"}] * 40, settings_of(members=members, dry_run=dry_run))
    fleet.connect("b02", *MOVABLE, reaches=reaches)
    fleet.connect("b02", "s1", may_move=False, stays_because="qos_2")
    fleet.run_windows(4)
    fleet.order(OrderKind.DRAIN, "b02")
    return fleet


def test_clients_beside_agents_leave_by_name_before_the_broker_does() -> None:
    """No message is lost to them; the plan that removes the broker says how many it leaves behind, and why."""
    fleet = draining()
    fleet.run_until(MemberState.LEFT, "b02")
    emptying, leaving = fleet.plans
    assert emptying.moves == tuple(ClientMove(name, "b02", "b03") for name in MOVABLE)
    assert "b02" in emptying.brokers_target
    assert "b02" not in leaving.brokers_target
    told = "b02 leaving; subscribers that stay and are no longer served: 1 at b02 (1 qos 2)"
    assert leaving.history[0].reason == told


def test_a_broker_that_no_client_can_leave_leaves_at_once() -> None:
    """Without agents, or if they reach no other broker: waiting would change nothing."""
    fleet = draining(reaches=("b02",))
    fleet.run_until(MemberState.LEFT, "b02", windows_max=4)
    (leaving,) = fleet.plans
    assert leaving.moves == ()
    assert fleet.plans[-1].history[0].reason.endswith("no longer served: 4 at b02 (1 qos 2, 3 other)")


def test_a_broker_whose_emptying_nobody_approves_leaves_after_a_while() -> None:
    """In a dry run the order itself needs no approval, but the moves of clients do."""
    fleet = draining(members=replace(QUICK, drain_ms_max=60_000), dry_run=True)
    fleet.run_windows(8)
    assert fleet.member("b02").state is MemberState.LEAVING
    assert [len(plan.moves) for plan in fleet.plans] == [3]
    fleet.run_until(MemberState.LEFT, "b02", windows_max=80)
    assert fleet.plans[-1].history[0].reason.endswith("no longer served: 4 at b02 (1 qos 2, 3 other)")


@pytest.mark.parametrize("kind", [TreeKind, RingKind, ScotKind])
def test_a_broker_waits_only_if_its_kind_of_overlay_can_empty_it(kind: type[OverlayKind[Any, Any, Any]]) -> None:
    """Elsewhere no plan would come."""
    assert (kind.evacuate_subscribers is not OverlayKind.evacuate_subscribers) == kind.EMPTIES_BROKERS
