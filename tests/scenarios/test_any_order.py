"""The any-order overlay itself: its account detects faults, its runs can be repeated, and its faults do occur."""

import hashlib
import itertools
import math
import os
import random
import subprocess
import sys
from dataclasses import replace

import pytest

from regraft.controller.settings.controller_settings import TransitionLimits
from regraft.overlay.tree.tree_configuration import TreeConfiguration
from regraft.producers.brokers.broker_messages import CancelRequest, Notification, SubscribeRequest
from regraft.producers.brokers.match_content import Filter, Operator, Predicate
from regraft.producers.brokers.tree_change import TreeChange
from regraft.producers.brokers.two_epochs import TwoEpochBroker
from regraft.producers.emulator.starting_point import core_of
from regraft.schemas.plan import PlanPhase
from tests.scenarios import search
from tests.scenarios.any_order import KEPT_EMPTY, OF_CLIENTS, OF_TABLES, PATIENT
from tests.scenarios.any_order_account import Account, AccountRules, BrokenPromiseError
from tests.scenarios.any_order_controller import AWAY, UNACKNOWLEDGED, UP
from tests.scenarios.any_order_ring import random_ring_inventory
from tests.scenarios.any_order_run import OVERLAYS, SCOT, TREE, RunSpec, gentle_spec, run
from tests.scenarios.any_order_schedules import PRIORITIES, QUICK, SCHEDULES, WEIGHTED
from tests.scenarios.any_order_tree import AnyOrderTree, tree_inventory
from tests.scenarios.core_parts import parts_of
from tests.scenarios.model.check_endings import OF_A_CORE
from tests.scenarios.model.check_endings import OF_TABLES as OF_TABLES_OF_THE_MODEL
from tests.scenarios.shrink_run import RunShrinker, trace_of

ALL: Filter = (Predicate("symbol", Operator.EQ, "A"),)
INVENTORIES = [tree_inventory(3, random.Random(0)), random_ring_inventory(3, random.Random(0))]


def notification(sequence: int, publish_ms: float) -> Notification:
    return Notification("p", sequence, publish_ms, "b00", 0, {"symbol": "A"}, 1)


def open_account(rules: AccountRules | None = None) -> Account:
    """Return an account with a subscription that was requested at 1 and confirmed at 5."""
    account = Account(rules)
    account.begin_stay("p")
    account.now_ms = 1
    account.ask("s", ALL)
    account.confirm("s", ALL, 5)
    return account


def small_tree(seed: int = 0, limits: TransitionLimits = PATIENT) -> AnyOrderTree:
    return AnyOrderTree(tree_inventory(3, random.Random(seed)), limits)


def test_an_owed_and_undelivered_notification_is_lost() -> None:
    account = open_account()
    account.publish(notification(0, 6))
    account.publish(notification(1, 7))
    account.deliver(notification(0, 6), "s", 8)
    assert account.lost() == [(("p", 1), "s")]
    with pytest.raises(BrokenPromiseError, match="lost: 1, first p/1"):
        account.check_nothing_lost()


def test_an_excused_drop_is_no_loss() -> None:
    account = open_account(AccountRules(excuses=frozenset({"client_dropped"})))
    account.publish(notification(0, 6))
    account.drop(notification(0, 6), "client_dropped")
    account.check_nothing_lost()


@pytest.mark.parametrize(("sequences", "kind"), [((0, 0), "repeated"), ((1, 0), "out_of_order")])
def test_repeats_and_disorder_end_a_run_at_once(sequences: tuple[int, int], kind: str) -> None:
    account = open_account()
    for sequence in (0, 1):
        account.publish(notification(sequence, 6 + sequence))
    account.deliver(notification(sequences[0], 6), "s", 9)
    with pytest.raises(BrokenPromiseError, match=kind):
        account.deliver(notification(sequences[1], 6), "s", 9)


def test_notifications_around_confirmation_and_end_may_be_delivered_or_not() -> None:
    """They are neither owed nor wrong, but come only once, in order, and if they match."""
    account = Account()
    account.publish(notification(0, 1))
    account.now_ms = 2
    account.ask("s", ALL)
    account.publish(notification(1, 3))
    account.confirm("s", ALL, 4)
    account.cancel("s", 5)
    account.publish(notification(2, 6))
    account.deliver(notification(0, 1), "s", 7)
    account.deliver(notification(2, 6), "s", 8)
    account.check_nothing_lost()
    assert account.counts["concurrent"] == 2
    with pytest.raises(BrokenPromiseError, match="repeated"):
        account.deliver(notification(0, 1), "s", 9)
    with pytest.raises(BrokenPromiseError, match="out_of_order"):
        account.deliver(notification(1, 3), "s", 9)


