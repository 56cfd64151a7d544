"""Brokers of an any-order overlay that die, what is lost with them, and the plans that repair the overlay.

In: actions ("die", "cut", "notice", "declare", "misjudge", "repair", "come_again"). Out: their effects, and for each
notification that was not delivered whether a death excuses that. A broker that dies loses its queue and what is on
links to it; what it had sent may still arrive, unless a link is cut. Neighbours notice the death after what has
arrived, each in its own time. The controllers know of a death once it is declared. A dead broker may return, empty and
outside the overlay, and be admitted by a plan in which its earlier life is lost. No broker dies twice. A living broker
that is declared dead continues as before until INSTALL puts it outside.
"""

from __future__ import annotations

import math
import random
from abc import abstractmethod
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from regraft.overlay.overlay_configuration import OverlayConfiguration
from regraft.producers.brokers.broker_messages import Dropped, Notification, Published
from regraft.producers.brokers.broker_reports import FROM_THE_DEAD
from regraft.producers.emulator.delivery_cells import DeliveryCells
from regraft.producers.emulator.emulate_overlay import EmulatedBroker
from regraft.producers.emulator.publisher_clients import ANY_HOME
from regraft.schemas.plan import ClientMove, Plan
from tests.scenarios.any_order_account import Account, Key
from tests.scenarios.any_order_controller import new_plan

Action = tuple[Any, ...]


@dataclass(frozen=True)
class PeerGone:
    """A broker's internal message that a neighbour is dead."""

    peer: str


