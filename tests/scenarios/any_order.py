"""An overlay in which events happen in any order that the protocol allows: only messages of one link keep their order.

In: self-contained actions, such as ("serve", "b01") or ("publish", "p0", 3), so a run is the list of its actions, and
can be repeated or cut short. Out: a BrokenPromiseError if the delivery promise is broken. Brokers, clients and
controller are the real ones: the emulator's overlay without its clock and queues, PlanRunner and PlanLog
(:mod:`tests.scenarios.any_order_leaders`). The next action is chosen in :mod:`tests.scenarios.any_order_schedules` and
any_order_deeds; the differences between a tree and a ring are in :mod:`tests.scenarios.any_order_tree` and
any_order_ring.
"""

from __future__ import annotations

import random
import re
import typing
from abc import abstractmethod
from collections import deque
from collections.abc import Sequence
from dataclasses import fields
from typing import Any

from regraft.controller.settings.controller_settings import TransitionLimits
from regraft.overlay.inventory.inventory import Inventory
from regraft.producers.brokers.broker_messages import (
    AdvertiseRequest,
    ClientDropped,
    Effect,
    Published,
    SubscribeRequest,
)
from regraft.producers.brokers.match_content import Filter
from regraft.producers.emulator.delivery_cells import CellRule
from regraft.producers.emulator.emulate_overlay import EmulatedBroker, EmulatedOverlay
from regraft.producers.emulator.emulator_ports import OverlayListener
from regraft.producers.emulator.publisher_clients import ClientError
from regraft.schemas.client import Role
from regraft.schemas.plan import Plan, PlanPhase
from tests.scenarios.any_order_account import Account, BrokenPromiseError, check_empty
from tests.scenarios.any_order_clients import RemoteClients
from tests.scenarios.any_order_clock import Clock
from tests.scenarios.any_order_deaths import Action, MortalBrokers, PeerGone
from tests.scenarios.any_order_leaders import ManyControllers
from tests.scenarios.any_order_members import ChangingMembers
from tests.scenarios.core_parts import parts_of

PATIENT = TransitionLimits(prepare_ms=10**9, activate_ms=10**9, drain_ms=10**9, retire_ms=10**9, resend_ms=300)
HASTY = TransitionLimits(prepare_ms=120, activate_ms=10**9, drain_ms=10**9, retire_ms=10**9, resend_ms=150)
KNOWN_EFFECTS = frozenset(typing.get_args(Effect))
FAULT_EFFECTS = frozenset({"ClientDropped", "Dropped"})  # By name: brokers may not have them yet.
SEQUENCES_CONTINUE = "connection" in {one.name for one in fields(AdvertiseRequest)}
KEPT_EMPTY = ("held", "early", "postponed", "unconfirmed_advertisements", "announced_late")
OF_CLIENTS = ("locals", "advertisements", "here")
OF_SUBSCRIPTIONS = ("entries", "index", "withdrawn")  # Of a broker's tables, as the next.
OF_TABLES = (*OF_SUBSCRIPTIONS, "topics", "registered", "successors", "ended", "flushes", "awaited", "moved")
QUEUE_LENGTH_MAX = 10**9


