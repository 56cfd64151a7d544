"""The any-order overlay as a tree: subscribers with one subscription each, moving publishers, exchanged links."""

from __future__ import annotations

import contextlib
import itertools
import random
from collections.abc import Sequence
from typing import Any

import msgspec
import networkx as nx
import numpy as np

from regraft.controller.settings.controller_settings import TransitionLimits
from regraft.controller.state.plan_log import PlanLog
from regraft.overlay.inventory.inventory import Inventory
from regraft.overlay.overlay_configuration import link
from regraft.overlay.tree.build_tree import cycle_links, random_tree
from regraft.overlay.tree.tree_configuration import TreeConfiguration
from regraft.producers.brokers.broker_messages import SubscriberMoves, SubscriberTaken
from regraft.producers.brokers.match_content import Filter, Operator, Predicate
from regraft.producers.emulator.emulate_overlay import EmulatedBroker
from regraft.schemas.plan import ClientMove, HomeMove, Plan
from tests.scenarios.any_order import Action, AnyOrderOverlay
from tests.scenarios.any_order_account import Account, BrokenPromiseError
from tests.scenarios.any_order_controller import new_plan
from tests.scenarios.any_order_members import BROKERS_MIN, JOIN, LEAVE, MISTAKEN_SHARE

SYMBOLS = ("A", "B", "C")
EVERYBODY = "*"  # Begins the client's name in a move of all subscribers of a broker.


def tree_inventory(broker_count: int, rng: random.Random) -> Inventory:
    """Return brokers with a random tree; costs do not matter."""
    brokers = tuple(f"b{number:02d}" for number in range(broker_count))
    cost = np.ones((broker_count, broker_count)) - np.eye(broker_count)
    return Inventory(brokers, np.ones(broker_count), cost, broker_count, random_tree(brokers, broker_count, rng))


