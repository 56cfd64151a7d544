"""The predicted gain of moved subscribers is compared with later windows, and the plan rolled back if it is wrong."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from regraft.controller.kinds.overlay_kind import OVERLOAD
from regraft.overlay.inventory.prices import Prices
from regraft.producers.brokers.match_content import Filter, Operator, Predicate
from regraft.producers.virtual_overlay import VirtualSettings
from regraft.schemas.event import ENDED, EventKind
from regraft.schemas.plan import Plan, PlanPhase
from regraft.virtual_runs.virtual_loop import VirtualLoop
from tests.overlay.small_overlays import inventory_of, line_of
from tests.scenarios.test_brokers_that_come import ACTING

TREE = line_of(4)
LINKS_PER_GB = np.full((4, 4), 2.0) - np.diag([2.0] * 4)
SAME, CHEAP_AT_B03 = np.full(4, 1.0), np.array([9.0, 9.0, 9.0, 1.0])  # The cost of access at each broker.
MOVERS = ("m1", "m2")
ANY: Filter = (Predicate("of", Operator.PRESENT),)


def of(publisher: str) -> Filter:
    """Return a filter for one publisher's notifications."""
    return (Predicate("of", Operator.EQ, publisher),)


class Line:
    """A line of four brokers: publishers at both ends, natives at b00, and movers at b03 that want both."""

    def __init__(
        self,
        access_per_gb: NDArray[np.float64] = SAME,
        load_max_per_s: float | None = None,
        subscribers_reported_max: int = 0,
        users_per_plan_max: int = 500,
    ) -> None:
        chosen = replace(ACTING, seed=1, planner="pack_drop", quiet_windows_per_change=0, horizon_windows_min=2)
        chosen = replace(
            chosen, decision=replace(chosen.decision, cool_down_windows=6, users_per_plan_max=users_per_plan_max)
        )
        caps = None if load_max_per_s is None else np.array([1_000.0, 1_000.0, 1_000.0, load_max_per_s])
        prices = Prices("USD", LINKS_PER_GB, access_per_gb, message_bytes=1000.0)
        inventory = replace(inventory_of(TREE, {}, processing=0.01), prices=prices, load_max_per_s=caps)
        settings = VirtualSettings(seed=1, subscribers_reported_max=subscribers_reported_max)
        self.loop = VirtualLoop(inventory, None, chosen, settings)  # type: ignore[arg-type]
        self.overlay = self.loop.virtual.overlay
        for publisher, home in (("near", "b00"), ("far", "b03")):
            self.overlay.advertise(publisher, home, of(publisher))
        for name in ("n1", "n2"):
            self.overlay.subscribe(name, "b00", of("near"))
        for name in MOVERS:
            self.overlay.subscribe(name, "b03", ANY)
        self.loop.run_for(2_000)

    def run_until(self, is_over: Callable[[], bool], *publishers: str) -> None:
        """Let publishers publish, step by step."""
        for _ in range(1_000):
            if is_over():
                return
            for publisher in publishers * 3:
                self.overlay.publish(publisher, {"of": publisher}, 500)
            self.loop.step()
        raise AssertionError("it is not over")

    @property
    def first(self) -> Plan | None:
        """The first plan."""
        return self.loop.plans[0] if self.loop.plans else None

    def first_is(self, *phases: PlanPhase) -> bool:
        """Return True if the first plan is in one of the phases."""
        return self.first is not None and self.first.phase in phases

    def homes(self) -> set[str]:
        """The homes of the movers."""
        return {self.loop.virtual.clients.connected[name].home for name in MOVERS}

    def finish(self) -> None:
        """End the run, and check that everything arrived once."""
        assert self.loop.settle()
        self.loop.virtual.finish()
        assert self.loop.virtual.ledger.snapshot().is_clean