class MortalBrokers:
    """Deaths of brokers. A part of an any-order overlay.

    ``dead`` are the dead brokers, ``declared`` those whose death the controllers know. ``returned`` have returned and
    are not in the overlay; of these the ``misjudged`` never died and do not know that they count as dead.
    ``lives_from`` gives, for every broker that died, the epoch from which it lives again. ``taken`` gives the brokers
    that took a notification from their queues, ``stamped`` its epoch and home when it was published.
    """

    account: Account
    brokers: dict[str, Any]
    start: Any
    busy: dict[str, None]
    on_links: dict[tuple[str, str], deque[Any]]
    publishers: Any
    subscribers: Any
    users: Any
    controller: Any
    met_controllers: list[Any]
    allowed: set[str]
    ending: set[str]
    clock: Any
    cancel: Callable[[str], None]
    lose_connections: Callable[[str], None]
    names: tuple[str, ...]

    def set_up_deaths(self) -> None:
        """Begin without dead brokers."""
        self.dead: dict[str, None] = {}
        self.declared: set[str] = set()
        self.returned: dict[str, None] = {}
        self.misjudged: set[str] = set()
        self.ever_misjudged: set[str] = set()
        self.readmitted: set[str] = set()  # Their present lives are those that the controllers know.
        self.lives_from: dict[str, float] = {}
        self.noticed: set[tuple[str, str]] = set()
        self.taken: dict[Key, set[str]] = {}
        self.stamped: dict[Key, tuple[int, str]] = {}
        self.subscription_homes: dict[str, str] = {}
        self.overlays: dict[int, OverlayConfiguration] = {}
        self.repairs = 0
        self.account.is_excused = self.is_excused

    # --- deaths ------------------------------------------------------------------------------------------------

    def do_die(self, name: str) -> bool:
        """Kill a broker with its queue and what is on links to it; its clients no longer have a home."""
        broker, gone = self.brokers[name], {name, *self.dead, *self.returned}  # A returned broker is outside.
        if name in self.lives_from or any(overlay <= gone for overlay in self._overlays_to_come()):
            return False
        broker.is_dead = broker.is_outside = True
        self.dead[name] = None
        self.lives_from[name] = math.inf
        broker.queue.clear()
        self.busy.pop(name, None)
        for pair in [pair for pair in self.on_links if pair[1] == name]:
            del self.on_links[pair]
        self.lose_connections(name)
        self._lose_clients(name)
        return True

    def counts_as_dead(self, name: str) -> bool:
        """Return True if the controllers consider a living broker dead, or considered its earlier life so."""
        return name in self.lives_from or name in self.declared

    def _lose_clients(self, name: str) -> None:
        here = [one for one, at in self.subscribers._subscribers.items() if name in (at.home, at.goes_to)]
        for subscription in here:
            self.cancel(subscription)
        self.publishers.lose_home(name)
        self.users.lose_home(name)

    def do_misjudge(self, name: str, is_left: int) -> bool:
        """Let the controllers declare a living broker dead; if it ``is_left``, its clients end their connections.

        It continues as before until INSTALL puts it outside, and its neighbours ignore it from when they learn of it.
        """
        gone = {name, *self.dead, *self.returned}
        if name in self.lives_from or name not in self.names or any(one <= gone for one in self._overlays_to_come()):
            return False
        self.misjudged.add(name)
        self.ever_misjudged.add(name)
        self.returned[name] = None
        self.lives_from[name] = math.inf
        self._declare({name})
        if is_left:
            self.lose_connections(name)
            self._lose_clients(name)
        return True

    def _overlays_to_come(self) -> list[set[str]]:
        """Return the brokers of each overlay in force, or led to by a plan under way: some must live in each."""
        logs = [one.log for one in self.met_controllers]
        moving = [(log, log.moving) for log in logs if log.moving is not None]
        found = [set(log.present.brokers) for log in logs]
        return found + [set(log.target_of(plan).brokers) for log, plan in moving]

    @abstractmethod
    def _enqueue(self, broker: Any, source: str | None, message: Any) -> None:
        """Put a message into a broker's queue."""

    def do_return(self, name: str) -> bool:
        """Restart a dead broker once its neighbours have noticed; what they had sent may still reach it."""
        left = [pair for pair in self.on_links if pair[0] == name]
        if name not in self.dead or left or any(of == name for _, of in self.to_notice()):
            return False
        del self.dead[name]
        self.returned[name] = None
        self.brokers[name] = EmulatedBroker(self.start.outsider(name, self.clock.now), DeliveryCells(1))
        for client in self.publishers._publishers.values():
            client.goes_to = ANY_HOME if client.goes_to == name else client.goes_to
        return True

    def is_left_behind(self, name: str) -> bool:
        """Return True if a returned broker heard of a plan that was to admit it and that ended without it.

        It was considered dead then, so it was not notified of the end. It learns of that, or of the overlay in force,
        before it is admitted; until then it gets no commands and serves no client.
        """
        return name in self.returned and self.brokers[name].core.state.under_way is not None

    def note_life(self, name: str) -> None:
        """Remember in which epoch a returned broker is part of the overlay again."""
        core = self.brokers[name].core
        if name in self.misjudged:
            if all(tables.is_outside for tables in core.state.tables.values()):
                self.misjudged.discard(name)  # Installed: now it is like one that has returned.
        elif name in self.returned and not core.state.tables[core.epoch].is_outside:
            del self.returned[name]
            self.lives_from[name] = core.epoch

    def do_cut(self, name: str, peer: str) -> bool:
        """Lose what a dead broker had sent to a neighbour and is still under way."""
        return name in self.dead and self.on_links.pop((name, peer), None) is not None

    def do_notice(self, peer: str, name: str) -> bool:
        """Let a neighbour notice a death, after everything that has arrived over the link."""
        if (peer, name) not in self.to_notice():
            return False
        self.noticed.add((peer, name))
        self._enqueue(self.brokers[peer], None, PeerGone(name))
        return True

    def to_notice(self) -> list[tuple[str, str]]:
        """Return the pairs of brokers in which the first may now notice the death of the second."""
        return [
            (peer, name)
            for name in self.dead
            for peer, broker in self.brokers.items()
            if not broker.is_dead
            and (peer, name) not in self.noticed
            and (name, peer) not in self.on_links
            and (name in broker.core.live_neighbours or peer in self.brokers[name].core.live_neighbours)
        ]

    @property
    def undeclared(self) -> list[str]:
        """The brokers whose death the controllers do not know; some may have returned."""
        known = self.declared | self.readmitted
        return [name for name in (*self.dead, *self.returned) if name not in known]

    def do_declare(self, names: Sequence[str]) -> bool:
        """Let the controllers know that these are, or have been, dead."""
        found = set(names).intersection(self.undeclared)
        self._declare(found)
        return bool(found)

    def _declare(self, names: set[str]) -> None:
        self.declared |= names
        for controller in self.met_controllers:
            controller.dead = frozenset(self.declared)

    # --- clients that have lost their home ---------------------------------------------------------------------

    @property
    def homeless(self) -> list[str]:
        """The publishers and users whose present or next home has died."""
        gone = {ANY_HOME, *self.dead}
        names = [name for name, client in self.publishers._publishers.items() if client.goes_to in gone]
        return sorted([*names, *self.users._homeless])

    def do_come_again(self, name: str, home: str) -> bool:
        """Begin a new stay of a client that has lost its home at another one, unless it is about to end."""
        if name not in self.homeless or home in self.dead:
            return False
        client = self.publishers._publishers.get(name)
        if client is None:
            self.users.reconnect(name, home)
        elif client.is_ending:
            del self.publishers._publishers[name]
        else:
            client.goes_to = ANY_HOME
            self.publishers.reconnect(name, home)
        return True

    # --- repairs -----------------------------------------------------------------------------------------------

    @property
    def lost_in_force(self) -> list[str]:
        """The brokers of the overlay in force that are declared dead, or were before they returned."""
        gone = self.declared | self.returned.keys()
        return [name for name in self.controller.log.present.brokers if name in gone]

    def do_repair(self, *change: Any) -> bool:
        """Begin the plan that removes the dead from the overlay in force."""
        return bool(self.lost_in_force) and self._repair((), *change)

    def do_take_back(self, backs: Sequence[tuple[str, Any]], *change: Any) -> bool:
        """Begin a plan that also admits brokers that have returned."""
        is_near = [name in self.returned and name not in self.misjudged for name, _ in backs]
        if not all(is_near) or any(self._is_awaited_by_rival(name) for name, _ in backs):
            return False
        return self._repair(backs, *change)

    def _is_awaited_by_rival(self, name: str) -> bool:
        """Return True while the plan of a controller with a separate log may rely on an earlier life of a broker.

        That plan would wait forever for a broker that has forgotten it and has been in another controller's plan since.
        """
        rivals = [one.log for one in self.met_controllers if one.shelf is not self.controller.shelf]
        return any(log.moving is not None and name in log.target_of(log.moving).brokers for log in rivals)

    def _repair(self, backs: Sequence[tuple[str, Any]], *change: Any) -> bool:
        lost = self.lost_in_force
        if not self.controller.is_idle:
            return False
        moves = [ClientMove(*move) for move in change[-1]]
        target = self.repaired(self.controller.log, lost, *change[:-1])
        if target is None:
            return False
        for name, place in backs:
            target = self.with_joined(target, name, place)
            self.declared.discard(name)
            self.readmitted.add(name)
        for controller in self.met_controllers:
            controller.dead = frozenset(self.declared)
        self.repairs += bool(lost)
        plan: Plan = new_plan(self.controller.log, target, moves)
        plan = msgspec.structs.replace(plan, brokers_lost=tuple(lost))
        self.controller.begin(target.as_target(plan, self.controller.log.present), self.clock.now)
        return True

    @abstractmethod
    def repaired(self, log: Any, lost: Sequence[str], *change: Any) -> OverlayConfiguration | None:
        """Return the overlay without the lost brokers, or None if this change leads to none."""

    @abstractmethod
    def with_joined(self, target: Any, name: str, place: Any) -> OverlayConfiguration:
        """Return the overlay with one more broker."""

    @abstractmethod
    def random_repair(self, lost: Sequence[str], rng: random.Random) -> Action:
        """Return a repair as an action."""

    def repair_actions(self, rng: random.Random) -> list[Action]:
        """Return what remains to be done about the dead once nothing is under way; empty if nothing remains."""
        if self.undeclared:
            return [("declare", tuple(self.undeclared))]
        coming: list[Action] = [("come_again", name, rng.choice(self.names)) for name in self.homeless]
        if not self.lost_in_force:
            return [*(("install", name) for name in sorted(self.misjudged)), *coming]
        repair = self.random_repair(self.lost_in_force, rng)
        return [*coming, repair] if rng.random() < 0.5 else [repair, *coming]

    # --- what a death excuses ----------------------------------------------------------------------------------

    def is_refused_from_the_dead(self, source: str | None, effects: Sequence[Any]) -> bool:
        """Return True if a message from a declared dead broker is not taken: its epoch may be retired without it."""
        return source in self.declared | self.ever_misjudged and any(isinstance(effect, Dropped) for effect in effects)

    def note_taken(self, name: str, message: Any, effects: Sequence[Any]) -> None:
        """Remember which broker has taken a notification, and where it was published."""
        if not isinstance(message, Notification):
            return
        key = message.publisher, message.sequence
        for effect in effects:
            if isinstance(effect, Published):
                epoch = effect.notification.epoch
                self.stamped[key] = epoch, effect.notification.home
                self.overlays.setdefault(epoch, self.brokers[name].core.state.tables[epoch].configuration)
            if isinstance(effect, Dropped) and effect.reason == FROM_THE_DEAD:
                return
        self.taken.setdefault(key, set()).add(name)

    def is_excused(self, key: Key, subscription: str) -> bool:
        """Return True if a death excuses that a notification was not delivered.

        It does if the notification's path, in the overlay of its epoch, begins or ends at a dead broker, or leads over
        one from which the path's next broker had not taken it, or if that overlay no longer has the subscriber's home.
        """
        if not self.lives_from:
            return False
        if key not in self.stamped:
            return self.account.published[key].home in self.lives_from
        epoch, home = self.stamped[key]
        at_home = self.serving(epoch, subscription)
        if at_home not in self.overlay_of(epoch).brokers and epoch < self.lives_from.get(at_home, -1):
            return True  # At a living broker that an overlay without it has left behind.
        return any(
            epoch < self.lives_from.get(broker, -1) and (at + 1 == len(way) or not self.has_gone_on(key, way, at))
            for way in self.ways(epoch, home, subscription)
            for at, broker in enumerate(way)
        )

    def has_gone_on(self, key: Key, way: Sequence[str], at: int) -> bool:
        """Return True if the next broker of a path has taken a notification."""
        return way[at + 1] in self.taken[key]

    @abstractmethod
    def serving(self, epoch: int, subscription: str) -> str:
        """Return the broker at which a subscription is in an epoch, empty if at none."""

    @abstractmethod
    def ways(self, epoch: int, home: str, subscription: str) -> list[Sequence[str]]:
        """Return the paths that a notification published at ``home`` may take to a subscription."""

    def overlay_of(self, epoch: int) -> Any:
        """Return the overlay of a stamped epoch: of all plans to that epoch, the executed one's."""
        return self.overlays[epoch]