class AnyOrderTree(AnyOrderOverlay):
    """Brokers of a tree and their clients."""

    kinds = SYMBOLS
    publishers_move = True
    subscribers_move = False

    def __init__(
        self,
        inventory: Inventory,
        limits: TransitionLimits,
        account: Account | None = None,
        rival: str = "",
        spares: Sequence[str] = (),
    ) -> None:
        super().__init__(inventory, limits, account, rival, spares)
        self.served: dict[str, list[tuple[int, str]]] = {}  # By subscription: the epoch and the next home since then.
        self.going: dict[str, tuple[int, str]] = {}  # By subscription: the epoch and home of its move.

    def do_subscribe(self, name: str, home: str, symbol: str, price_max: int) -> bool:
        """Connect a subscriber; with a price above 0 it wants only what is cheaper."""
        if name in self.account.subscriptions or home in self.dead:
            return False
        filter_ = self.filter_of(symbol)
        if price_max > 0:
            filter_ += (Predicate("price", Operator.LT, float(price_max)),)
        self.subscribe(name, home, filter_)
        return True

    def do_cancel(self, name: str) -> bool:
        """Disconnect a subscriber."""
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

    def moving_from(self, broker: str) -> list[str]:
        """Return the publishers at home at a broker and, if they move, the subscriptions."""
        publishers = [name for name in sorted(self.publisher_homes) if self.publishers.home_of(name) == broker]
        return publishers + (self._subscriptions_at(broker) if self.subscribers_move else [])

    def staying_at(self, broker: str) -> list[str]:
        """Return the subscriptions at home at a broker, unless they move."""
        return [] if self.subscribers_move else self._subscriptions_at(broker)

    def _subscriptions_at(self, broker: str) -> list[str]:
        return [name for name in self.open_names if self.subscribers._subscribers[name].home == broker]

    def ends_of(self, clients: Sequence[str]) -> list[Action]:
        """Return the actions that end subscriptions."""
        return [("cancel", name) for name in clients]

    # --- plans -------------------------------------------------------------------------------------------------

    def plan_of(self, log: PlanLog, changes: Sequence[Any], moves: Sequence[ClientMove]) -> Plan | None:
        """Return a plan with these exchanges of links."""
        return tree_plan(log, changes, moves)

    def random_changes(self, count: int, rng: random.Random) -> Sequence[Any]:
        """Return random exchanges of one link for another, after joins and leaves if brokers come and go."""
        tree, coming_and_going = self.controller.log.present, []
        assert isinstance(tree, TreeConfiguration)
        for change in self.random_joins_and_leaves(rng):
            with contextlib.suppress(ValueError):
                tree = changed_tree(tree, change)
                coming_and_going.append(change)
        return (*coming_and_going, *exchanges_in(tree, count, rng))

    def place_of(self, broker: str, rng: random.Random) -> Any:
        """Return a broker to which a joining one is linked, often one to which its earlier incarnation was."""
        old = [name for name in self.controller.log.present.neighbours.get(broker, ()) if name in self.names]
        return rng.choice(old if old and rng.random() < 0.5 else self.names)

    def random_moves(self, count: int, mistaken_share: float, rng: random.Random) -> Sequence[Sequence[str]]:
        """Return publishers and their next homes."""
        living = self.names if len(self.names) > 1 else ()
        names = sorted(name for name in self.publisher_homes if self.publishers.home_of(name) in living)
        moves = []
        for name in sorted(rng.sample(names, min(count, len(names)))):
            home = self.publisher_homes[name] if rng.random() >= mistaken_share else rng.choice(self.names)
            moves.append((name, home, rng.choice([broker for broker in living if broker != home])))
        return (*moves, *(self._moves_of_subscribers(living, mistaken_share, rng) if self.subscribers_move else ()))

    def with_leaving(
        self,
        changes: Sequence[Any],
        moves: Sequence[Sequence[str]],
        rng: random.Random,
        mistaken_share: float = MISTAKEN_SHARE,
    ) -> Sequence[Sequence[str]]:
        """Return the moves, sometimes with one of all clients at a leaving broker, or at any broker."""
        found = super().with_leaving(changes, moves, rng, mistaken_share)
        if not self.subscribers_move or rng.random() < 0.5:
            return found
        leaving = [change[1] for change in changes if change[0] == LEAVE]
        homes = [name for name in self.names if name not in leaving]
        emptied = {*leaving, *rng.sample(self.names, rng.randint(0, 1))}
        if set(self.names) - emptied and rng.random() < 0.5:  # No client is named.
            found = [move for move in found if move[0] not in self.account.subscriptions]
        pairs = [(name, [home for home in homes if home != name]) for name in sorted(emptied)]
        return (*found, *((EVERYBODY + name, name, rng.choice(others)) for name, others in pairs if others))

    def _moves_of_subscribers(
        self, living: Sequence[str], mistaken_share: float, rng: random.Random
    ) -> Sequence[Sequence[str]]:
        """Return subscriptions and their next homes, occasionally an ending one, or one with a wrong present home."""
        ended = [name for name in self.account.subscriptions if name not in self.open_names][-3:]
        homes = {name: self.subscribers._subscribers[name].home for name in self.open_names}
        homes |= {name: self.subscription_homes[name] for name in ended if rng.random() < 0.1}
        names = sorted(name for name, home in homes.items() if home in living)
        moves = []
        for name in sorted(rng.sample(names, min(rng.randint(0, 4), len(names)))):
            home = homes[name] if rng.random() >= mistaken_share else rng.choice(self.names)
            others = [broker for broker in living if broker != home]
            if others:
                moves.append((name, home, rng.choice(others)))
        return tuple(moves)

    # --- repairs -----------------------------------------------------------------------------------------------

    def repaired(self, log: PlanLog, lost: Sequence[str], *change: Any) -> TreeConfiguration | None:
        """Return the tree without the lost brokers and with exchanged links, or None if that is not a tree."""
        removed, added = change
        before = log.present
        assert isinstance(before, TreeConfiguration)
        links = {pair for pair in before.links if not {*lost}.intersection(pair)} - {link(*pair) for pair in removed}
        links |= {link(*pair) for pair in added}
        try:
            return TreeConfiguration.of(log.epoch_next, set(before.brokers).difference(lost), links)
        except ValueError:
            return None

    def with_joined(self, target: Any, name: str, place: Any) -> TreeConfiguration:
        """Return the tree with a broker as a leaf at another one, or at the first if that one is gone."""
        peer = place if place in target.brokers else target.brokers[0]
        return changed_tree(target, (JOIN, name, peer))

    def random_repair(self, lost: Sequence[str], rng: random.Random) -> Action:
        """Return random links between the fragments, occasionally with links exchanged as well."""
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
        """Return the only path through the tree."""
        return [self.overlay_of(epoch).path(home, self.serving(epoch, subscription))]

    def serving(self, epoch: int, subscription: str) -> str:
        """Return the broker at which a subscription is in an epoch, or to which its plan moves it."""
        at = self.subscription_homes[subscription]
        for since, place in self.served.get(subscription, []):
            at = place if since <= epoch else at
        since, place = self.going.get(subscription, (-1, ""))
        return place if since == epoch else at

    def _see(self, broker: EmulatedBroker, effect: Any) -> None:
        if isinstance(effect, SubscriberMoves):
            self.going[effect.subscription] = effect.epoch, effect.home_to
        elif isinstance(effect, SubscriberTaken):
            self.served.setdefault(effect.subscription, []).append((effect.epoch, broker.name))
        super()._see(broker, effect)

    # --- checks ------------------------------------------------------------------------------------------------

    def leave_all(self) -> list[Action]:
        """Return the actions that end all subscriptions and publishers."""
        actions: list[Action] = [("cancel", name) for name in self.open_names]
        return actions + [("unadvertise", name) for name in sorted(self.publisher_homes)]

    def check_at_rest(self) -> None:
        """Check that brokers know all publishers' homes and await no answer, and homes know their subscriptions."""
        homes = {name: home for name in self.publisher_homes if (home := self.publishers.home_of(name)) is not None}
        for name, core in self.cores.items():
            known = {one: advertised.home for one, advertised in core.routing.interests.advertisements.items()}
            if known != (homes if name in self.names else {}):
                raise BrokenPromiseError("state of publishers", f"{name} knows {known}, connected are {homes}")
            waited_for = {one.publisher: one.unanswered for one in core.routing.interests.advertisements.values()}
            if core.routing.interests.unconfirmed_advertisements or any(waited_for.values()):
                raise BrokenPromiseError("answer awaited at rest", f"{name} waits for {waited_for}")
        served = {one for core in self.cores.values() for one in core.routing.interests.locals}
        if served != set(self.open_names):
            raise BrokenPromiseError("leak of locals", f"{sorted(served.symmetric_difference(self.open_names))}")