def test_a_strict_account_reports_those_as_unexpected() -> None:
    account = Account(AccountRules(tolerates_concurrent=False))
    account.now_ms = 1
    account.ask("s", ALL)
    account.publish(notification(0, 3))
    account.confirm("s", ALL, 5)
    with pytest.raises(BrokenPromiseError, match="unexpected"):
        account.deliver(notification(0, 3), "s", 6)


def test_order_across_stays_is_required_on_request() -> None:
    """A publisher that ends and returns elsewhere may overtake itself; within a stay it may not."""
    for orders_stays in (False, True):
        account = open_account(AccountRules(orders_stays=orders_stays))
        account.publish(notification(0, 6))
        account.begin_stay("p")
        account.publish(notification(1, 7))
        account.deliver(notification(1, 7), "s", 8)
        if orders_stays:
            with pytest.raises(BrokenPromiseError, match="out_of_order"):
                account.deliver(notification(0, 6), "s", 9)
        else:
            account.deliver(notification(0, 6), "s", 9)
            assert account.counts["out_of_order_over_stays"] == 1


def test_a_sequence_number_is_used_once() -> None:
    account = open_account()
    account.publish(notification(0, 6))
    with pytest.raises(BrokenPromiseError, match="sequence used twice"):
        account.publish(notification(0, 7))


def test_an_unknown_effect_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """New effects of brokers must be passed to the overlay, or a run would silently ignore them."""
    overlay = small_tree()
    overlay.apply(("advertise", "p0", "b00", "A"))
    monkeypatch.setattr(TwoEpochBroker, "handle", lambda *_: [object()])
    with pytest.raises(NotImplementedError, match="b00 wants object"):
        overlay.apply(("serve", "b00"))


def test_a_controller_killed_after_any_effect_continues_its_plan() -> None:
    """After the first, the second ... effect of a plan, a restarted controller knows what was stored."""
    phases = set()
    for kill_behind in range(1, 6):
        overlay = small_tree()
        assert overlay.apply(("plan", (), ())) is False
        assert overlay.apply(("plan", overlay.random_changes(1, random.Random(1)), ()))
        assert overlay.apply(("advance", kill_behind))
        assert overlay.controller.runner is None
        assert len(overlay.sent_commands) == min(kill_behind - 1, 3)  # After the record, before the event.
        assert overlay.apply(("restart",))
        assert overlay.controller.log.moving is not None
        phases.add(overlay.controller.log.moving.phase)
    assert phases == {PlanPhase.PREPARING}


def test_nothing_is_sent_while_plans_cannot_be_stored() -> None:
    overlay = small_tree()
    for state, stored in ((AWAY, 0), (UNACKNOWLEDGED, 1), (UP, 1)):
        overlay.apply(("store", state))
        overlay.apply(("plan", overlay.random_changes(1, random.Random(1)), ()))
        overlay.apply(("advance", 0))
        assert len(overlay.plans) == stored
        assert len(overlay.sent_commands) == (3 if state == UP else 0)


@pytest.mark.parametrize("overlay", OVERLAYS)
@pytest.mark.parametrize("schedule", SCHEDULES)
def test_every_schedule_executes_plans(overlay: str, schedule: str) -> None:
    runs = [run(RunSpec.of(seed, overlay, ("early", "return", "living", "remote"), schedule)) for seed in range(8)]
    assert [one.kind for one in runs if overlay == SCOT and one.kind] == []
    assert sum(one.counts["plans"] for one in runs) >= 8
    assert sum(one.counts["owed"] for one in runs) >= 100


