"""The any-order overlay as a Chord ring: users with topics that move, publishers, and IDs that are reassigned."""

from __future__ import annotations

import itertools
import random
from collections.abc import Sequence
from typing import Any

import numpy as np

from regraft.controller.settings.controller_settings import TransitionLimits
from regraft.controller.state.plan_log import PlanLog
from regraft.overlay.inventory.inventory import Inventory
from regraft.overlay.ring.ring_configuration import RingConfiguration
from regraft.producers.brokers.broker_messages import Dropped, Notification, SubscribeRequest
from regraft.producers.brokers.broker_reports import FROM_THE_DEAD
from regraft.producers.brokers.match_content import Filter
from regraft.producers.brokers.ring_messages import AttachRequest
from regraft.producers.emulator.emulate_overlay import EmulatedBroker
from regraft.producers.emulator.user_clients import topic_filter
from regraft.schemas.plan import ClientMove, Plan
from tests.scenarios.any_order import Action, AnyOrderOverlay
from tests.scenarios.any_order_account import Account, BrokenPromiseError, Key
from tests.scenarios.any_order_controller import new_plan
from tests.scenarios.any_order_members import BROKERS_MIN, JOIN, LEAVE

TOPICS = ("A", "B", "C", "D")
BITS = 6


def random_ring_inventory(broker_count: int, rng: random.Random) -> Inventory:
    """Return brokers with random IDs; costs do not matter."""
    brokers = tuple(f"b{number:02d}" for number in range(broker_count))
    ids = rng.sample(range(1 << BITS), broker_count)
    ring = RingConfiguration.of(0, BITS, dict(zip(brokers, ids, strict=True)))
    cost = np.ones((broker_count, broker_count)) - np.eye(broker_count)
    return Inventory(brokers, np.ones(broker_count), cost, broker_count, ring)


