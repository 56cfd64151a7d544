"""The transition loses nothing, repeats nothing and keeps order, whatever order messages and failures come in."""

import random

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from controller.transition import TransitionLimits
from producers.broker_core import BrokerCore
from producers.broker_messages import Effect, Notification
from producers.routing_tables import RoutingTables
from schemas.command import Command
from schemas.plan import PlanPhase
from tests.scenarios.any_order import AnyOrderOverlay

PATIENT = TransitionLimits(prepare_ms=10**9, activate_ms=10**9, drain_ms=10**9, retire_ms=10**9, resend_ms=300)
HASTY = TransitionLimits(prepare_ms=120, activate_ms=10**9, drain_ms=10**9, retire_ms=10**9, resend_ms=150)
CLEAN = {"lost": 0, "repeated": 0, "unexpected": 0, "out_of_order": 0}


def assert_clean(overlay: AnyOrderOverlay) -> None:
    """Check the account and that every broker ends in the one configuration that the plans say."""
    counts = overlay.account()
    assert {name: counts[name] for name in CLEAN} == CLEAN
    for core in overlay.cores.values():
        assert core.epoch == overlay.configuration.epoch
        assert sorted(core.tables) == [core.epoch]
        assert core.tables[core.epoch].configuration == overlay.configuration
        assert core.transition is None
        assert not core.held
        known = {name: advertised.home for name, advertised in core.advertisements.items()}
        assert known == {name: publisher.home for name, publisher in overlay.publishers.items()}


def assert_no_leak(overlay: AnyOrderOverlay) -> None:
    """End every subscription and check that no broker keeps anything of it."""
    for name, subscription in overlay.subscriptions.items():
        if subscription.cancelled_ms is None:
            overlay.cancel_named(name)
    overlay.run_quiet()
    for core in overlay.cores.values():
        assert not core.locals
        assert not core.tables[core.epoch].entries
        assert len(core.tables[core.epoch].index) == 0


def random_run(seed: int, *, limits: TransitionLimits, kill_share: float) -> AnyOrderOverlay:
    """Run random traffic, churn, swaps, moves of publishers and controller deaths, then let everything settle."""
    rng = random.Random(seed)
    overlay = AnyOrderOverlay(rng.randint(2, 9), rng, limits)
    for _ in range(3):
        overlay.advertise()
    deeds = {
        overlay.publish: 6,
        overlay.subscribe: 2,
        overlay.cancel: 1,
        overlay.advertise: 0.1,
        overlay.withdraw: 0.03,
        lambda: overlay.plan_changes(rng.randint(0, 3), rng.randint(0, 3)): 0.7,
    }
    overlay.run_randomly(deeds, kill_share)
    return overlay


@pytest.mark.parametrize("seed", range(150))
def test_random_runs_lose_and_repeat_nothing(seed: int) -> None:
    """Random overlays, traffic, churn, swaps, moves and controller deaths: lost, repeated, out of order stay 0."""
    overlay = random_run(seed, limits=PATIENT, kill_share=0.5)
    assert_clean(overlay)
    assert_no_leak(overlay)


@pytest.mark.parametrize("seed", range(60))
def test_prepares_that_time_out_leave_no_trace(seed: int) -> None:
    """A prepare that times out is aborted without trace, and later plans still work."""
    overlay = random_run(seed, limits=HASTY, kill_share=0.3)
    assert_clean(overlay)
    assert_no_leak(overlay)
    aborted = {plan.epoch_to for plan in overlay.plans.values() if plan.phase is PlanPhase.ABORTED}
    assert not aborted & overlay.stamped_epochs


def test_runs_exercise_what_they_claim() -> None:
    """The random runs above do carry out plans, move publishers, abort some, kill controllers and owe deliveries."""
    runs = [random_run(seed, limits=limits, kill_share=0.5) for seed in range(12) for limits in (PATIENT, HASTY)]
    phases = [plan.phase for run in runs for plan in run.plans.values()]
    assert phases.count(PlanPhase.VERIFYING) >= 10
    assert phases.count(PlanPhase.ABORTED) >= 3
    assert sum(publisher.moves for run in runs for publisher in run.publishers.values()) >= 10
    assert sum(run.kills for run in runs) >= 5
    assert sum(run.account()["owed"] for run in runs) >= 500