def test_a_failing_run_is_shortened(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the hold order breaks; a few actions are enough to reproduce it."""
    monkeypatch.setattr(TreeChange, "must_hold", lambda *_: False)
    runs = (run(gentle_spec(seed, TREE)) for seed in range(200))
    failing = next(one for one in runs if one.kind == "out_of_order")
    shortest = RunShrinker(failing, math.inf).shrink()
    assert shortest.kind == "out_of_order"
    assert len(shortest.actions) <= min(len(failing.actions) / 4, 100)
    assert trace_of(shortest)[-1].strip().startswith("out_of_order")


def test_the_search_reports_its_findings(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """A clean seed gives exit code 0; a removed safeguard gives 1, the seed, the schedule and a trace."""
    options = ["--seed", "1", "--overlay", TREE, "--schedule", PRIORITIES, "--without", "early,return,end"]
    assert search.main(options) == 0
    monkeypatch.setattr(TreeChange, "is_drained", lambda *_: False)
    assert search.main([*options, "--shrink-seconds", "5"]) == 1
    shown = capsys.readouterr().out
    assert "repeat: --seed 1 --overlay tree --without early,return,end\nschedule priorities" in shown
    assert "stuck" in shown


def digest_of_runs() -> str:
    """Return a digest of everything that happens in a few runs."""
    runs = [run(RunSpec.of(seed, overlay), is_traced=True) for seed in range(12) for overlay in OVERLAYS]
    return hashlib.sha256("\n".join(line for one in runs for line in one.overlay.trace or ()).encode()).hexdigest()


def test_attributes_that_must_be_empty_exist() -> None:
    """A renamed part of a core or of its tables would count as empty."""
    cores = [core_of(one.brokers[0], one.bootstrap, 0) for one in INVENTORIES]
    known = {name for core in cores for part in parts_of(core) for name in vars(part)}
    assert known >= {*KEPT_EMPTY, *OF_CLIENTS, *OF_A_CORE}
    of_tables = {name for core in cores for tables in core.state.tables.values() for name in vars(tables)}
    assert of_tables >= {*OF_TABLES, *OF_TABLES_OF_THE_MODEL}


def test_equal_seeds_are_equal_runs_in_every_process() -> None:
    """Brokers are deterministic: the order in which a process iterates over sets has no effect."""
    ask = "from tests.scenarios.test_any_order import digest_of_runs; print(digest_of_runs())"
    digests = {
        subprocess.run(
            [sys.executable, "-c", ask], env=os.environ | {"PYTHONHASHSEED": seed, "PYTHONPATH": os.curdir},
            check=True, capture_output=True, text=True,
        ).stdout
        for seed in ("1", "2", "3")
    }  # fmt: skip
    assert len(digests) == 1


def test_a_death_excuses_only_what_had_not_left_the_dead_broker() -> None:
    """By the path in the tree: what the next broker has taken must arrive, and so must what took another path."""
    line = tree_inventory(4, random.Random(0))
    line = replace(line, bootstrap=TreeConfiguration.of(0, line.brokers, itertools.pairwise(line.brokers)))
    overlay = AnyOrderTree(line, PATIENT)
    overlay.apply(("subscribe", "near", "b01", "A", 0))
    overlay.apply(("subscribe", "far", "b03", "A", 0))
    overlay.account.published = {("p", number): notification(number, 6) for number in range(3)}
    overlay.overlays = {0: line.bootstrap}
    overlay.stamped = {("p", 0): (0, "b00"), ("p", 1): (0, "b00")}
    overlay.taken = {("p", 0): {"b00", "b01", "b02"}, ("p", 1): {"b00", "b01", "b02", "b03"}}
    assert not overlay.is_excused(("p", 0), "far")
    overlay.apply(("die", "b02"))
    assert overlay.is_excused(("p", 0), "far")
    assert not overlay.is_excused(("p", 1), "far")
    assert not overlay.is_excused(("p", 0), "near")
    assert not overlay.is_excused(("p", 2), "far")
    overlay.apply(("die", "b00"))
    assert overlay.is_excused(("p", 2), "far")


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_living_brokers_are_declared_dead_and_come_back_while_clients_are_far_away(overlay: str) -> None:
    """Under a quick controller and slow links, too; most runs readmit a broker that never died."""
    specs = [RunSpec.of(seed, overlay, schedule=(QUICK, WEIGHTED)[seed % 2]) for seed in range(6)]
    runs = [run(replace(spec, features=("living", "remote"), broker_count=4, step_count=500)) for spec in specs]
    assert [one.kind for one in runs if one.kind] == []
    assert sum(one.counts["misjudged"] for one in runs) >= 6
    assert sum(one.counts["came_back"] for one in runs) >= 6


def test_a_notification_counts_as_published_when_it_reaches_its_home() -> None:
    """A subscription that ended while it was on its way is not owed it; requests of one client keep their order."""
    overlay = small_tree()
    overlay.is_remote = True
    for action in (("advertise", "p0", "b00", "A"), ("ask", "p0", "b00"), ("subscribe", "s", "b00", "A", 0)):
        assert overlay.apply(action)
    assert overlay.asks.keys() == {("s", "b00")}
    overlay.account.confirm("s", overlay.filter_of("A"), overlay.now_ms)
    overlay.publishers._publishers["p0"].has_published = overlay.publishers._publishers["p0"].may_publish = True
    overlay.publisher_filters["p0"] = overlay.filter_of("A")
    assert overlay.apply(("publish", "p0", 1))
    assert overlay.account.counts["owed"] == 1
    assert overlay.apply(("cancel", "s"))
    assert overlay.apply(("ask", "p0", "b00"))
    assert overlay.account.counts["owed"] == 0
    assert [type(message) for _, message in overlay.asks["s", "b00"]] == [SubscribeRequest, CancelRequest]
