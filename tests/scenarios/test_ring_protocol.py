"""On a ring, too, the transition loses nothing, repeats nothing and keeps order, whatever order things come in."""

from __future__ import annotations

import itertools
import random

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from controller.transition import TransitionLimits
from producers.broker_messages import Effect
from producers.chord_core import ChordCore
from producers.chord_messages import GrantFlush
from producers.chord_tables import ChordTables, TopicEntry
from schemas.plan import PlanPhase
from tests.scenarios.any_order_ring import AnyOrderRing

PATIENT = TransitionLimits(prepare_ms=10**9, activate_ms=10**9, drain_ms=10**9, retire_ms=10**9, resend_ms=300)
HASTY = TransitionLimits(prepare_ms=120, activate_ms=10**9, drain_ms=10**9, retire_ms=10**9, resend_ms=150)
CLEAN = {"lost": 0, "repeated": 0, "unexpected": 0, "out_of_order": 0}


def assert_clean(overlay: AnyOrderRing) -> None:
    """Check the account and that every broker ends in the one configuration that the plans say."""
    counts = overlay.account()
    assert {name: counts[name] for name in CLEAN} == CLEAN
    for core in overlay.cores.values():
        assert core.epoch == overlay.ring.epoch
        assert sorted(core.tables) == [core.epoch]
        assert core.tables[core.epoch].configuration == overlay.ring
        assert core.transition is None
        assert not core.held


def assert_trees_are_unions_of_routes(overlay: AnyOrderRing) -> None:
    """Every broker of a topic's tree forwards to exactly those who follow on a route to one with a live subscription.

    Brokers that keep a place for subscriptions that have ended count as well.
    """
    for topic in ("A", "B", "C", "D"):
        entries = {
            name: core.tables[core.epoch].topics[topic]
            for name, core in overlay.cores.items()
            if topic in core.tables[core.epoch].topics
        }
        members = {name for name, entry in entries.items() if entry.subscriptions}
        edges = set()
        for member in members:
            route = overlay.ring.route(overlay.ring.rendezvous(topic), member)
            edges |= set(itertools.pairwise(route))
        assert {(name, child) for name, entry in entries.items() for child in entry.children} == edges


def assert_users_are_served(overlay: AnyOrderRing) -> None:
    """Each user's subscriptions are known at its home and nowhere else."""
    for name in overlay.user_names:
        home = overlay.users.home_of(name)
        for broker, core in overlay.cores.items():
            live = {one.topic for one in core.locals.values() if one.user == name and not one.has_ended}
            wanted = set(overlay.users._users[name].wants) if broker == home else set()
            assert live == wanted, (name, broker)


def assert_no_leak(overlay: AnyOrderRing) -> None:
    """Let all users go and check that no broker keeps anything but its publishers."""
    overlay.disconnect_all()
    overlay.run_quiet()
    assert_clean(overlay)
    published = {publisher.symbol for publisher in overlay.publishers.values()}
    for broker, core in overlay.cores.items():
        assert not core.locals
        for topic, entry in core.tables[core.epoch].topics.items():
            assert overlay.ring.rendezvous(topic) == broker
            assert topic in published
            assert not entry.children


def random_run(seed: int, *, limits: TransitionLimits, kill_share: float) -> AnyOrderRing:
    """Run random traffic, churn, reassignments, moves of users and controller deaths, then let everything settle."""
    rng = random.Random(seed)
    overlay = AnyOrderRing(rng.randint(2, 9), rng, limits)
    for _ in range(3):
        overlay.advertise()
    for _ in range(3):
        overlay.connect()
    deeds = {
        overlay.publish: 6,
        overlay.connect: 1,
        overlay.change: 2,
        overlay.disconnect: 0.5,
        overlay.advertise: 0.1,
        overlay.withdraw: 0.03,
        lambda: overlay.plan_ring(rng.choice((0, 2, 5)), rng.randint(0, 5)): 1,
    }
    overlay.run_randomly(deeds, kill_share)
    return overlay


@pytest.mark.parametrize("seed", range(150))
def test_random_runs_lose_and_repeat_nothing(seed: int) -> None:
    """Random rings, traffic, churn, reassignments, moves and controller deaths: lost, repeated, disordered stay 0."""
    overlay = random_run(seed, limits=PATIENT, kill_share=0.5)
    assert_clean(overlay)
    assert_trees_are_unions_of_routes(overlay)
    assert_users_are_served(overlay)
    assert_no_leak(overlay)


@pytest.mark.parametrize("seed", range(60))
def test_prepares_that_time_out_leave_no_trace(seed: int) -> None:
    """A prepare that times out is aborted without trace, and later plans still work."""
    overlay = random_run(seed, limits=HASTY, kill_share=0.3)
    assert_clean(overlay)
    assert_users_are_served(overlay)
    assert_no_leak(overlay)
    aborted = {plan.epoch_to for plan in overlay.plans.values() if plan.phase is PlanPhase.ABORTED}
    assert not aborted & overlay.stamped_epochs


