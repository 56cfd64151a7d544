"""ClosedWindow: everything known about one window whose rows have all arrived, or have been given up."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np

from regraft.controller.state.window_parts import PartKey, WindowParts
from regraft.overlay.derived_values import LastResult
from regraft.overlay.ring.user_interests import UserInterests
from regraft.overlay.sets.delivery_sets import DeliverySets
from regraft.schemas.agent_names import client_of
from regraft.schemas.state import LinkRtt, QueueState
from regraft.schemas.texts import time_text


@dataclass(frozen=True, eq=False)
class ClosedWindow:
    """One window as the controller uses it.

    ``error`` is empty if the window is complete, else it describes what is missing; ``short_brokers`` names the brokers
    with too few batches. ``epoch_min`` and ``epoch_max`` are the epochs that brokers stamped in the window, -1 if no
    broker reported. ``client_changes`` counts distinct changes of interest. ``homes`` names the broker at which each
    publisher last published in the window, ``homeless`` are the publishers without known home, because its telemetry is
    lost. ``local_deliveries`` counts the hand-overs to local subscribers by (publisher, broker). If the kind of overlay
    needs the register, there is more: ``interests`` are what users wanted and where, not at the window's end but when
    it was assembled, some seconds later; None if unknown. ``topic_rates_per_s`` are the notifications published per
    second by topic. ``strayed`` are the users that were not where plans had last put them, so have moved by themselves.
    ``clock_offsets_ms`` is how far each broker's clock is ahead of Kafka's, negative if behind. ``epochs`` is the
    newest epoch that each broker heard in the window stamped in its newest incarnation, ``boots`` when that incarnation
    began; brokers outside the overlay may be among them. ``epoch_min`` and ``epoch_max`` cover only the brokers that
    the window is complete over. ``subscribers_at`` counts the subscribers without topics at each broker that had any
    when the window was assembled, None if unknown. ``parts`` are the deliveries of subscribers that plans have moved
    recently, and of single ones that brokers report separately; ``single`` names the latter, with the part that each
    forms: subscribers, and clients beside agents. ``movable`` names the subscribers without topics that may move
    although the inventory says that clients stay, with their homes as of ``subscribers_at``, ``nearest`` the brokers
    that are nearest to their clients, ``reaches`` those to which their agents can take them, if these are known; old
    windows lack all three. ``staying`` counts the others of which it is known why they stay, by broker and reason.
    """

    start_ms: int
    end_ms: int
    sets: DeliverySets
    queues: tuple[QueueState, ...] = ()
    rtts: tuple[LinkRtt, ...] = ()
    client_changes: int = 0
    epoch_min: int = -1
    epoch_max: int = -1
    short_brokers: tuple[str, ...] = ()
    error: str = ""
    late_rows: int = 0
    homes: Mapping[str, str] = field(default_factory=dict)
    homeless: frozenset[str] = frozenset()
    local_deliveries: Mapping[tuple[str, str], int] = field(default_factory=dict)
    interests: UserInterests | None = None
    topic_rates_per_s: Mapping[str, float] = field(default_factory=dict)
    strayed: frozenset[str] = frozenset()
    clock_offsets_ms: Mapping[str, int] = field(default_factory=dict)
    epochs: Mapping[str, int] = field(default_factory=dict)
    boots: Mapping[str, int] = field(default_factory=dict)
    subscribers_at: Mapping[str, int] | None = None
    parts: WindowParts = field(default_factory=WindowParts)
    single: Mapping[str, PartKey] = field(default_factory=dict)
    movable: Mapping[str, str] = field(default_factory=dict)
    staying: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    nearest: Mapping[str, str] = field(default_factory=dict)
    reaches: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    _placed: LastResult[dict[str, str], DeliverySets] = field(default_factory=LastResult, init=False, repr=False)
    _users_placed: LastResult[dict[str, str], UserInterests] = field(default_factory=LastResult, init=False, repr=False)
    _restricted: LastResult[tuple[str, ...], ClosedWindow] = field(default_factory=LastResult, init=False, repr=False)

    def over(self, brokers: tuple[str, ...]) -> ClosedWindow:
        """Return the window restricted to these brokers (sorted), those of an overlay; the last result is cached.

        What only others delivered or published is left out, and so are the clients whose home is there.
        """
        if brokers == self.sets.brokers:
            return self
        return self._restricted.of(brokers, lambda: self._over(frozenset(brokers), brokers))

    def _over(self, known: frozenset[str], brokers: tuple[str, ...]) -> ClosedWindow:
        return replace(
            self,
            sets=self.sets.over(brokers),
            queues=tuple(one for one in self.queues if one.broker in known and (not one.peer or one.peer in known)),
            rtts=tuple(one for one in self.rtts if one.broker in known and one.peer in known),
            homes={client: home for client, home in self.homes.items() if home in known},
            local_deliveries={key: count for key, count in self.local_deliveries.items() if key[1] in known},
            interests=None if self.interests is None else self.interests.over(brokers),
            epochs={broker: epoch for broker, epoch in self.epochs.items() if broker in known},
            boots={broker: boot for broker, boot in self.boots.items() if broker in known},
            parts=self.parts.over(known),
            single={name: key for name, key in self.single.items() if key[0] in known},
            movable={name: home for name, home in self.movable.items() if home in known},
        )

    def sets_at(self, homes: Mapping[str, str]) -> DeliverySets:
        """Return the delivery sets as if the publishers had been at these homes; publishers not named stay.

        The last result is cached: a horizon asks for the same homes at every decision until a publisher moves.
        """
        moved = {publisher: home for publisher, home in self.homes.items() if homes.get(publisher, home) != home}
        if not moved:
            return self.sets
        wanted = {publisher: homes[publisher] for publisher in moved}
        return self._placed.of(wanted, lambda: self.sets.at_homes(wanted))

    def published_by(self, publisher: str) -> float:
        """Return how many notifications a publisher published, estimated if brokers report a sample."""
        return self._published_by.get(publisher, 0) / self.sets.share

    @cached_property
    def _published_by(self) -> dict[str, int]:
        counts: dict[str, int] = {}
        published = np.bitwise_count(self.sets.published).tolist()
        for (publisher, _), count in zip(self.sets.columns, published, strict=True):
            counts[publisher] = counts.get(publisher, 0) + count
        return counts

    def with_subscribers_moved(self, moved: Mapping[str, str]) -> ClosedWindow:
        """Return the window as if all subscribers of each broker of ``moved`` had always been at the broker it maps to.

        Exact, because subscribers receive the same at any broker. Raises KeyError for an unknown broker.
        """
        taken: dict[tuple[str, str], int] = {}
        untouched = set(self.sets.brokers) - {*moved, *moved.values()}
        for (publisher, broker), count in self.local_deliveries.items():
            key = publisher, moved.get(broker, broker)
            taken[key] = taken.get(key, 0) + count
        there: dict[str, int] = {}
        for broker, count in (self.subscribers_at or {}).items():
            there[moved.get(broker, broker)] = there.get(moved.get(broker, broker), 0) + count
        return replace(
            self,
            sets=self.sets.with_subscribers_moved(moved, self.homes),
            local_deliveries=taken,
            subscribers_at=None if self.subscribers_at is None else there,
            parts=self.parts.over(untouched),
            single={name: key for name, key in self.single.items() if key[0] in untouched},
            movable={name: moved.get(home, home) for name, home in self.movable.items()},
        )

    def with_parts_moved(self, to: Mapping[PartKey, str]) -> ClosedWindow:
        """Return the window as if these parts of brokers' subscribers had always been at other brokers.

        Exact, except for hand-overs if brokers report a sample: these are then estimated. The numbers of subscribers at
        brokers stay unchanged. Raises as :meth:`with_subscribers_moved`.
        """
        delivered, parts = self.parts.moved(self.sets.delivered, self.sets, to)
        leaving = {(name, key[0]): to[key] for name, key in self.single.items() if key in to}
        moved = {
            name: leaving[client_of(name), home]
            for name, home in self.movable.items()
            if (client_of(name), home) in leaving
        }
        handed: dict[tuple[str, str], int] = dict(self.local_deliveries)
        for key, target in to.items():
            part = self.parts.received.get(key)
            for publisher, count in ({} if part is None else part.handed).items():
                gone = min(round(count), handed.get((publisher, key[0]), 0))
                handed[publisher, key[0]] = handed.get((publisher, key[0]), 0) - gone
                handed[publisher, target] = handed.get((publisher, target), 0) + gone
        return replace(
            self,
            sets=self.sets.with_delivered(delivered, self.homes),
            local_deliveries={key: count for key, count in handed.items() if count},
            parts=parts,
            single={name: (to.get(key, key[0]), key[1]) for name, key in self.single.items()},
            movable={**self.movable, **moved} if moved else self.movable,
        )

    def interests_at(self, homes: Mapping[str, str]) -> UserInterests:
        """Return the interests as if the users had been at these homes.

        Users not named stay, and so do those that have strayed: they would have moved wherever plans had put them. The
        last result is cached. Raises ValueError if the interests are unknown, KeyError for a home that is not a broker.
        """
        interests = self.interests
        if interests is None:
            raise ValueError(f"the users are unknown in the window ending {time_text(self.end_ms)}")
        position_of, brokers, at = interests.position_of, interests.brokers, interests.homes
        wanted = {
            user: home
            for user, home in homes.items()
            if user not in self.strayed and user in position_of and brokers[at[position_of[user]]] != home
        }
        if not wanted:
            return interests
        return self._users_placed.of(wanted, lambda: interests.at_homes(wanted))

    def without_interests(self) -> ClosedWindow:
        """Return the window without its users' interests, which take much memory; its rates stay."""
        return replace(self, interests=None)

    def without_movable(self) -> ClosedWindow:
        """Return the window without the subscribers that may move: of many windows they would take much memory."""
        return replace(self, movable={}, nearest={}, reaches={}) if self.movable else self

    def may_reach(self, client: str, broker: str) -> bool:
        """Return False if a client's agent is known not to reach a broker."""
        reached = self.reaches.get(client)
        return not reached or broker in reached

    @property
    def slowest_queue(self) -> QueueState | None:
        """The queue at which messages waited longest on average, or None if none waited."""
        slowest = max(self.queues, key=lambda queue: queue.wait_ms_mean, default=None)
        return slowest if slowest is not None and slowest.wait_ms_mean > 0 else None

    def is_delayed(self, wait_ms_max: float) -> bool:
        """Return True if the mean wait somewhere exceeds this; never if it is 0.

        Deliveries behind such a queue arrived after the window had closed, and are missing in ``sets``.
        """
        slowest = self.slowest_queue
        return slowest is not None and 0 < wait_ms_max < slowest.wait_ms_mean

    @property
    def is_complete(self) -> bool:
        """Return True if decisions may be based on the window."""
        return not self.error

    @property
    def epoch(self) -> int | None:
        """The epoch in which the whole window lay, or None if a transition ran during it."""
        return self.epoch_min if self.epoch_min == self.epoch_max and self.epoch_min >= 0 else None

    @property
    def epochs_text(self) -> str:
        """Name the epoch of the window, or the first and the last of several."""
        return f"epoch {self.epoch_min}" if self.epoch is not None else f"epochs {self.epoch_min} to {self.epoch_max}"
