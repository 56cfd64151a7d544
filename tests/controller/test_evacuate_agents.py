"""An order to evacuate a broker whose clients stay, through the whole loop: review, transition, verification."""

from dataclasses import replace

from regraft.schemas.client import Client, Role
from regraft.schemas.event import EventKind
from regraft.schemas.order import OrderKind
from regraft.schemas.plan import ClientMove, PlanPhase
from tests.controller.execute.test_review_plans import give, overlay_of, waiting
from tests.controller.scripted_overlay import ScriptedOverlay
from tests.overlay.small_overlays import inventory_of, line_of

MOVABLE = ("east.c1.1", "east.c1.2", "east.c2.1")


def connect(overlay: ScriptedOverlay, home: str, *names: str, may_move: bool = True) -> None:
    for name in names:
        because = "" if may_move else "queue_group"
        overlay.ports.clients.put(
            Client(name, Role.SUBSCRIBER, home, (), 0.0, overlay.now_ms, may_move=may_move, stays_because=because)
        )


def evacuating(*, dry_run: bool) -> ScriptedOverlay:
    """Return an overlay with three subscribers that may move at b02 and one that stays, and b02 in maintenance."""
    overlay = overlay_of(
        lambda _: [{"b02"}] * 40,
        replace(inventory_of(line_of(5), {("b02", "b03"): 2.0}), clients_stay=True),
        dry_run=dry_run,
    )
    connect(overlay, "b02", *MOVABLE)
    connect(overlay, "b02", "s1", may_move=False)
    connect(overlay, "b01", "east.c3.1")
    give(overlay, OrderKind.MAINTAIN, "b02", evacuate=True)
    return overlay


def test_those_that_may_move_leave_in_one_plan_and_no_other_follows() -> None:
    """The plan waits for approval, its commands name them, and it is neither missed nor rolled back."""
    overlay = evacuating(dry_run=True)
    overlay.run_windows(4)
    plan = waiting(overlay)
    moves = tuple(ClientMove(name, "b02", "b03") for name in MOVABLE)
    assert plan.moves == moves
    commands = overlay.ports.commands.sent
    give(overlay, OrderKind.APPROVE, plan.plan)
    while overlay.loop.step(overlay.now_ms):
        pass
    assert {command.moves for command in commands} == {moves}
    overlay.answer_commands()
    overlay.run_windows(1)
    connect(overlay, "b03", *MOVABLE)
    overlay.run_windows(12)
    (done,) = overlay.plans
    assert done.phase is PlanPhase.COMPLETED
    assert [proposal.gain_observed_per_s for proposal in done.proposals] == [0.0]  # Nothing is delivered at b03.
    assert not overlay.events_of(EventKind.GAIN_MISSED)
    (started,) = overlay.events_of(EventKind.PLAN_STARTED)
    assert "3 clients move (east.c1.1 b02 -> b03, east.c1.2 b02 -> b03, east.c2.1 b02 -> b03)" in started


def test_the_view_says_how_many_subscribers_of_each_broker_may_move() -> None:
    """Once all that may have left a broker, one that stays is still shown there."""
    overlay = evacuating(dry_run=True)
    overlay.run_windows(2)
    assert subscribers_shown(overlay) == {"b00": (0, 0), "b01": (1, 1), "b02": (4, 3), "b03": (0, 0), "b04": (0, 0)}
    connect(overlay, "b03", *MOVABLE)
    overlay.run_windows(1)
    assert subscribers_shown(overlay)["b02"] == (1, 0)
    network = overlay.ports.view.shown.network
    assert network is not None
    assert {one.broker: one.staying for one in network.brokers if one.staying} == {"b02": {"queue_group": 1}}
    (proposal,) = overlay.plans[0].proposals
    assert proposal.reason.endswith("0 in later plans, and 1 stay (1 queue group)")


def test_where_all_clients_may_move_the_view_counts_only_subscribers() -> None:
    """Plans then move them without an agent."""
    overlay = overlay_of(lambda _: [{"b02"}] * 40, inventory_of(line_of(5), {}), dry_run=True)
    connect(overlay, "b02", "s1", may_move=False)
    overlay.run_windows(2)
    assert subscribers_shown(overlay)["b02"] == (1, None)


def subscribers_shown(overlay: ScriptedOverlay) -> dict[str, tuple[int | None, int | None]]:
    """Return how many subscribers of each broker are shown, and how many of them may move."""
    network = overlay.ports.view.shown.network
    assert network is not None
    return {one.broker: (one.subscribers, one.movable) for one in network.brokers}


def test_a_restarted_controller_verifies_such_a_plan() -> None:
    """It no longer knows where subscribers came from, only where they are."""
    overlay = evacuating(dry_run=False)
    while overlay.phases != [PlanPhase.VERIFYING]:
        overlay.tick()
    overlay.ports.clients.registered = type(overlay.ports.clients.registered)()
    connect(overlay, "b03", *MOVABLE[:2])
    connect(overlay, "b04", MOVABLE[2])
    overlay.new_loop()
    overlay.run_windows(12)
    (plan,) = overlay.plans
    assert plan.phase is PlanPhase.COMPLETED
    assert not overlay.events_of(EventKind.GAIN_MISSED)