def test_a_false_prediction_for_moved_subscribers_is_detected_and_rolled_back() -> None:
    """They move to their publisher, which then falls silent; the traffic of the other one makes this home expensive.

    Only the subscribers that had moved go back, each by its name: the natives of the broker stay.
    """
    line = Line()
    line.run_until(lambda: line.first_is(PlanPhase.VERIFYING), "near")
    assert line.first is not None
    assert [move.home_from for move in line.first.subscribers_moved] == ["b03"]
    assert line.homes() == {"b00"}
    line.run_until(lambda: line.first_is(PlanPhase.COMPLETED), "far")
    first, undo = line.loop.plans[:2]
    assert undo.undoes == first.plan
    assert {(move.client, move.home_to) for move in undo.moves} == {(name, "b03") for name in MOVERS}
    missed = [event for event in line.loop.loop.state.events if event.kind is EventKind.GAIN_MISSED]
    assert "it is rolled back" in missed[0].text
    line.run_until(lambda: line.loop.plans[1].phase is PlanPhase.COMPLETED, "far")
    assert line.homes() == {"b03"}
    assert {line.loop.virtual.clients.connected[name].home for name in ("n1", "n2")} == {"b00"}
    line.finish()


def test_a_true_prediction_is_reported_as_observed_and_kept() -> None:
    """On the same traffic the plan saves what it predicted, each proposal its own part."""
    line = Line()
    line.run_until(lambda: line.first_is(PlanPhase.COMPLETED), "near")
    first = line.first
    assert first is not None
    assert first.cost_observed_per_s is not None
    gains = [proposal.gain_observed_per_s for proposal in first.proposals]
    saved_per_s = first.cost_before_per_s - first.cost_predicted_per_s
    assert saved_per_s > 0
    assert sum(gain or 0.0 for gain in gains) > 0.8 * saved_per_s
    assert not any(event.kind is EventKind.GAIN_MISSED for event in line.loop.loop.state.events)
    assert [plan.undoes for plan in line.loop.plans] == [""]
    line.finish()


def test_a_broker_above_its_cap_is_reported_and_relieved_at_any_cost() -> None:
    """b03 passes 30 a second and may pass 10. Access costs more at all others, so no move would save money."""
    line = Line(CHEAP_AT_B03, load_max_per_s=10.0)
    line.run_until(lambda: line.first_is(PlanPhase.COMPLETED), "near")
    first = line.first
    assert first is not None
    assert first.proposals[0].planner == OVERLOAD
    assert first.proposals[0].cost_after_per_s > first.proposals[0].cost_before_per_s
    assert ", but its limit is 10/s" in first.proposals[0].reason
    overloads = [event for event in line.loop.loop.state.events if event.kind is EventKind.BROKER_OVERLOADED]
    assert [(event.subject, ENDED in event.details) for event in overloads] == [("b03", False), ("b03", True)]
    assert "its limit is 10 (load_max_per_s)" in overloads[0].text
    assert not any(plan.undoes for plan in line.loop.plans)
    line.finish()


def test_without_a_cap_no_subscriber_moves_to_more_expensive_access() -> None:
    """The line is the same: only the cap moves the movers. The natives of b00 go to b03 for its access."""
    line = Line(CHEAP_AT_B03)
    line.run_until(lambda: line.first_is(PlanPhase.COMPLETED), "near")
    assert line.homes() == {"b03"}
    line.finish()


def test_a_single_subscriber_moves_to_its_publisher_and_back() -> None:
    """A plan may not move all eleven of b03. One of them takes most of what comes from b00: it alone moves.

    Its move is verified separately, and rolled back by its name when it gets only what the other publisher sends.
    """
    line = Line(subscribers_reported_max=2, users_per_plan_max=1)
    for number in range(10):
        line.overlay.subscribe(f"s{number}", "b03", of("far"))
    line.overlay.cancel("m2")
    line.run_until(lambda: line.first_is(PlanPhase.VERIFYING), "near", "near", "near", "far")
    first = line.first
    assert first is not None
    assert not first.subscribers_moved
    assert ("m1", "b03") in [(move.client, move.home_from) for move in first.moves]
    line.run_until(lambda: line.first_is(PlanPhase.COMPLETED), "far", "far")
    undo = line.loop.plans[1]
    assert undo.undoes == first.plan
    assert ("m1", "b03") in [(move.client, move.home_to) for move in undo.moves]
    line.run_until(lambda: line.loop.plans[1].phase is PlanPhase.COMPLETED, "far")
    assert line.loop.virtual.clients.connected["m1"].home == "b03"
    line.finish()
