"""More than one controller at work on one overlay: nothing is lost, repeated or out of order, and plans continue."""

from __future__ import annotations

import random

import pytest

from regraft.overlay.tree.tree_configuration import TreeConfiguration
from regraft.producers.brokers.broker_messages import AdvertiseRequest, ArriveRequest, CancelRequest, SubscribeRequest
from regraft.schemas.command import CommandPhase
from regraft.schemas.plan import ClientMove, PlanPhase
from regraft.schemas.plan_life import LIFE
from tests.scenarios.any_order_leaders import RIVALS, STRANGER, SUCCESSORS, TWIN
from tests.scenarios.any_order_run import RING, TREE, Driver, RunResult, RunSpec, finish, run
from tests.scenarios.any_order_schedules import UNIFORM
from tests.scenarios.step_by_step import ALL, StepByStep

OVERLAYS = (TREE, RING)
MOVING = [phase for phase, facts in LIFE.items() if facts.is_moving]
SEEDS = range(3)
RUNS = 25
MOVES_MAX = 5_000


class TwoLeaders:
    """An overlay with clients and a plan in some phase; a test drives each controller."""

    def __init__(self, overlay: str, rival: str, seed: int, *features: str) -> None:
        spec = RunSpec(seed, overlay, UNIFORM, (rival, *features), 4, 0, 0.0, UNIFORM)
        self.driver = Driver(spec)
        self.overlay = self.driver.overlay
        self.rng = random.Random(seed)
        self.driver.do(self.driver.deeds.first_actions())
        for _ in range(4):
            self.driver.do(self.driver.deeds.want_more())
        self.let_happen(200)
        self.planned = self.overlay.random_changes(2, self.rng), self.overlay.random_moves(2, 0.0, self.rng)

    @property
    def phases(self) -> list[PlanPhase]:
        """The phases that have been stored; one in which everything is done at once ends with the next."""
        return [phase for _, phase in self.overlay.controller.shelf.phases]

    def let_happen(self, moves: int) -> None:
        """Let this many events happen, and publishers publish meanwhile."""
        for _ in range(moves):
            if self.rng.random() < 0.03:
                self.driver.do(self.driver.deeds.publish())
            if not self.driver.move():
                self.driver.do([("wait", self.overlay.controller.limits.resend_ms)])

    def come_to(self, phase: PlanPhase) -> None:
        """Let the leader's plan reach a phase, with some of that phase's work done."""
        self.driver.do([("plan", *self.planned), ("advance", 0)])
        if phase is PlanPhase.ABORTING:
            self.overlay.controller.runner.cancel("no more", self.overlay.now_ms)
            self.driver.do([("advance", 0)])
        for _ in range(MOVES_MAX):
            if phase in self.phases:
                break
            self.let_happen(1)
        assert phase in self.phases
        self.let_happen(self.rng.randint(0, 12))

    def end(self) -> None:
        """Require what every run must satisfy: all is delivered, a further plan is executed, nothing is left."""
        finish(self.driver)


@pytest.mark.parametrize("overlay", OVERLAYS)
@pytest.mark.parametrize("phase", MOVING)
@pytest.mark.parametrize("seed", SEEDS)
def test_a_suspended_leader_resumes_in_each_phase(overlay: str, phase: PlanPhase, seed: int) -> None:
    """Another one has taken over from the same log; the first continues as if nothing had happened, and is refused."""
    run = TwoLeaders(overlay, SUCCESSORS, seed, "late")
    run.come_to(phase)
    run.driver.do([("take_over",)])
    run.let_happen(run.rng.randint(0, 60))
    run.driver.do([("rival", 0, "wake"), ("rival", 0, "advance", 0)])
    run.let_happen(100)
    first, second = run.overlay.controllers
    run.end()
    assert first.is_out or first.is_idle
    assert (second.term, second.is_out) == (2, False)
    assert {plan.term for plan in run.overlay.plans} == {2}