class AnyOrderOverlay(MortalBrokers, RemoteClients, ManyControllers, ChangingMembers, EmulatedOverlay, OverlayListener):
    """Brokers, links, clients and controllers; nothing happens except by :meth:`apply`.

    ``trace``, if it is a list, gets a line for every effect of a broker. ``may_drop``: brokers may disconnect clients
    and drop notifications.
    """

    def __init__(
        self,
        inventory: Inventory,
        limits: TransitionLimits,
        account: Account | None = None,
        rival: str = "",
        spares: Sequence[str] = (),
    ) -> None:
        self.clock = Clock()
        self.account = account or Account()
        super().__init__(
            self.clock, inventory, None, self.account, queue_length_max=QUEUE_LENGTH_MAX, cells=CellRule(1)
        )  # type: ignore[arg-type]
        self.set_up_controllers(inventory, limits, rival)
        self.set_up_members(spares)
        self.set_up_deaths()
        self.set_up_connections()
        self.on_links: dict[tuple[str, str], deque[Any]] = {}  # Only links that carry messages.
        self.busy: dict[str, None] = {}
        self.publisher_homes: dict[str, str] = {}  # The last home of each publisher, including those that have left.
        self.publisher_filters: dict[str, Filter] = {}
        self.allowed: set[str] = set()
        self.ending: set[str] = set()
        self.stamped_epochs: set[int] = set()
        self.may_drop = False
        self.trace: list[str] | None = None
        self.listeners.append(self)

    @property
    def now_ms(self) -> int:
        """The time, which advances by one with every action."""
        return self.clock.now

    @property
    def plans(self) -> list[Plan]:
        """All stored plans."""
        return list(self.controller.shelf.stored.values())

    @property
    def aborted_epochs(self) -> set[int]:
        """The epochs of aborted plans, except those in which another plan was executed."""
        plans = (plan for one in self.met_controllers for plan in one.shelf.stored.values())
        aborted = {plan.epoch_to for plan in plans if plan.phase is PlanPhase.ABORTED}
        return aborted - {plan.epoch_to for one in self.met_controllers for plan in one.log.in_force}

    def apply(self, action: Action) -> bool:
        """Perform one action and return whether it was possible. Raises BrokenPromiseError if it breaks the promise."""
        self._advance_clock(1)
        if self.trace is not None:
            self.trace.append(f"{self.now_ms:5d} {' '.join(str(part) for part in action)}")
        if self._do(action):
            return True
        self._advance_clock(-1)  # An impossible action takes no time, so a run without it is the same.
        if self.trace is not None:
            self.trace.pop()
        return False

    def _do(self, action: Action) -> bool:
        try:
            if getattr(self, f"do_{action[0]}")(*action[1:]) is False:
                return False
            if self.clock.is_any_due:
                self._advance_clock(1)  # What a client does on its own does not happen at the same time as the action.
                self.clock.serve()
            return True
        except (BrokenPromiseError, NotImplementedError):
            raise
        except ClientError:
            return False
        except Exception as error:
            text = re.sub(r"\d+", "_", str(error))[:70]
            raise BrokenPromiseError(
                f"crash {type(error).__name__} {text}", f"{error} by {action} at {self.now_ms}"
            ) from error

    def _advance_clock(self, step_ms: int) -> None:
        self.clock.now += step_ms
        self.account.now_ms = self.clock.now

    # --- queues, links, time -----------------------------------------------------------------------------------

    def _enqueue(self, broker: EmulatedBroker, source: str | None, message: Any) -> None:
        if isinstance(message, SubscribeRequest):
            self.subscription_homes[message.subscription] = broker.name
            self.account.ask(message.subscription, message.filter_)
        if not broker.is_dead and not self.is_on_its_way(broker, source, message):
            broker.queue.append((source, message, self.clock.now))
            self.busy[broker.name] = None

    def _send(self, source_broker: str, peer: str, message: Any) -> None:
        if peer not in self.dead:
            self.on_links.setdefault((source_broker, peer), deque()).append(message)

    def do_cross(self, source: str, target: str) -> bool:
        """Move the first message on a link to the queue at the other end."""
        queue = self.on_links.get((source, target))
        if queue is None:
            return False
        self._enqueue(self.brokers[target], source, queue.popleft())
        if not queue:
            del self.on_links[source, target]
        return True

    def do_serve(self, name: str) -> bool:
        """Let a broker handle the first message of its queue."""
        broker = self.brokers[name]
        if not broker.queue:
            return False
        source, message, _ = broker.queue.popleft()
        if not broker.queue:
            del self.busy[name]
        if self.trace is not None:
            self.trace[-1] += f": <- {source or 'client'} {describe(message)}"
        if isinstance(message, PeerGone):
            effects = broker.core.lose_peer(message.peer, self.clock.now)
        else:
            effects = broker.core.handle(source, message, self.clock.now)
        if not self.is_refused_from_the_dead(source, effects):
            self.note_taken(name, message, effects)
        self.note_incarnation(name)
        for effect in effects:
            self._see(broker, effect)
        return True

    def _see(self, broker: EmulatedBroker, effect: Any) -> None:
        if self.trace is not None and not isinstance(effect, Published):
            self.trace.append(f"          {broker.name} => {describe(effect)}")
        name = type(effect).__name__
        if type(effect) not in KNOWN_EFFECTS:
            raise NotImplementedError(f"{broker.name} wants {name}: add it to the any-order overlay")
        is_rejected = isinstance(effect, ClientDropped) and not broker.core.takes_clients
        if name in FAULT_EFFECTS and not (self.may_drop or self.lives_from or is_rejected):
            raise BrokenPromiseError(f"brokers want {name}", f"{effect} at {broker.name}, though no client is silent")
        if isinstance(effect, Published):
            self.stamped_epochs.add(effect.notification.epoch)
        ignored_before = self.turns.ignored_count
        self.report(broker, effect)
        if self.turns.ignored_count > ignored_before and not self.counts_as_dead(broker.name):
            raise BrokenPromiseError("ignored from a living home", f"{describe(effect)} at {broker.name}")

    def do_wait(self, pause_ms: int) -> None:
        """Let time pass."""
        self._advance_clock(pause_ms)

    # --- publishers --------------------------------------------------------------------------------------------

    def do_advertise(self, name: str, home: str, what: str) -> bool:
        """Connect a publisher, possibly again under its name, unless it is connected."""
        if self.publishers.home_of(name) is not None or home in self.dead:
            return False
        self.ending.discard(name)
        self.advertise(name, home, self.filter_of(what))
        if not SEQUENCES_CONTINUE:
            self.publishers._publishers[name].sequence_next = self.account.sequence_next(name)
        return True

    def do_unadvertise(self, name: str) -> bool:
        """End a publisher, wherever it is."""
        if self.publishers.home_of(name) is None or name in self.ending:
            return False
        self.ending.add(name)
        self.publishers.disconnect(name)
        return True

    def do_publish(self, name: str, number: int) -> bool:
        """Let a publisher publish if it may."""
        if self.publishers.home_of(name) is None or name in self.ending:
            return False
        self.publish(name, self.content_of(self.publisher_filters[name], number), 100)
        return True

    def _change_publisher(self, publisher: str, connection: int, home: str, filter_: Filter | None) -> None:
        if filter_ is not None:
            self.account.begin_stay(publisher)
        super()._change_publisher(publisher, connection, home, filter_)

    def is_between_homes(self, name: str) -> bool:
        """Return True if a publisher has left one home and the next one has not taken it."""
        client = self.publishers._publishers.get(name)
        return client is not None and client.goes_to is not None

    def on_client_change(self, client: str, role: Role, home: str, filter_: Filter | None) -> None:
        """Remember the homes of publishers."""
        if role is not Role.PUBLISHER:
            return
        self.publisher_homes[client] = home
        if filter_ is None:
            self.allowed.discard(client)
        else:
            self.publisher_filters[client] = filter_

    def on_may_publish(self, publisher: str) -> None:
        """Remember that a publisher may publish."""
        self.allowed.add(publisher)

    # --- what differs between a tree and a ring ----------------------------------------------------------------

    @abstractmethod
    def filter_of(self, what: str) -> Filter:
        """Return what a publisher of ``what`` advertises."""

    @abstractmethod
    def content_of(self, filter_: Filter, number: int) -> dict[str, float | str]:
        """Return the content that a publisher with this filter publishes."""

    @abstractmethod
    def random_changes(self, count: int, rng: random.Random) -> Sequence[Any]:
        """Return changes of the overlay for a plan."""

    @abstractmethod
    def random_moves(self, count: int, mistaken_share: float, rng: random.Random) -> Sequence[Sequence[str]]:
        """Return clients and their next homes; occasionally the controller is mistaken about a present home."""

    @abstractmethod
    def leave_all(self) -> list[Action]:
        """Return the actions by which all clients leave."""

    @abstractmethod
    def check_at_rest(self) -> None:
        """Raise a BrokenPromiseError if a broker's tables do not match clients and plans."""

    # --- checks ------------------------------------------------------------------------------------------------

    def check_settled(self) -> None:
        """Raise a BrokenPromiseError unless everything is as required once nothing is under way."""
        self.account.check_nothing_lost()
        for name, one in self.account.subscriptions.items():
            if one.is_open and one.confirmed_ms is None:
                raise BrokenPromiseError("never confirmed", f"{name}: {self.account.story_of(name)}")
        for name in sorted(self.publisher_homes):
            if self.publishers.home_of(name) is None:
                continue
            if self.is_between_homes(name):
                raise BrokenPromiseError("forever between two homes", f"{name}: {self.publishers._publishers[name]}")
            if not self.publishers._publishers[name].may_publish:
                which = "in its first stay" if not self.account.stays[name] else "having come again"
                raise BrokenPromiseError(
                    f"never allowed to publish {which}", f"{name} at {self.publishers.home_of(name)}"
                )
        if aborted := self.aborted_epochs & self.stamped_epochs:
            raise BrokenPromiseError("stamped an aborted epoch", f"{sorted(aborted)}")
        present = self.controller.log.present
        for name, core in self.cores.items():
            held = core.state.tables.get(core.epoch)
            is_inside = name in present.neighbours
            is_at_epoch = core.epoch == present.epoch or not is_inside
            if self.is_left_behind(name):
                continue
            if core.state.under_way is not None or not is_at_epoch or sorted(core.state.tables) != [core.epoch]:
                raise BrokenPromiseError(
                    "state", f"{name} has {core.phase}, tables {sorted(core.state.tables)}, not {present.epoch}"
                )
            if held.is_outside == is_inside or (is_inside and held.configuration.digest != present.digest):
                raise BrokenPromiseError("state", f"{name} holds another overlay than the plans say")
            for part in parts_of(core):
                kept_empty = KEPT_EMPTY if is_inside else (*KEPT_EMPTY, *OF_CLIENTS)
                # A returned broker does not know a plan that was aborted without it.
                check_empty(part, [one for one in kept_empty if one != "early" or name not in self.lives_from], name)
            if not is_inside:
                check_empty(held, OF_TABLES, name)
        self.check_at_rest()

    def check_unsubscribed(self) -> None:
        """Raise a BrokenPromiseError if a broker keeps anything of subscriptions although there are none."""
        for name, core in self.cores.items():
            tables = core.state.tables[core.epoch]
            for part in parts_of(core):
                check_empty(part, ("locals",), name)
            check_empty(tables, OF_SUBSCRIPTIONS, name)
            kept = {topic: one for topic, one in getattr(tables, "topics", {}).items() if one.parent is not None}
            if kept:
                raise BrokenPromiseError("leak of topics", f"{name} keeps {str(kept)[:300]}")

    def check_left(self) -> None:
        """Raise a BrokenPromiseError if a broker keeps anything of clients although all have left."""
        self.check_settled()
        for name, core in self.cores.items():
            for part in parts_of(core):
                check_empty(part, OF_CLIENTS, name)
            check_empty(core.state.tables[core.epoch], OF_TABLES, name)


def describe(value: Any) -> str:
    """Return a message or effect on one line, without uninformative fields."""
    text = re.sub(r"<\w+\.(\w+): '\w+'>", r"\1", str(value))
    text = re.sub(r"\(Predicate\((.*?)\),?\)", r"<\1>", text)
    text = re.sub(r"(links_removed|links_added|moves|id_moves)=\(\), |, size_bytes=\d+|digest='[\w-]*'(, )?", "", text)
    return re.sub(r"(attribute|operator|value|message|notification)=", "", text)