def tree_plan(log: PlanLog, changes: Sequence[Any], moves: Sequence[ClientMove]) -> Plan | None:
    """Return a plan with these changes of the tree one after the other, as far as they are possible."""
    before = log.present
    assert isinstance(before, TreeConfiguration)
    target = TreeConfiguration.of(log.epoch_next, before.brokers, before.links)
    emptied = homes_moved(moves)
    moves = [move for move in moves if not move.client.startswith(EVERYBODY)]
    for change in changes:
        with contextlib.suppress(ValueError):
            target = changed_tree(target, change)
    if (target.brokers, target.links) == (before.brokers, before.links) and not (moves or emptied):
        return None
    plan = msgspec.structs.replace(new_plan(log, target, moves), subscribers_moved=emptied)
    return target.as_target(plan, before)


def homes_moved(moves: Sequence[ClientMove]) -> tuple[HomeMove, ...]:
    """Return the brokers of which all subscribers move."""
    return tuple(sorted(HomeMove(one.home_from, one.home_to) for one in moves if one.client.startswith(EVERYBODY)))


def changed_tree(tree: TreeConfiguration, change: Sequence[Any]) -> TreeConfiguration:
    """Return the tree with one link exchanged, (removed, added), or with one broker more or less.

    (JOIN, broker, peer) joins as a leaf; the neighbours of (LEAVE, broker) are linked in a line. Raises ValueError if
    that is impossible.
    """
    if change[0] == JOIN:
        return TreeConfiguration.of(tree.epoch, {*tree.brokers, change[1]}, [*tree.links, (change[1], change[2])])
    if change[0] == LEAVE:
        if change[1] not in tree.brokers or len(tree.brokers) <= BROKERS_MIN:
            raise ValueError(f"{change[1]} cannot leave {len(tree.brokers)} brokers")
        links = [pair for pair in tree.links if change[1] not in pair]
        links += itertools.pairwise(tree.neighbours[change[1]])
        return TreeConfiguration.of(tree.epoch, set(tree.brokers) - {change[1]}, links)
    removed, added = change
    return TreeConfiguration.of(tree.epoch, tree.brokers, (set(tree.links) - {tuple(removed)}) | {tuple(added)})


def random_exchanges(log: PlanLog, count: int, rng: random.Random) -> Sequence[Any]:
    """Return random exchanges of one link for another, one after the other, as (removed, added)."""
    assert isinstance(log.present, TreeConfiguration)
    return exchanges_in(log.present, count, rng)


def exchanges_in(tree: TreeConfiguration, count: int, rng: random.Random) -> Sequence[Any]:
    """Return random exchanges of one link of a tree for another, one after the other, as (removed, added)."""
    exchanges = []
    for _ in range(count):
        pairs = [link(a, b) for a, b in itertools.combinations(tree.brokers, 2) if link(a, b) not in tree.links]
        if not pairs:
            break
        added = rng.choice(pairs)
        removed = rng.choice(cycle_links(tree, added))
        tree = changed_tree(tree, (removed, added))
        exchanges.append((removed, added))
    return tuple(exchanges)