@pytest.mark.parametrize("overlay", OVERLAYS)
@pytest.mark.parametrize("phase", MOVING)
def test_a_dead_leader_is_succeeded_in_each_phase(overlay: str, phase: PlanPhase) -> None:
    """Its successor brings the plan to its end, with the same digest."""
    for seed in SEEDS:
        run = TwoLeaders(overlay, SUCCESSORS, seed)
        run.come_to(phase)
        (begun,) = run.overlay.plans
        run.driver.do([("kill",), ("take_over",)])
        run.end()
        plan = run.overlay.plans[0]
        assert (plan.plan, plan.begun_by) == (begun.plan, begun.begun_by)
        assert not LIFE[plan.phase].is_moving
        if LIFE[phase].is_committed:
            assert LIFE[plan.phase].is_in_force


@pytest.mark.parametrize("overlay", OVERLAYS)
@pytest.mark.parametrize("rival", [TWIN, STRANGER])
@pytest.mark.parametrize("phase", MOVING)
def test_two_controllers_that_do_not_know_each_other_execute_at_most_one_plan(
    overlay: str, rival: str, phase: PlanPhase
) -> None:
    """The second one chooses the very same change for the same epoch, whatever the first one has done."""
    for seed in SEEDS:
        run = TwoLeaders(overlay, rival, seed)
        run.come_to(phase)
        first, second = run.overlay.controllers
        run.driver.do([("rival", 1, "plan", *run.planned), ("rival", 1, "advance", 0)])
        run.let_happen(200)
        in_force = [plan for one in (first, second) for plan in one.log.in_force]
        assert len(in_force) <= 1
        run.end()


@pytest.mark.parametrize("overlay", OVERLAYS)
@pytest.mark.parametrize("rival", RIVALS)
def test_no_order_of_two_controllers_breaks_the_promise(overlay: str, rival: str) -> None:
    """At random, as in the search, with deaths, repeats, failing stores and prepares that take too long."""
    runs: list[RunResult] = []
    for seed in range(RUNS):
        spec = RunSpec(
            seed, overlay, UNIFORM, ("kill", "late", "store", "hasty", rival), 2 + seed % 5, 300, 0.3, UNIFORM
        )
        runs.append(run(spec))
    assert [f"seed {one.spec.seed}: {one.failure}" for one in runs if one.failure] == []
    counts = {name: sum(one.counts[name] for one in runs) for name in ("plans", "refused_plan", "refused_term")}
    assert counts["plans"] >= RUNS
    assert counts["refused_plan" if rival == TWIN else "refused_term"] > 0


@pytest.mark.parametrize("ends", [False, True])
def test_a_subscription_that_two_plans_for_one_epoch_put_at_two_homes_leaves_nothing_behind(ends: bool) -> None:
    """One plan brings s to b1, where that of a rival has already announced it from b0; both are aborted."""
    overlay = StepByStep(TreeConfiguration.of(0, ("b0", "b1", "b2"), [("b0", "b1"), ("b1", "b2")]))
    target = TreeConfiguration.of(1, overlay.brokers, [("b0", "b2"), ("b1", "b2")])
    overlay.feed("b1", None, AdvertiseRequest("p", ALL))
    overlay.run()
    overlay.feed("b0", None, SubscribeRequest("s", "s", ALL))
    overlay.command("b1", CommandPhase.PREPARE, target, (ClientMove("s", "b0", "b1"),))
    for broker in ("b0", "b2"):
        overlay.command(broker, CommandPhase.PREPARE, target)
    overlay.run()
    overlay.feed("b1", None, ArriveRequest(1, "s", "s", ALL))
    if ends:
        overlay.feed("b1", None, CancelRequest("s"))
    overlay.run()
    for broker in overlay.brokers:
        overlay.command(broker, CommandPhase.ABORT, target)
    overlay.run()
    overlay.publish("b1", "p", symbol="A")
    overlay.run()
    assert overlay.got == [("s", "p", 0)]
    assert overlay.cores["b1"].routing.interests.locals == {}
