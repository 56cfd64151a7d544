"""ClosedWindow: everything known about one window whose rows have all arrived, or have been given up on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from regraft.controller.state.window_parts import PartKey, WindowParts
from regraft.overlay.delivery_sets import DeliverySets
from regraft.overlay.user_interests import UserInterests
from regraft.schemas.state import LinkRtt, QueueState
from regraft.schemas.write_times import time_text


@dataclass(frozen=True, eq=False)
class ClosedWindow:
    """One window as the controller uses it.

    ``fault`` is empty when the window is complete, else it says what is missing; ``short_brokers`` names the brokers
    with too few batches. ``epoch_min`` and ``epoch_max`` are the epochs that brokers stamped in the window, -1 when no
    broker was heard. ``client_changes`` counts distinct changes of interest. ``homes`` names the broker at which each
    publisher published last in the window, ``homeless`` are the publishers without known home, as it sends telemetry of
    version 1 or its telemetry is lost. ``local_deliveries`` counts the hand-overs to local subscribers by (publisher,
    broker). Where the kind of overlay needs the register, there is more: ``interests`` are what users wanted where, not
    at the window's end but when it was put together, some seconds later; None where that is not known.
    ``topic_rates_per_s`` are the notifications published a second by topic. ``strayed`` are the users that were not
    where plans had last put them: they have gone there by themselves. ``clock_offsets_ms`` is how far each broker's
    clock is ahead of Kafka's, below 0 how far behind. ``epochs`` is the newest epoch that each broker heard in the
    window stamped in its newest life, ``boots`` when that life began; brokers outside the overlay may be among them.
    ``epoch_min`` and ``epoch_max`` are of those that the window is complete over. ``subscribers_at`` counts the
    subscribers without topics at each broker that had any when the window was assembled, None where unknown. ``parts``
    are the deliveries of subscribers that plans have moved lately, and of single ones that brokers report separately;
    ``single`` names the latter, with the part that each is.
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
    fault: str = ""
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
    _placed: tuple[dict[str, str], DeliverySets] | None = field(default=None, init=False, repr=False)
    _users_placed: tuple[dict[str, str], UserInterests] | None = field(default=None, init=False, repr=False)
    _restricted: ClosedWindow | None = field(default=None, init=False, repr=False)

    def over(self, brokers: tuple[str, ...]) -> ClosedWindow:
        """Return the window as it is seen over these brokers, sorted, those of an overlay; the last answer is kept.

        What only others delivered or published is left out, and so are the clients that were at home there.
        """
        if brokers == self.sets.brokers:
            return self
        if self._restricted is None or self._restricted.sets.brokers != brokers:
            object.__setattr__(self, "_restricted", self._over(frozenset(brokers), brokers))
        assert self._restricted is not None
        return self._restricted

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
        )

    def sets_at(self, homes: Mapping[str, str]) -> DeliverySets:
        """Return the delivery sets as if the publishers had been at these homes; those not named stay.

        The last answer is kept: a horizon asks for the same homes at every decision until one moves.
        """
        moved = {publisher: home for publisher, home in self.homes.items() if homes.get(publisher, home) != home}
        if not moved:
            return self.sets
        wanted = {publisher: homes[publisher] for publisher in moved}
        if self._placed is None or self._placed[0] != wanted:
            object.__setattr__(self, "_placed", (wanted, self.sets.at_homes(wanted)))
        assert self._placed is not None
        return self._placed[1]

    def with_subscribers_moved(self, moved: Mapping[str, str]) -> ClosedWindow:
        """Return the window as if all subscribers of each broker of ``moved`` had been at the other one all the time.

        Exact: who takes something takes the same at any broker. Raises ValueError when what was delivered is not known
        apart from what was published, KeyError for an unknown broker.
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
        )

    def with_parts_moved(self, to: Mapping[PartKey, str]) -> ClosedWindow:
        """Return the window as if these parts of brokers' subscribers had been at other brokers all the time.

        Exact, but for hand-overs where brokers report a sample: these are then estimated. How many subscribers there
        are at brokers stays. Raises as :meth:`with_subscribers_moved`.
        """
        if self.sets.delivered is None:
            raise ValueError("published and delivered are not reported separately: subscribers cannot be moved")
        delivered, parts = self.parts.moved(self.sets.delivered, self.sets, to)
        handed: dict[tuple[str, str], int] = dict(self.local_deliveries)
        for key, target in to.items():
            part = self.parts.taken.get(key)
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
        )

    def interests_at(self, homes: Mapping[str, str]) -> UserInterests:
        """Return the interests as if the users had been at these homes.

        Those not named stay, and so do those that have strayed: wherever plans had put them, they would have gone. The
        last answer is kept. Raises ValueError when the interests are not known, KeyError for a home that is not a
        broker.
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
        if self._users_placed is None or self._users_placed[0] != wanted:
            object.__setattr__(self, "_users_placed", (wanted, interests.at_homes(wanted)))
        assert self._users_placed is not None
        return self._users_placed[1]

    def without_interests(self) -> ClosedWindow:
        """Return the window without what users wanted, which takes much memory; its rates stay."""
        return replace(self, interests=None)

    @property
    def slowest_queue(self) -> QueueState | None:
        """The queue at which messages have waited longest on average, None where none have."""
        slowest = max(self.queues, key=lambda queue: queue.wait_ms_mean, default=None)
        return slowest if slowest is not None and slowest.wait_ms_mean > 0 else None

    def is_delayed(self, wait_ms_max: float) -> bool:
        """Return True if messages waited longer than this somewhere, on average; never where the limit is 0.

        What was delivered behind such a queue came after the window had closed, and is missing in ``sets``.
        """
        slowest = self.slowest_queue
        return slowest is not None and 0 < wait_ms_max < slowest.wait_ms_mean

    @property
    def is_complete(self) -> bool:
        """Return True if decisions may rest on the window."""
        return not self.fault

    @property
    def epoch(self) -> int | None:
        """The one epoch in which the whole window lay, None when a transition ran through it."""
        return self.epoch_min if self.epoch_min == self.epoch_max and self.epoch_min >= 0 else None

    @property
    def epochs_text(self) -> str:
        """Name the epoch of the window, or the first and the last of several."""
        return f"epoch {self.epoch_min}" if self.epoch is not None else f"epochs {self.epoch_min} to {self.epoch_max}"