class AnyOrderRing(AnyOrderOverlay):
    """Brokers of a ring, their publishers and users."""

    kinds = TOPICS
    publishers_move = False

    def __init__(
        self,
        inventory: Inventory,
        limits: TransitionLimits,
        account: Account | None = None,
        rival: str = "",
        spares: Sequence[str] = (),
    ) -> None:
        super().__init__(inventory, limits, account, rival, spares)
        self.user_homes: dict[str, str] = {}  # The last home of each user, including those that have left.
        self.served: dict[str, list[tuple[int, str]]] = {}  # By subscription: the epoch and the home since then.
        self.taken_down: dict[Key, set[str]] = {}

    def do_connect(self, name: str, home: str, topics: Sequence[str]) -> bool:
        """Connect a user, possibly again under its name, unless it is connected."""
        if self.users.home_of(name) is not None or home in self.dead:
            return False
        self.user_homes[name] = home
        self.users.connect(name, home, topics)
        return True

    def do_topics(self, name: str, topics: Sequence[str]) -> bool:
        """Change the topics of a user."""
        if self.users.home_of(name) is None:
            return False
        self.users.change_topics(name, topics)
        return True

    def do_disconnect(self, name: str) -> bool:
        """Disconnect a user."""
        if self.users.home_of(name) is None:
            return False
        self.users.disconnect(name)
        return True

    def on_user_change(self, user: str, home: str, topics: tuple[str, ...] | None) -> None:
        """Remember the homes of users."""
        self.user_homes[user] = home

    @property
    def connected(self) -> list[str]:
        """The connected users."""
        return [name for name in self.user_homes if self.users.home_of(name) is not None]

    def filter_of(self, what: str) -> Filter:
        """Return a filter for one topic."""
        return topic_filter(what)

    def content_of(self, filter_: Filter, number: int) -> dict[str, float | str]:
        """Return content on the publisher's topic."""
        return {"topic": str(filter_[0].value)}

    def moving_from(self, broker: str) -> list[str]:
        """Return the users at home at a broker."""
        return [name for name in self.connected if self.users.home_of(name) == broker]

    def staying_at(self, broker: str) -> list[str]:
        """Return the publishers at home at a broker."""
        return [name for name in sorted(self.publisher_homes) if self.publishers.home_of(name) == broker]

    def ends_of(self, clients: Sequence[str]) -> list[Action]:
        """Return the actions that end publishers."""
        return [("unadvertise", name) for name in clients]

    # --- plans -------------------------------------------------------------------------------------------------

    def plan_of(self, log: PlanLog, changes: Sequence[Any], moves: Sequence[ClientMove]) -> Plan | None:
        """Return a plan with these exchanges of IDs."""
        return ring_plan(log, changes, moves)

    def random_changes(self, count: int, rng: random.Random) -> Sequence[Any]:
        """Return random pairs of brokers that exchange their IDs, after joins and leaves if brokers come and go."""
        coming_and_going = self.random_joins_and_leaves(rng)
        return (*coming_and_going, *self._exchanges(count, rng))

    def _exchanges(self, count: int, rng: random.Random) -> Sequence[Any]:
        return tuple(tuple(rng.sample(self.names, 2)) for _ in range(count if len(self.names) > 1 else 0))

    def place_of(self, broker: str, rng: random.Random) -> Any:
        """Return a ring ID."""
        return rng.randrange(1 << BITS)

    def random_moves(self, count: int, mistaken_share: float, rng: random.Random) -> Sequence[Sequence[str]]:
        """Return users and their next homes."""
        # A user without topics does not learn that its home has begun again outside the overlay.
        names = sorted(one for one in self.user_homes if self.users.home_of(one) not in self.returned)
        names = names if len(self.names) > 1 else []
        moves = []
        for name in sorted(rng.sample(names, min(count, len(names)))):
            home = self.users.home_of(name)
            if home is None or rng.random() < mistaken_share:
                home = rng.choice(self.names)
            moves.append((name, home, rng.choice([broker for broker in self.names if broker != home])))
        return tuple(moves)

    # --- repairs -----------------------------------------------------------------------------------------------

    def repaired(self, log: PlanLog, lost: Sequence[str], *change: Any) -> RingConfiguration | None:
        """Return the ring without the lost brokers, with pairs of IDs exchanged."""
        before = log.present
        assert isinstance(before, RingConfiguration)
        ids = {broker: number for broker, number in before.id_of.items() if broker not in lost}
        for broker, other in change[0]:
            if broker not in ids or other not in ids:
                return None
            ids[broker], ids[other] = ids[other], ids[broker]
        return RingConfiguration.of(log.epoch_next, before.bits, ids)

    def with_joined(self, target: Any, name: str, place: Any) -> RingConfiguration:
        """Return the ring with a broker at an ID, or at the next free one."""
        free = (number % (1 << BITS) for number in itertools.count(place))
        number = next(one for one in free if one not in target.ids)
        return RingConfiguration.of(target.epoch, target.bits, target.id_of | {name: number})

    def random_repair(self, lost: Sequence[str], rng: random.Random) -> Action:
        """Return a repair in which successors take over from the lost, occasionally with IDs exchanged as well."""
        changes = self._exchanges(rng.choice((0, 0, 0, 1)), rng)
        waiting = [(name, one.home) for name, one in self.users._homeless.items() if one.home in lost]
        moves = [(name, home, rng.choice(self.names)) for name, home in waiting if rng.random() < 0.5]
        return ("repair", changes, tuple(moves))

    def _enqueue(self, broker: EmulatedBroker, source: str | None, message: Any) -> None:
        if isinstance(message, SubscribeRequest):
            self.served.setdefault(message.subscription, []).append((0, broker.name))
        elif isinstance(message, AttachRequest):
            for one in message.subscriptions:
                self.served.setdefault(one.subscription, []).append((message.epoch, broker.name))
        super()._enqueue(broker, source, message)

    def ways(self, epoch: int, home: str, subscription: str) -> list[Sequence[str]]:
        """Return the path to the rendezvous and on to the home of the subscription in that epoch."""
        ring, at_home = self.overlay_of(epoch), self.serving(epoch, subscription)
        root = ring.rendezvous(str(self.account.subscriptions[subscription].filter_[0].value))
        down = ring.route(root, at_home) if at_home in ring.brokers else (root,)
        return [[*ring.route(home, root), *down[1:]]]

    def serving(self, epoch: int, subscription: str) -> str:
        """Return the broker at which a subscription is in an epoch, empty if at none."""
        aborted = self.aborted_epochs  # Such a plan has moved no users.
        served = [one for since, one in self.served[subscription] if since <= epoch and since not in aborted]
        return served[-1] if served else ""

    def note_taken(self, name: str, message: Any, effects: Sequence[Any]) -> None:
        """Remember, too, what has come down from the rendezvous."""
        super().note_taken(name, message, effects)
        is_from_the_dead = any(isinstance(one, Dropped) and one.reason == FROM_THE_DEAD for one in effects)
        if isinstance(message, Notification) and message.from_rendezvous and not is_from_the_dead:
            self.taken_down.setdefault((message.publisher, message.sequence), set()).add(name)

    def has_gone_on(self, key: Key, way: Sequence[str], at: int) -> bool:
        """Return True if the next broker has taken a notification, after the rendezvous if that has passed it on."""
        root = self.overlay_of(self.stamped[key][0]).rendezvous(str(self.account.published[key].content["topic"]))
        taken = self.taken_down.get(key, set()) if root in way[: at + 1] else self.taken[key]
        return way[at + 1] in taken

    # --- checks ------------------------------------------------------------------------------------------------

    def leave_all(self) -> list[Action]:
        """Return the actions that disconnect all users and publishers."""
        actions: list[Action] = [("disconnect", name) for name in self.connected]
        return actions + [("unadvertise", name) for name in sorted(self.publisher_homes)]

    def check_at_rest(self) -> None:
        """Check that trees are unions of routes, rendezvous know their publishers, and homes serve just their users."""
        if self.users.is_any_moving:
            raise BrokenPromiseError("forever between two homes", f"users {self.connected}")
        self._check_users()
        self._check_trees()
        ring = self.controller.log.present
        homes: dict[str, dict[str, dict[str, str]]] = {name: {} for name in self.names}
        for name, home in self.publisher_homes.items():
            if self.publishers.home_of(name) is not None:
                topic = str(self.publisher_filters[name][0].value)
                homes[ring.rendezvous(topic)].setdefault(topic, {})[name] = home
        for name, core in self.cores_inside.items():
            registered = core.state.tables[core.epoch].registered
            known = {
                topic: {who: one.home for who, one in found.items()} for topic, found in registered.items() if found
            }
            if known != homes[name]:
                raise BrokenPromiseError("state of publishers", f"{name} knows {known}, connected are {homes[name]}")

    def _check_users(self) -> None:
        for name in self.user_homes:
            home = self.users.home_of(name)
            for broker, core in self.cores.items():
                live = {one.topic for one in core.state.locals.values() if one.user == name and not one.has_ended}
                wanted = set(self.users._users[name].wants) if broker == home else set()
                if live != wanted:
                    raise BrokenPromiseError(
                        "state of users", f"{broker} serves {name} {sorted(live)}, not {sorted(wanted)}"
                    )

    def _check_trees(self) -> None:
        ring = self.controller.log.present
        for topic in TOPICS:
            entries = {
                name: core.state.tables[core.epoch].topics[topic]
                for name, core in self.cores.items()
                if topic in core.state.tables[core.epoch].topics
            }
            edges = set()
            for member in (name for name, entry in entries.items() if entry.subscriptions):
                edges |= set(itertools.pairwise(ring.route(ring.rendezvous(topic), member)))
            found = {(name, child) for name, entry in entries.items() for child in entry.children}
            if found != edges:
                raise BrokenPromiseError("state of trees", f"{topic}: {sorted(found)} instead of {sorted(edges)}")


def ring_plan(log: PlanLog, changes: Sequence[Any], moves: Sequence[ClientMove]) -> Plan | None:
    """Return a plan with these changes one after the other, as far as they are possible.

    (broker, other) exchange their IDs, (JOIN, broker, ID) joins at the next free ID, (LEAVE, broker) leaves the ring.
    """
    before = log.present
    assert isinstance(before, RingConfiguration)
    ids = dict(before.id_of)
    for change in changes:
        if change[0] == JOIN:
            free = (number % (1 << BITS) for number in itertools.count(change[2]))
            ids.setdefault(change[1], next(number for number in free if number not in ids.values()))
        elif change[0] == LEAVE:
            if len(ids) > BROKERS_MIN:
                ids.pop(change[1], None)
        elif change[0] in ids and change[1] in ids:
            ids[change[0]], ids[change[1]] = ids[change[1]], ids[change[0]]
    target = RingConfiguration.of(log.epoch_next, before.bits, ids)
    if target.id_of == before.id_of and not moves:
        return None
    return target.as_target(new_plan(log, target, moves), before)
