"""The any-order overlay as a tree: subscribers with one subscription each, publishers that move, exchanged links."""

from __future__ import annotations

import itertools
import random
from collections.abc import Sequence
from typing import Any

import networkx as nx
import numpy as np

from controller.state.plan_log import PlanLog
from overlay.configuration import Configuration, NotATreeError, link
from overlay.inventory import Inventory
from overlay.tree import cycle_links, random_tree
from producers.brokers.match_content import Filter, Operator, Predicate
from schemas.plan import ClientMove, Plan
from tests.scenarios.any_order import Action, AnyOrderOverlay
from tests.scenarios.any_order_account import BrokenPromiseError
from tests.scenarios.any_order_controller import new_plan

SYMBOLS = ("A", "B", "C")


def tree_inventory(broker_count: int, rng: random.Random) -> Inventory:
    """Brokers with a random tree; costs are of no account."""
    brokers = tuple(f"b{number:02d}" for number in range(broker_count))
    cost = np.ones((broker_count, broker_count)) - np.eye(broker_count)
    return Inventory(brokers, np.ones(broker_count), cost, broker_count, random_tree(brokers, broker_count, rng))


class AnyOrderTree(AnyOrderOverlay):
    """Brokers of a tree and their clients."""

    kinds = SYMBOLS

    def do_subscribe(self, name: str, home: str, symbol: str, price_max: int) -> bool:
        """A subscriber comes; with a price above 0 it wants only what is cheaper."""
        if name in self.account.subscriptions or home in self.dead:
            return False
        filter_ = self.filter_of(symbol)
        if price_max > 0:
            filter_ += (Predicate("price", Operator.LT, float(price_max)),)
        self.subscribe(name, home, filter_)
        return True

    def do_cancel(self, name: str) -> bool:
        """A subscriber leaves."""
        one = self.account.subscriptions.get(name)
        if one is None or not one.is_open:
            return False
        self.cancel(name)
        return True

    def filter_of(self, what: str) -> Filter:
        """Return a filter for one symbol."""
        return (Predicate("symbol", Operator.EQ, what),)

    def content_of(self, filter_: Filter, number: int) -> dict[str, float | str]:
        """Return a price of the publisher's symbol."""
        return {"symbol": str(filter_[0].value), "price": float(number)}

    @property
    def open_names(self) -> list[str]:
        """The subscriptions that have not ended."""
        return [name for name, one in self.account.subscriptions.items() if one.is_open]

    # --- plans -------------------------------------------------------------------------------------------------

    def plan_of(self, log: PlanLog, changes: Sequence[Any], moves: Sequence[ClientMove]) -> Plan | None:
        """Return a plan with these exchanges of links."""
        return tree_plan(log, changes, moves)

    def random_changes(self, count: int, rng: random.Random) -> Sequence[Any]:
        """Return random exchanges of one link for another."""
        return random_exchanges(self.controller.log, count, rng)

    def random_moves(self, count: int, mistaken_share: float, rng: random.Random) -> Sequence[Sequence[str]]:
        """Return publishers and where they go."""
        living = self.names if len(self.names) > 1 else ()
        names = sorted(name for name in self.publisher_homes if self.publishers.home_of(name) in living)
        moves = []
        for name in sorted(rng.sample(names, min(count, len(names)))):
            home = self.publisher_homes[name] if rng.random() >= mistaken_share else rng.choice(self.names)
            moves.append((name, home, rng.choice([broker for broker in living if broker != home])))
        return tuple(moves)

    # --- repairs -----------------------------------------------------------------------------------------------

    def repaired(self, log: PlanLog, lost: Sequence[str], *change: Any) -> Configuration | None:
        """Return the tree without the lost and with other links instead of some, None when that is none."""
        removed, added = change
        before = log.present
        assert isinstance(before, Configuration)
        links = {pair for pair in before.links if not {*lost}.intersection(pair)} - {link(*pair) for pair in removed}
        links |= {link(*pair) for pair in added}
        try:
            return Configuration.of(log.epoch_next, set(before.brokers).difference(lost), links)
        except NotATreeError:
            return None

    def random_repair(self, lost: Sequence[str], rng: random.Random) -> Action:
        """Return random links between the fragments, now and then with links exchanged besides."""
        before = self.controller.log.present
        living = [name for name in before.brokers if name not in lost]
        kept = [pair for pair in before.links if not {*lost}.intersection(pair)]
        removed = rng.sample(kept, min(len(kept), rng.choice((0, 0, 0, 1, 2))))
        graph = nx.Graph(pair for pair in kept if pair not in removed)
        graph.add_nodes_from(living)
        added = []
        while len(parts := [sorted(part) for part in nx.connected_components(graph)]) > 1:
            one, other = rng.sample(sorted(parts), 2)
            added.append(link(rng.choice(one), rng.choice(other)))
            graph.add_edge(*added[-1])
        both = set(added) & set(removed)
        removed, added = [pair for pair in removed if pair not in both], [pair for pair in added if pair not in both]
        return ("repair", tuple(removed), tuple(added), self.random_moves(rng.choice((0, 0, 1, 2)), 0.0, rng))

    def ways(self, epoch: int, home: str, subscription: str) -> list[Sequence[str]]:
        """Return the one way through the tree."""
        return [self.overlay_of(epoch).path(home, self.subscription_homes[subscription])]

    # --- checks ------------------------------------------------------------------------------------------------

    def leave_all(self) -> list[Action]:
        """End all subscriptions and publishers."""
        actions: list[Action] = [("cancel", name) for name in self.open_names]
        return actions + [("unadvertise", name) for name in sorted(self.publisher_homes)]

    def check_at_rest(self) -> None:
        """Every broker knows every publisher with its home, every home its subscriptions."""
        homes = {name: home for name in self.publisher_homes if (home := self.publishers.home_of(name)) is not None}
        for name, core in self.cores.items():
            known = {one: advertised.home for one, advertised in core.routing.interests.advertisements.items()}
            if known != homes:
                raise BrokenPromiseError("state of publishers", f"{name} knows {known}, connected are {homes}")
        served = {one for core in self.cores.values() for one in core.routing.interests.locals}
        if served != set(self.open_names):
            raise BrokenPromiseError("leak of locals", f"{sorted(served.symmetric_difference(self.open_names))}")