def test_without_the_hold_order_breaks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Delivering new-epoch notifications before the old epoch has ended breaks order: the hold is needed."""
    monkeypatch.setattr(BrokerCore, "_must_hold", lambda *_: False)
    runs = [random_run(seed, limits=PATIENT, kill_share=0.0) for seed in range(40)]
    assert sum(run.account()["out_of_order"] for run in runs) > 0


def test_without_the_old_home_in_the_hold_order_breaks(monkeypatch: pytest.MonkeyPatch) -> None:
    """A broker that waits for END from a moved publisher's new home, not from its old one, breaks order."""

    def by_new_home(self: BrokerCore, tables: RoutingTables, notification: Notification) -> bool:
        home = notification.home
        return self.epoch > tables.epoch if home == self.broker else tables.flow_has_ended(home)

    monkeypatch.setattr(BrokerCore, "_flow_has_ended", by_new_home)
    runs = [random_run(seed, limits=PATIENT, kill_share=0.0) for seed in range(60)]
    assert sum(run.account()["out_of_order"] for run in runs) > 0


def test_without_waiting_for_publishers_to_leave_notifications_are_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    """An old home that activates with notifications of a moving publisher still in its queue loses them."""
    monkeypatch.setattr(BrokerCore, "_see_leave", lambda *_: [])
    switch = BrokerCore._activate

    def at_once(self: BrokerCore, command: Command, now_ms: float) -> list[Effect]:
        effects = switch(self, command, now_ms)
        under_way = self.transition
        if under_way is not None and under_way.leaving and not under_way.is_active:
            effects += self._switch(under_way, now_ms)
        return effects

    monkeypatch.setattr(BrokerCore, "_activate", at_once)
    runs = [random_run(seed, limits=PATIENT, kill_share=0.0) for seed in range(60)]
    assert sum(run.account()["lost"] for run in runs) > 0


def test_without_waiting_for_all_to_be_prepared_notifications_are_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    """A broker that says it is prepared before its subscriptions have settled loses notifications."""
    monkeypatch.setattr(BrokerCore, "_is_ready", lambda *_: True)
    runs = [random_run(seed, limits=PATIENT, kill_share=0.0) for seed in range(60)]
    assert sum(run.account()["lost"] for run in runs) > 0


class TransitionMachine(RuleBasedStateMachine):
    """Hypothesis chooses what clients, brokers, links and the controller do next."""

    @initialize(seed=st.integers(0, 2**32), brokers=st.integers(2, 8))
    def begin(self, seed: int, brokers: int) -> None:
        self.overlay = AnyOrderOverlay(brokers, random.Random(seed), HASTY)
        self.overlay.advertise()
        self.overlay.advertise()

    @rule(count=st.integers(1, 60))
    def move(self, count: int) -> None:
        for _ in range(count):
            self.overlay.move()

    @rule(count=st.integers(1, 5))
    def publish(self, count: int) -> None:
        for _ in range(count):
            self.overlay.publish()

    @rule()
    def subscribe(self) -> None:
        self.overlay.subscribe()

    @rule()
    def cancel(self) -> None:
        self.overlay.cancel()

    @rule()
    def advertise(self) -> None:
        self.overlay.advertise()

    @rule(swaps=st.integers(0, 4), moves=st.integers(0, 3))
    def plan(self, swaps: int, moves: int) -> None:
        self.overlay.plan_changes(swaps, moves)

    @rule()
    def withdraw(self) -> None:
        self.overlay.withdraw()

    @rule()
    def kill_controller(self) -> None:
        self.overlay.kill_controller()

    @rule()
    def restart_controller(self) -> None:
        self.overlay.restart_controller()

    @rule()
    def tick(self) -> None:
        self.overlay.tick()

    @rule(broker=st.integers(0, 7))
    def slow_broker(self, broker: int) -> None:
        """A broker stops hearing commands for a while."""
        self.overlay.deafen(self.overlay.brokers[broker % len(self.overlay.brokers)])

    @rule()
    def all_hear(self) -> None:
        self.overlay.undeafen()

    @invariant()
    def nothing_is_repeated_or_out_of_order(self) -> None:
        if hasattr(self, "overlay"):
            counts = self.overlay.account()
            assert (counts["repeated"], counts["unexpected"], counts["out_of_order"]) == (0, 0, 0)

    def teardown(self) -> None:
        if hasattr(self, "overlay"):
            self.overlay.undeafen()
            self.overlay.run_quiet()
            assert_clean(self.overlay)
            assert_no_leak(self.overlay)


TransitionMachine.TestCase.settings = settings(
    max_examples=60, stateful_step_count=60, deadline=None, suppress_health_check=list(HealthCheck)
)
TestTransitionMachine = TransitionMachine.TestCase