def test_runs_exercise_what_they_claim() -> None:
    """The random runs above do carry out plans, move users and IDs, abort some, kill controllers and owe deliveries."""
    runs = [random_run(seed, limits=limits, kill_share=0.5) for seed in range(24) for limits in (PATIENT, HASTY)]
    done = [plan for run in runs for plan in run.plans.values() if plan.phase is PlanPhase.VERIFYING]
    assert len(done) >= 10
    assert sum(len(plan.id_moves) for plan in done) >= 15
    assert sum(plan.phase is PlanPhase.ABORTED for run in runs for plan in run.plans.values()) >= 3
    assert sum(run.users.counts.moved for run in runs) >= 15
    assert sum(run.kills for run in runs) >= 5
    assert sum(run.account()["owed"] for run in runs) >= 500
    assert max(core.held_count_max for run in runs for core in run.cores.values()) >= 2


def test_without_the_hold_order_breaks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Delivering new-epoch notifications before the old epoch has ended breaks order: the hold is needed."""
    monkeypatch.setattr(ChordCore, "_may_come_older", lambda *_: False)
    runs = [random_run(seed, limits=PATIENT, kill_share=0.0) for seed in range(40)]
    assert sum(run.account()["out_of_order"] for run in runs) > 0


def test_without_waiting_for_the_old_home_order_breaks(monkeypatch: pytest.MonkeyPatch) -> None:
    """A new home that does not wait until the old one has handed over all breaks order at users that moved."""

    def by_own_tree(self: ChordCore, notification: object, subscription: str) -> bool:
        self.tables[min(self.tables)].awaited.discard(subscription)
        return False

    monkeypatch.setattr(ChordCore, "_may_come_older", by_own_tree)
    runs = [random_run(seed, limits=PATIENT, kill_share=0.0) for seed in range(60)]
    assert sum(run.account()["out_of_order"] for run in runs) > 0


def test_without_a_flush_before_leaving_notifications_are_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    """A broker that leaves a topic's tree at once loses what was published before its last subscription ended."""

    def at_once(self: ChordCore, tables: ChordTables, entry: TopicEntry) -> list[Effect]:
        if entry.is_joined and entry.flushing is None and entry.ended_here:
            entry.flushing = frozenset(entry.ended_here)
            return self._end_flush(tables, GrantFlush(tables.epoch, self.broker, entry.topic))
        return leave(self, tables, entry)

    leave = ChordCore._consider_leaving
    monkeypatch.setattr(ChordCore, "_consider_leaving", at_once)
    runs = [random_run(seed, limits=PATIENT, kill_share=0.0) for seed in range(20)]
    assert sum(run.account()["lost"] for run in runs) > 0


def test_without_waiting_for_all_to_be_prepared_notifications_are_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    """A broker that says it is prepared before its new trees stand loses notifications."""
    monkeypatch.setattr(ChordCore, "_is_ready_to_switch", lambda *_: True)
    runs = [random_run(seed, limits=PATIENT, kill_share=0.0) for seed in range(40)]
    assert sum(run.account()["lost"] for run in runs) > 0


class RingMachine(RuleBasedStateMachine):
    """Hypothesis drives the same ring step by step, so that a failure shrinks to few steps."""

    @initialize(seed=st.integers(0, 2**16), brokers=st.integers(2, 5))
    def build(self, seed: int, brokers: int) -> None:
        """Set up brokers with two publishers and two users."""
        self.overlay = AnyOrderRing(brokers, random.Random(seed), PATIENT)
        for _ in range(2):
            self.overlay.advertise()
            self.overlay.connect()

    @rule()
    def publish(self) -> None:
        """Publish something."""
        self.overlay.publish()

    @rule()
    def connect(self) -> None:
        """Let a user come."""
        self.overlay.connect()

    @rule()
    def change(self) -> None:
        """Let a user want other topics."""
        self.overlay.change()

    @rule()
    def disconnect(self) -> None:
        """Let a user leave."""
        self.overlay.disconnect()

    @rule(ids=st.integers(0, 3), moves=st.integers(0, 2))
    def plan(self, ids: int, moves: int) -> None:
        """Begin a plan."""
        self.overlay.plan_ring(ids, moves)

    @rule()
    def die(self) -> None:
        """Kill the controller and start another."""
        self.overlay.kill_controller()
        self.overlay.restart_controller()

    @rule(steps=st.integers(1, 40))
    def run(self, steps: int) -> None:
        """Let things happen."""
        for _ in range(steps):
            self.overlay.restart_controller()
            if not self.overlay.move():
                break

    @invariant()
    def nothing_is_wrong_yet(self) -> None:
        """What can be said before everything has settled: nothing twice, nothing unexpected, in order."""
        if hasattr(self, "overlay"):
            counts = self.overlay.account()
            assert (counts["repeated"], counts["unexpected"], counts["out_of_order"]) == (0, 0, 0)

    def teardown(self) -> None:
        """Settle and check everything."""
        if hasattr(self, "overlay"):
            self.overlay.run_quiet()
            assert_clean(self.overlay)
            assert_users_are_served(self.overlay)
            assert_no_leak(self.overlay)


TestRingMachine = RingMachine.TestCase
TestRingMachine.settings = settings(
    max_examples=60, stateful_step_count=40, deadline=None, suppress_health_check=list(HealthCheck)
)
