"""The transition loses nothing, repeats nothing and keeps order, whatever the order of messages and failures."""

from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from regraft.producers.brokers.broker_messages import Effect, Notification
from regraft.producers.brokers.epoch_change import switch
from regraft.producers.brokers.tree_change import TreeChange
from regraft.producers.brokers.tree_interests import TreeInterests
from regraft.producers.brokers.tree_tables import RoutingTables
from regraft.producers.brokers.two_epochs import TwoEpochBroker
from regraft.schemas.command import Command
from tests.scenarios.any_order_deeds import TreeDeeds
from tests.scenarios.any_order_run import TREE, Driver, RunSpec, count_faults, finish, gentle_spec, run
from tests.scenarios.any_order_schedules import SCHEDULES


def happens(count: str, seeds: Iterable[int]) -> bool:
    """Return True if the count is above 0 in one of these gentle runs, which continue after faults."""
    return any(count_faults(gentle_spec(seed, TREE))[count] for seed in seeds)


@pytest.mark.parametrize("seed", range(300))
def test_random_runs_keep_the_promise(seed: int) -> None:
    """Random trees, traffic, churn, plans, faults and orders: all that is owed comes once in order, and nothing blocks.

    :func:`tests.scenarios.any_order_run.finish` has the requirements at the end of each run.
    """
    result = run(RunSpec.of(seed, TREE))
    assert result.failure is None, f"{result.failure}; do it again: python -m tests.scenarios.search --seed {seed}"


@pytest.mark.parametrize("seed", range(40))
def test_runs_without_faults_keep_the_promise(seed: int) -> None:
    """The runs that judge the safeguards below break nothing while these are in place."""
    result = run(gentle_spec(seed, TREE, is_hasty=seed % 2 == 1, kills=seed % 3 == 0))
    assert result.failure is None, f"{result.failure}"


def test_runs_exercise_what_they_claim() -> None:
    """Random runs do execute plans, move publishers, abort some, kill controllers and owe deliveries."""
    runs = [run(RunSpec.of(seed, TREE, ("early", "between", "return"))).counts for seed in range(40)]
    counts = {name: sum(one[name] for one in runs) for name in runs[0]}
    assert counts["plans"] >= 40
    assert counts["aborted"] >= 3
    assert counts["publishers_moved"] >= 40
    assert counts["waited"] >= 5
    assert counts["kills"] >= 20
    assert counts["owed"] >= 1000
    assert max(one["held_max"] for one in runs) >= 2


def test_without_the_hold_order_breaks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Delivering new-epoch notifications before the old epoch has ended breaks order: the hold is needed."""
    monkeypatch.setattr(TreeChange, "must_hold", lambda *_: False)
    assert happens("out_of_order", range(40))


def test_without_the_old_home_in_the_hold_order_breaks(monkeypatch: pytest.MonkeyPatch) -> None:
    """A broker that waits for END from a moved publisher's new home, not from its old one, breaks order."""

    def by_new_home(self: TreeChange, tables: RoutingTables, notification: Notification) -> bool:
        home = notification.home
        return self._state.epoch > tables.epoch if home == self.broker else tables.flow_has_ended(home)

    monkeypatch.setattr(TreeChange, "flow_has_ended", by_new_home)
    assert happens("out_of_order", range(60))


def test_without_waiting_for_publishers_to_leave_notifications_are_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    """An old home that activates with notifications of a moving publisher still in its queue loses them."""
    monkeypatch.setattr(TreeChange, "note_leave", lambda *_: [])
    activate = TwoEpochBroker._activate

    def at_once(self: TwoEpochBroker[Any, Any], command: Command) -> list[Effect]:
        effects = activate(self, command)
        under_way = self.state.under_way
        if under_way is not None and under_way.leaving and not under_way.is_active:
            effects += switch(self.state, self.routing.change, under_way)
        return effects

    monkeypatch.setattr(TwoEpochBroker, "_activate", at_once)
    assert happens("lost", range(60))


def test_without_waiting_for_all_to_be_prepared_notifications_are_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    """A broker that reports prepared before its subscriptions have settled loses notifications."""
    monkeypatch.setattr(TreeInterests, "is_ready", lambda *_: True)
    assert happens("lost", range(60))


class TransitionMachine(RuleBasedStateMachine):
    """Hypothesis chooses what clients, brokers, links and the controller do next."""

    @initialize(seed=st.integers(0, 2**32), brokers=st.integers(2, 8), schedule=st.sampled_from(SCHEDULES))
    def begin(self, seed: int, brokers: int, schedule: str) -> None:
        self.driver = Driver(RunSpec(seed, TREE, schedule, ("kill", "hasty", "late"), brokers, 0, 0.0, schedule))
        assert isinstance(self.driver.deeds, TreeDeeds)
        self.deeds = self.driver.deeds
        self.driver.do([*self.deeds.advertise(), *self.deeds.advertise()])

    @rule(count=st.integers(1, 60))
    def move(self, count: int) -> None:
        for _ in range(count):
            self.driver.move()

    @rule(count=st.integers(1, 3))
    def publish(self, count: int) -> None:
        for _ in range(count):
            self.driver.do(self.deeds.publish())

    @rule()
    def subscribe(self) -> None:
        self.driver.do(self.deeds.subscribe())

    @rule()
    def cancel(self) -> None:
        self.driver.do(self.deeds.cancel())

    @rule()
    def advertise(self) -> None:
        self.driver.do(self.deeds.advertise())

    @rule(swaps=st.integers(0, 4), moves=st.integers(0, 3))
    def plan(self, swaps: int, moves: int) -> None:
        overlay, rng = self.driver.overlay, self.driver.rng
        self.driver.do([("plan", overlay.random_changes(swaps, rng), overlay.random_moves(moves, 0.05, rng))])

    @rule()
    def withdraw(self) -> None:
        self.driver.do(self.deeds.end_publisher())

    @rule()
    def kill_controller(self) -> None:
        self.driver.do([("kill",)])

    @rule(effects=st.integers(1, 6))
    def kill_controller_behind_an_effect(self, effects: int) -> None:
        self.driver.do([("advance", effects)])

    @rule()
    def restart_controller(self) -> None:
        self.driver.do([("restart",)])

    @rule()
    def send_late(self) -> None:
        """Repeat an earlier command or answer."""
        self.driver.do(self.deeds.send_late())

    @rule()
    def tick(self) -> None:
        self.driver.do([("wait", 50), ("advance", 0)])

    @rule(broker=st.integers(0, 7))
    def slow_broker(self, broker: int) -> None:
        """Let a broker receive no commands for a while."""
        self.driver.schedule.deaf = self.driver.overlay.names[broker % len(self.driver.overlay.names)]

    @rule()
    def all_receive(self) -> None:
        self.driver.schedule.deaf = ""

    def teardown(self) -> None:
        if hasattr(self, "driver"):
            finish(self.driver)


TransitionMachine.TestCase.settings = settings(
    max_examples=60, stateful_step_count=60, deadline=None, suppress_health_check=list(HealthCheck)
)
TestTransitionMachine = TransitionMachine.TestCase