def tree_plan(log: PlanLog, changes: Sequence[Any], moves: Sequence[ClientMove]) -> Plan | None:
    """Return a plan that exchanges (removed, added) links one after the other, as far as they leave a tree."""
    before = log.present
    assert isinstance(before, Configuration)
    links = set(before.links)
    for removed, added in changes:
        other = (links - {tuple(removed)}) | {tuple(added)}
        try:
            Configuration.of(log.epoch_next, before.brokers, other)
        except NotATreeError:
            continue
        links = other
    target = Configuration.of(log.epoch_next, before.brokers, links)
    if target.links == before.links and not moves:
        return None
    removed = sorted(set(before.links) - set(target.links))
    added = sorted(set(target.links) - set(before.links))
    return new_plan(log, target, moves, removed=removed, added=added, links_target=target.links)


def random_exchanges(log: PlanLog, count: int, rng: random.Random) -> Sequence[Any]:
    """Return random exchanges of one link for another, one after the other, as (removed, added)."""
    tree = log.present
    assert isinstance(tree, Configuration)
    exchanges = []
    for _ in range(count):
        pairs = [link(a, b) for a, b in itertools.combinations(tree.brokers, 2) if link(a, b) not in tree.links]
        if not pairs:
            break
        added = rng.choice(pairs)
        removed = rng.choice(cycle_links(tree, added))
        links = [pair for pair in tree.links if pair != removed] + [added]
        tree = Configuration.of(tree.epoch, tree.brokers, links)
        exchanges.append((removed, added))
    return tuple(exchanges)
