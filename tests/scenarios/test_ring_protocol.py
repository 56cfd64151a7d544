"""On a ring, too, the transition loses nothing, repeats nothing and keeps order, whatever the order of events."""

from __future__ import annotations

from collections.abc import Iterable

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from regraft.producers.brokers.broker_messages import Effect
from regraft.producers.brokers.ring_broker_state import RingState
from regraft.producers.brokers.ring_change import RingChange
from regraft.producers.brokers.ring_messages import GrantFlush
from regraft.producers.brokers.ring_tables import RingTables, TopicEntry
from regraft.producers.brokers.ring_trees import TopicTrees
from tests.scenarios.any_order_deeds import DEATHS, RingDeeds
from tests.scenarios.any_order_run import RING, Driver, RunSpec, count_faults, finish, gentle_spec, run
from tests.scenarios.any_order_schedules import SCHEDULES

DYING = set(DEATHS)


def happens(count: str, seeds: Iterable[int]) -> bool:
    """Return True if the count is above 0 in one of these gentle runs, which continue after faults."""
    return any(count_faults(gentle_spec(seed, RING))[count] for seed in seeds)


@pytest.mark.parametrize("seed", range(300))
def test_random_runs_keep_the_promise(seed: int) -> None:
    """Random rings, traffic, churn, plans, faults and orders: all that is owed comes once in order, and nothing blocks.

    :func:`tests.scenarios.any_order_run.finish` has the requirements at the end of each run.
    """
    result = run(RunSpec.of(seed, RING))
    assert result.failure is None, f"{result.failure}; do it again: python -m tests.scenarios.search --seed {seed}"


@pytest.mark.parametrize("seed", [seed for seed in range(1000, 1500) if DYING & {*RunSpec.of(seed, RING).features}])
def test_random_runs_keep_the_promise_while_brokers_die(seed: int) -> None:
    """They die in every phase, several at once, and during repairs; only what a death excuses is lost."""
    result = run(RunSpec.of(seed, RING))
    assert result.failure is None, f"{result.failure}; do it again: python -m tests.scenarios.search --seed {seed}"


@pytest.mark.parametrize("seed", range(40))
def test_runs_without_faults_keep_the_promise(seed: int) -> None:
    """The runs that judge the safeguards below break nothing while these are in place."""
    result = run(gentle_spec(seed, RING, is_hasty=seed % 2 == 1, kills=seed % 3 == 0))
    assert result.failure is None, f"{result.failure}"


def test_runs_exercise_what_they_claim() -> None:
    """Random runs do execute plans, move users, abort some, kill controllers and owe deliveries."""
    runs = [run(RunSpec.of(seed, RING, ("early", "return"))).counts for seed in range(40)]
    counts = {name: sum(one[name] for one in runs) for name in runs[0]}
    assert counts["plans"] >= 40
    assert counts["aborted"] >= 3
    assert counts["users_moved"] >= 30
    assert counts["kills"] >= 20
    assert counts["owed"] >= 1000
    assert max(one["held_max"] for one in runs) >= 2


def test_without_the_hold_order_breaks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Delivering new-epoch notifications before the old epoch has ended breaks order: the hold is needed."""
    monkeypatch.setattr(RingState, "may_get_older", lambda *_: False)
    assert happens("out_of_order", range(40))


def test_without_waiting_for_the_old_home_order_breaks(monkeypatch: pytest.MonkeyPatch) -> None:
    """A new home that does not wait until the old one has handed over everything breaks order at moved users."""

    def by_own_tree(self: RingState, notification: object, subscription: str) -> bool:
        self.epochs()[0].awaited.pop(subscription, None)
        return False

    monkeypatch.setattr(RingState, "may_get_older", by_own_tree)
    assert happens("out_of_order", range(60))


def test_without_a_flush_before_leaving_notifications_are_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    """A broker that leaves a topic's tree at once loses what was published before its last subscription ended."""

    def at_once(self: TopicTrees, tables: RingTables, entry: TopicEntry) -> list[Effect]:
        if entry.is_joined and entry.flushing is None and entry.ended_here:
            entry.flushing = frozenset(entry.ended_here)
            return self.end_flush(tables, GrantFlush(tables.epoch, self.broker, entry.topic))
        return leave(self, tables, entry)

    leave = TopicTrees.consider_leaving
    monkeypatch.setattr(TopicTrees, "consider_leaving", at_once)
    assert happens("lost", range(20))


def test_without_waiting_for_all_to_be_prepared_notifications_are_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    """A broker that reports prepared before its new trees are established loses notifications."""
    monkeypatch.setattr(RingChange, "is_ready_to_switch", lambda *_: True)
    assert happens("lost", range(200, 240))


class RingMachine(RuleBasedStateMachine):
    """Hypothesis drives the same ring step by step, so a failure shrinks to few steps."""

    @initialize(seed=st.integers(0, 2**16), brokers=st.integers(2, 5), schedule=st.sampled_from(SCHEDULES))
    def build(self, seed: int, brokers: int, schedule: str) -> None:
        """Set up brokers with publishers and users."""
        self.driver = Driver(RunSpec(seed, RING, schedule, ("again", "kill", "late"), brokers, 0, 0.0, schedule))
        assert isinstance(self.driver.deeds, RingDeeds)
        self.deeds = self.driver.deeds
        self.driver.do(self.deeds.first_actions())

    @rule()
    def publish(self) -> None:
        """Publish something."""
        self.driver.do(self.deeds.publish())

    @rule()
    def connect(self) -> None:
        """Connect a user, possibly again."""
        self.driver.do(self.deeds.connect())

    @rule()
    def change(self) -> None:
        """Change the topics of a user."""
        self.driver.do(self.deeds.change())

    @rule()
    def disconnect(self) -> None:
        """Disconnect a user, perhaps for a moment."""
        self.driver.do(self.deeds.disconnect())

    @rule(ids=st.integers(0, 3), moves=st.integers(0, 2))
    def plan(self, ids: int, moves: int) -> None:
        """Begin a plan."""
        overlay, rng = self.driver.overlay, self.driver.rng
        self.driver.do([("plan", overlay.random_changes(ids, rng), overlay.random_moves(moves, 0.05, rng))])

    @rule(effects=st.integers(1, 6))
    def die(self, effects: int) -> None:
        """Kill the controller after an effect and start another."""
        self.driver.do([("advance", effects), ("kill",), ("restart",)])

    @rule()
    def send_late(self) -> None:
        """Repeat an earlier command or answer."""
        self.driver.do(self.deeds.send_late())

    @rule(steps=st.integers(1, 40))
    def run(self, steps: int) -> None:
        """Let events happen."""
        for _ in range(steps):
            self.driver.do([("restart",)])
            if not self.driver.move():
                break

    def teardown(self) -> None:
        """Settle and check everything."""
        if hasattr(self, "driver"):
            finish(self.driver)


TestRingMachine = RingMachine.TestCase
TestRingMachine.settings = settings(
    max_examples=60, stateful_step_count=40, deadline=None, suppress_health_check=list(HealthCheck)
)
