"""Brokers that leave an overlay although clients stay there, in any order of events."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from regraft.overlay.inventory.inventory import Inventory
from regraft.overlay.overlay_configuration import BrokerChange
from regraft.overlay.tree.tree_configuration import TreeConfiguration
from regraft.producers.brokers.broker_messages import ClientDropped, Notification
from regraft.producers.emulator.emulated_broker import EmulatedBroker
from regraft.producers.emulator.judge_losses import HOME_HAS_LEFT, LossJudge
from regraft.producers.emulator.place_overlay import place_overlay
from regraft.producers.virtual_overlay import VirtualSettings
from regraft.schemas.command import Command, CommandPhase
from regraft.schemas.member import MemberState
from regraft.schemas.order import Order, OrderKind
from regraft.virtual_runs.virtual_loop import VirtualLoop
from tests.scenarios import any_order_run
from tests.scenarios.any_order_account import Key
from tests.scenarios.any_order_members import LEAVE
from tests.scenarios.any_order_run import SCOT, TREE, RunSpec
from tests.scenarios.any_order_scot import AnyOrderScot, scot_inventory
from tests.scenarios.any_order_tree import AnyOrderTree, tree_inventory
from tests.scenarios.test_brokers_that_come import ACTING
from tests.scenarios.test_closed_loop import WORKLOAD

LEFT_BEHIND_SHARE = 0.6  # The share of plans that leave the clients of leaving brokers behind.
SEEDS = range(25)


class LeftBehind(AnyOrderTree):
    """Plans may leave any client behind: nothing published in an overlay without its broker is owed to it, or by it."""

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self.may_drop = True
        self.ended: set[tuple[str, str]] = set()  # Publisher, and the broker that has ended its stay.

    def _see(self, broker: EmulatedBroker, effect: Any) -> None:
        if isinstance(effect, ClientDropped) and effect.is_over:
            self.ended.add((effect.client, broker.name))
        super()._see(broker, effect)

    def staying_at(self, broker: str) -> list[str]:
        """Return no client: none keeps its broker in the overlay."""
        return []

    def with_leaving(
        self, changes: Sequence[Any], moves: Sequence[Sequence[str]], rng: random.Random, mistaken_share: float = 0.0
    ) -> Sequence[Sequence[str]]:
        """Return the moves, often with none away from leaving brokers."""
        if rng.random() >= LEFT_BEHIND_SHARE:
            return super().with_leaving(changes, moves, rng, mistaken_share)
        leaving = {change[1] for change in changes if change[0] == LEAVE}
        return tuple(move for move in moves if not leaving.intersection(move[1:]))

    def is_excused(self, key: Key, subscription: str) -> bool:
        """Return True also for what reached its home when that, or the subscription's, was no longer in the overlay."""
        if key not in self.stamped:
            is_late = (key[0], self.account.published[key].home) in self.ended
            return is_late or super().is_excused(key, subscription)
        epoch = self.stamped[key][0]
        is_left = self.serving(epoch, subscription) not in self.overlay_of(epoch).brokers
        return is_left or super().is_excused(key, subscription)


class LeftBehindScot(LeftBehind, AnyOrderScot):
    """The same on a structured cyclic overlay."""


def staying(inventory: Inventory) -> Inventory:
    return replace(inventory, clients_stay=True)


@pytest.fixture(autouse=True)
def left_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let clients stay in all runs."""
    monkeypatch.setattr(any_order_run, "AnyOrderTree", LeftBehind)
    monkeypatch.setattr(any_order_run, "AnyOrderScot", LeftBehindScot)
    monkeypatch.setattr(any_order_run, "tree_inventory", lambda *given: staying(tree_inventory(*given)))
    monkeypatch.setattr(any_order_run, "scot_inventory", lambda *given: staying(scot_inventory(*given)))


@pytest.mark.parametrize("overlay", [TREE, SCOT])
@pytest.mark.parametrize("seed", SEEDS)
def test_nothing_of_the_old_epoch_is_lost_to_clients_left_behind(overlay: str, seed: int) -> None:
    spec = RunSpec.of(seed, overlay)
    spec = replace(spec, features=tuple(dict.fromkeys((*spec.features, "members"))))
    result = any_order_run.run(spec)
    assert result.failure is None, result.failure


@pytest.mark.parametrize("clients_stay", [False, True])
def test_only_what_an_overlay_without_its_home_carries_is_not_for_a_subscription(clients_stay: bool) -> None:
    """And only where clients stay: elsewhere a broker that leaves its clients behind has made an error."""
    line = TreeConfiguration.of(0, "abc", [("a", "b"), ("b", "c")])
    target = line.replaced(1, [("b", "c")], [], change=BrokerChange(left=frozenset("c")))
    judge = LossJudge(line, clients_stay=clients_stay)
    for subscription in "bc":
        judge.place(f"s-{subscription}", subscription)
    for phase in (CommandPhase.PREPARE, CommandPhase.ACTIVATE):
        removed = (("b", "c"),)
        judge.note_command(
            Command("p", phase, "c", 0, 1, links_removed=removed, digest=target.digest, brokers_left=("c",))
        )
    reasons = {
        (epoch, subscription): judge.reason_of(Notification("p", 0, 0, "a", epoch, {}, 1), subscription)
        for epoch in (0, 1)
        for subscription in ("s-b", "s-c")
    }
    assert reasons.pop((1, "s-c")) == (HOME_HAS_LEFT if clients_stay else None)
    assert not any(reasons.values())


def test_a_drain_where_clients_stay_ends_with_one_plan_that_names_their_number() -> None:
    """What the new overlay carries before their stays have ended is not for them, and nothing else is missing."""
    inventory = staying(place_overlay(16, 8, random.Random(1)))
    loop = VirtualLoop(inventory, WORKLOAD, replace(ACTING, seed=1), VirtualSettings(seed=1))
    loop.run_for(20_000)
    clients = loop.virtual.overlay.subscribers._subscribers, loop.virtual.overlay.publishers._publishers
    homes = [{one.home for one in each.values()} for each in clients]
    drained = min(homes[0] & homes[1])
    now_ms = int(loop.virtual.now_ms)
    loop.ports.orders.records.append(Order(drained, OrderKind.DRAIN, "ann", "new disks", now_ms))
    loop.run_for(60_000)
    assert loop.loop.state.fleet.members[drained].state is MemberState.LEFT
    (plan,) = [one for one in loop.plans if one.is_membership]
    reason = plan.history[0].reason
    assert reason.startswith(f"{drained} leaving; subscribers that stay and are no longer served: ")
    assert reason.endswith(f" at {drained}")
    assert loop.finish()
    loop.virtual.finish()
    account = loop.virtual.ledger.snapshot()
    assert account.is_clean, account
    assert account.lost_by_reason == {HOME_HAS_LEFT: account.lost}
