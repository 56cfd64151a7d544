"""One broker's protocol core: routing, advertisements, subscriptions and the two-epoch transition.

In: one message at a time (from a neighbour, a local client or the controller) and the time. Out: effects. It owns no
queue, no link and no clock, so that any scheduler can drive it: the emulator, and tests that try every order. What it
asks of its surroundings: messages of one link arrive in the order they were sent, and nothing is lost.

The transition is architecture.md, section 6. Tables of epoch k+1 are derived from those of k where the way to a
subscription's home is the same in both trees, and built by subscriptions that travel over the new tree where not.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from enum import StrEnum

from overlay.configuration import Configuration, link
from producers.broker_messages import (
    Advertise,
    AdvertiseAck,
    AdvertiseConfirmed,
    AdvertiseRequest,
    Answer,
    Cancelled,
    CancelRequest,
    ClientRequest,
    Confirmed,
    Deliver,
    Effect,
    End,
    Message,
    Notification,
    Published,
    Send,
    Subscribe,
    SubscribeAck,
    SubscribeRequest,
    Unadvertise,
    UnadvertiseRequest,
    Unsubscribe,
    UnsubscribeAck,
)
from producers.match_content import Filter, intersects
from producers.routing_tables import LOCAL, Entry, RoutingTables
from schemas.command import Command, CommandPhase, CommandResult, Outcome

EARLY_MESSAGES_MAX = 100_000  # Control messages of an epoch that this broker has not prepared yet.
GONE_PUBLISHERS_MAX = 10_000  # Tombstones that keep a late advertisement from reviving its publisher.


class ProtocolError(RuntimeError):
    """A message that the protocol rules out: links lost or reordered something, or a broker is faulty."""


class BrokerPhase(StrEnum):
    """Where a broker is in a transition."""

    STEADY = "steady"
    PREPARING = "preparing"
    PREPARED = "prepared"
    DRAINING = "draining"
    DRAINED = "drained"


@dataclass(slots=True)
class LocalSubscription:
    """A subscription of a local client: when it became owed, when it ended, which epochs are still to confirm."""

    subscription: str
    unconfirmed_epochs: set[int]
    confirmed_ms: float | None = None
    cancelled_ms: float | None = None

    def wants(self, publish_ms: float) -> bool:
        """Tell whether a notification published then is owed: confirmed before it, not cancelled before it."""
        if self.confirmed_ms is None or self.confirmed_ms >= publish_ms:
            return False
        return self.cancelled_ms is None or self.cancelled_ms >= publish_ms


@dataclass(slots=True)
class Advertisement:
    """A known publisher, who told us, and what we wait for before we say that all beyond us know it."""

    publisher: str
    home: str
    filter_: Filter
    told_by: str
    unanswered: set[str]
    unsettled: set[str]


@dataclass(slots=True)
class Transition:
    """The plan under way at this broker."""

    plan: str
    epoch_from: int
    epoch_to: int
    waiting_for: set[str] = field(default_factory=set)
    is_prepared: bool = False
    is_active: bool = False
    is_drained_told: bool = False
    control_messages: int = 0


class BrokerCore:
    """The protocol state of one broker. Deterministic: equal inputs give equal effects in equal order."""

    def __init__(self, broker: str, configuration: Configuration, boot_ms: int) -> None:
        self.broker = broker
        self.boot_ms = boot_ms
        self.epoch = configuration.epoch
        self.tables: dict[int, RoutingTables] = {configuration.epoch: RoutingTables(broker, configuration)}
        self.locals: dict[str, LocalSubscription] = {}
        self.advertisements: dict[str, Advertisement] = {}
        self._unconfirmed_advertisements: dict[str, Advertisement] = {}
        self.transition: Transition | None = None
        self.held: deque[Deliver] = deque()
        self.held_count_max = 0
        self.control_messages_sent = 0
        self.covered_forwards = 0
        self._gone_publishers: dict[str, None] = {}
        self._postponed: deque[AdvertiseRequest] = deque()
        self._early: deque[tuple[str, Message]] = deque()
        self._early_overflowed = False
        self._epoch_aborted_max = -1

    # --- what the surroundings see -----------------------------------------------------------------------------

    @property
    def phase(self) -> BrokerPhase:
        """Where this broker is in a transition."""
        if self.transition is None:
            return BrokerPhase.STEADY
        if not self.transition.is_active:
            return BrokerPhase.PREPARED if self.transition.is_prepared else BrokerPhase.PREPARING
        return BrokerPhase.DRAINED if self.transition.is_drained_told else BrokerPhase.DRAINING

    @property
    def live_neighbours(self) -> tuple[str, ...]:
        """The neighbours in any live epoch, sorted."""
        return tuple(sorted({peer for tables in self.tables.values() for peer in tables.neighbours}))

    def handle(self, source: str | None, message: Message | ClientRequest | Command, now_ms: float) -> list[Effect]:
        """Take one message and return what is to be done, in order. ``source`` is a neighbour or None for our own."""
        if isinstance(message, Notification):
            return self._route(source, message)
        if isinstance(message, Command):
            effects = self._obey(message, now_ms)
        elif source is None:
            effects = self._serve(message, now_ms)  # type: ignore[arg-type]
        else:
            effects = self._converse(source, message, now_ms)  # type: ignore[arg-type]
        sent = [effect.message for effect in effects if isinstance(effect, Send)]
        self._count_control(sent)
        return effects

    # --- notifications -----------------------------------------------------------------------------------------

    def _route(self, source: str | None, notification: Notification) -> list[Effect]:
        effects: list[Effect] = []
        if source is None:
            notification = replace(notification, epoch=self.epoch)
            effects.append(Published(notification))
        tables = self.tables.get(notification.epoch)
        if tables is None:
            raise ProtocolError(
                f"{self.broker} got notification {notification.publisher}/{notification.sequence} of epoch "
                f"{notification.epoch} but holds tables of {sorted(self.tables)}"
            )
        destinations = tables.index.destinations(notification.content, source)
        for peer in sorted(destinations):
            if peer != LOCAL:
                effects.append(Send(peer, notification))
        if LOCAL in destinations:
            wanted = tables.index.keys_for(notification.content, LOCAL)
            subscriptions = tuple(
                sorted(key for key in wanted if key in self.locals and self.locals[key].wants(notification.publish_ms))
            )
            if subscriptions:
                self._deliver_or_hold(Deliver(notification, subscriptions), effects)
        return effects

    def _deliver_or_hold(self, delivery: Deliver, effects: list[Effect]) -> None:
        """Deliver at once unless earlier notifications of the same publisher may still come in an older epoch."""
        if self._must_hold(delivery.notification):
            self.held.append(delivery)
            self.held_count_max = max(self.held_count_max, len(self.held))
        else:
            effects.append(delivery)

    def _must_hold(self, notification: Notification) -> bool:
        if notification.home == self.broker:
            return False  # Stamped here, after everything that was stamped here before.
        return any(
            not tables.flow_has_ended(notification.home)
            for epoch, tables in self.tables.items()
            if epoch < notification.epoch
        )

    def _release_held(self) -> list[Effect]:
        released: list[Effect] = []
        kept: deque[Deliver] = deque()
        for delivery in self.held:
            if self._must_hold(delivery.notification):
                kept.append(delivery)
            else:
                released.append(delivery)
        self.held = kept
        return released

    # --- local clients -----------------------------------------------------------------------------------------

    def _serve(self, request: ClientRequest, now_ms: float) -> list[Effect]:
        match request:
            case SubscribeRequest():
                return self._subscribe(request, now_ms)
            case CancelRequest():
                return self._cancel(request, now_ms)
            case AdvertiseRequest():
                if self.transition is not None:
                    # Whoever learns of a publisher must still hold the tables it derived the next ones from.
                    self._postponed.append(request)
                    return []
                effects = self._learn_advertisement(LOCAL, Advertise(request.publisher, self.broker, request.filter_))
                return effects + self._settle((), now_ms)
            case UnadvertiseRequest():
                return self._forget_advertisement(LOCAL, request.publisher)
        raise ProtocolError(f"{self.broker} got {type(request).__name__} from a client")

    def _subscribe(self, request: SubscribeRequest, now_ms: float) -> list[Effect]:
        name = request.subscription
        if name in self.locals:
            raise ProtocolError(f"subscription {name} exists at {self.broker} already: ids are never used again")
        self.locals[name] = LocalSubscription(name, set(self.tables))
        effects: list[Effect] = []
        for tables in self._epochs():
            meets = self._meets(request.filter_)
            entry = Entry(name, self.broker, request.filter_, LOCAL, meets, max(self.tables))
            tables.install(entry)
            effects += self._forward(tables, entry)
        return effects + self._settle((name,), now_ms)

    def _cancel(self, request: CancelRequest, now_ms: float) -> list[Effect]:
        name = request.subscription
        local = self.locals.get(name)
        if local is None or local.cancelled_ms is not None:
            return []
        local.cancelled_ms = request.cancelled_ms
        effects: list[Effect] = []
        for tables in self._epochs():
            effects += self._begin_leaving(tables, name)
        return effects + self._settle((name,), now_ms)

    # --- neighbours --------------------------------------------------------------------------------------------

    def _converse(self, source: str, message: Message, now_ms: float) -> list[Effect]:
        match message:
            case Advertise():
                return self._learn_advertisement(source, message) + self._settle((), now_ms)
            case AdvertiseAck():
                known = self.advertisements.get(message.publisher)
                if known is not None:
                    known.unanswered.discard(source)
                return self._settle((), now_ms)
            case Unadvertise():
                return self._forget_advertisement(source, message.publisher)
            case Notification():
                raise ProtocolError("notifications are routed, not conversed")
        if message.epoch not in self.tables:
            return self._keep_early(source, message)
        tables = self.tables[message.epoch]
        match message:
            case Subscribe():
                return self._accept_subscription(tables, source, message, now_ms)
            case SubscribeAck():
                entry = tables.entries.get(message.subscription)
                if entry is not None:
                    entry.unconfirmed.discard(source)
                return self._settle((message.subscription,), now_ms)
            case Unsubscribe():
                return self._release_subscription(tables, source, message, now_ms)
            case UnsubscribeAck():
                entry = tables.entries.get(message.subscription)
                if entry is not None:
                    entry.unreleased.discard(source)
                return self._settle((message.subscription,), now_ms)
            case End():
                tables.ends_received.add(source)
                return self._release_held() + self._pass_end_on(now_ms)
        raise ProtocolError(f"{self.broker} got {type(message).__name__} from {source}")

    def _keep_early(self, source: str, message: Message) -> list[Effect]:
        """Keep what belongs to an epoch that is still to be prepared; ignore what belongs to a finished one."""
        epoch = message.epoch  # type: ignore[union-attr]
        if epoch > max(self.tables) and epoch > self._epoch_aborted_max:
            if len(self._early) >= EARLY_MESSAGES_MAX:
                self._early_overflowed = True
            else:
                self._early.append((source, message))
        return []

    def _accept_subscription(
        self, tables: RoutingTables, source: str, message: Subscribe, now_ms: float
    ) -> list[Effect]:
        effects: list[Effect] = []
        entry = tables.entries.get(message.subscription)
        if entry is None:
            meets = self._meets(message.filter_)
            issued_max = message.epoch_issued_max
            entry = Entry(message.subscription, message.home, message.filter_, source, meets, issued_max)
            tables.install(entry)
            effects += self._forward(tables, entry)
            effects += self._derive_later(tables, (entry,))
        entry.waiting.add(source)
        return effects + self._settle((message.subscription,), now_ms)

    def _release_subscription(
        self, tables: RoutingTables, source: str, message: Unsubscribe, now_ms: float
    ) -> list[Effect]:
        """Begin to leave in this epoch, and in a later one where the subscription also comes from ``source``."""
        effects: list[Effect] = []
        entry = tables.entries.get(message.subscription)
        if entry is None:
            effects.append(Send(source, UnsubscribeAck(tables.epoch, message.subscription)))
        for other in self._epochs():
            held = other.entries.get(message.subscription)
            if held is not None and held.towards == source and other.epoch >= tables.epoch:
                effects += self._begin_leaving(other, message.subscription)
        return effects + self._settle((message.subscription,), now_ms)

    def _begin_leaving(self, tables: RoutingTables, name: str) -> list[Effect]:
        entry = tables.entries.get(name)
        if entry is None or entry.leaving:
            return []
        entry.leaving = True
        entry.unreleased = set(entry.forwarded)
        return [Send(peer, Unsubscribe(tables.epoch, name)) for peer in sorted(entry.forwarded)]

    def _forward(self, tables: RoutingTables, entry: Entry, derived_from: Entry | None = None) -> list[Effect]:
        """Send the subscription to every neighbour with an advertisement it meets that does not hold it yet.

        When the entry is derived, a neighbour to which the older one was sent derives it too (:meth:`_derive_later`),
        since the way to the home is the same there, so no message is needed.
        """
        if entry.leaving:
            return []
        wanted = {
            tables.next_hop[self.advertisements[publisher].home]
            for publisher in entry.meets
            if self.advertisements[publisher].home != self.broker
        }
        effects: list[Effect] = []
        for peer in sorted(wanted - entry.forwarded - {entry.towards}):
            self.covered_forwards += tables.note_forward(entry, peer)
            if derived_from is None or peer not in derived_from.forwarded:
                entry.unconfirmed.add(peer)
                message = Subscribe(tables.epoch, entry.subscription, entry.home, entry.filter_, entry.epoch_issued_max)
                effects.append(Send(peer, message))
        return effects

    # --- advertisements ----------------------------------------------------------------------------------------

    def _meets(self, filter_: Filter) -> set[str]:
        return {name for name, known in self.advertisements.items() if intersects(known.filter_, filter_)}

    def _learn_advertisement(self, source: str, message: Advertise) -> list[Effect]:
        if message.publisher in self.advertisements or message.publisher in self._gone_publishers:
            return [] if source == LOCAL else [Send(source, AdvertiseAck(message.publisher))]
        peers = [peer for peer in self.live_neighbours if peer != source]
        known = Advertisement(message.publisher, message.home, message.filter_, source, set(peers), set())
        self.advertisements[message.publisher] = known
        self._unconfirmed_advertisements[message.publisher] = known
        effects: list[Effect] = [Send(peer, message) for peer in peers]
        for tables in self._epochs():
            met = [entry for entry in tables.entries.values() if intersects(message.filter_, entry.filter_)]
            for entry in met:
                entry.meets.add(message.publisher)
                effects += self._forward(tables, entry)
            effects += self._derive_later(tables, met)
        known.unsettled = {
            name
            for tables in self._epochs()
            for name, entry in tables.entries.items()
            if entry.unconfirmed and message.publisher in entry.meets
        }
        return effects

    def _forget_advertisement(self, source: str, publisher: str) -> list[Effect]:
        """Forget a publisher; subscriptions sent towards it stay there until they end or the next epoch.

        Withdrawing them now could overtake its last notifications on another link.
        """
        if publisher in self._gone_publishers:
            return []
        self._gone_publishers[publisher] = None
        while len(self._gone_publishers) > GONE_PUBLISHERS_MAX:
            del self._gone_publishers[next(iter(self._gone_publishers))]
        if self.advertisements.pop(publisher, None) is not None:
            for tables in self._epochs():
                for entry in tables.entries.values():
                    entry.meets.discard(publisher)
        return [Send(peer, Unadvertise(publisher)) for peer in self.live_neighbours if peer != source]

    # --- settling: acknowledgements, confirmations, answers ----------------------------------------------------

    def _settle(self, names: Iterable[str], now_ms: float) -> list[Effect]:
        """Send every acknowledgement and confirmation that has become true for these subscriptions."""
        effects: list[Effect] = []
        for name in names:
            effects += self._settle_subscription(name, now_ms)
        for known in list(self._unconfirmed_advertisements.values()):
            known.unsettled = {name for name in known.unsettled if not self._is_settled(name, min(self.tables))}
            if not known.unanswered and not known.unsettled:
                del self._unconfirmed_advertisements[known.publisher]
                if known.told_by == LOCAL:
                    effects.append(AdvertiseConfirmed(known.publisher))
                else:
                    effects.append(Send(known.told_by, AdvertiseAck(known.publisher)))
        return effects + self._tell_prepared(now_ms)

    def _settle_subscription(self, name: str, now_ms: float) -> list[Effect]:
        effects: list[Effect] = []
        for tables in self._epochs():
            entry = tables.entries.get(name)
            if entry is None:
                continue
            if self._is_settled(name, tables.epoch):
                effects += [Send(peer, SubscribeAck(tables.epoch, name)) for peer in sorted(entry.waiting)]
                entry.waiting.clear()
            if entry.leaving and not entry.unreleased:
                effects += self._finish_leaving(tables, entry)
        local = self.locals.get(name)
        if local is not None:
            effects += self._settle_local(local, now_ms)
        return effects

    def _finish_leaving(self, tables: RoutingTables, entry: Entry) -> list[Effect]:
        effects: list[Effect] = [
            Send(peer, SubscribeAck(tables.epoch, entry.subscription)) for peer in sorted(entry.waiting)
        ]
        tables.remove(entry.subscription)
        if entry.towards != LOCAL:
            effects.append(Send(entry.towards, UnsubscribeAck(tables.epoch, entry.subscription)))
        return effects

    def _settle_local(self, local: LocalSubscription, now_ms: float) -> list[Effect]:
        name = local.subscription
        if local.cancelled_ms is not None:
            if any(name in tables.entries for tables in self.tables.values()):
                return []
            del self.locals[name]
            return [Cancelled(name)]
        local.unconfirmed_epochs = {
            epoch for epoch in local.unconfirmed_epochs if epoch in self.tables and not self._is_settled(name, epoch)
        }
        if local.confirmed_ms is None and not local.unconfirmed_epochs:
            local.confirmed_ms = now_ms
            return [Confirmed(name)]
        return []

    def _is_settled(self, name: str, epoch: int) -> bool:
        """Tell whether the subscription is acknowledged in this epoch and in every later live one."""
        return not any(
            tables.epoch >= epoch and name in tables.entries and tables.entries[name].unconfirmed
            for tables in self.tables.values()
        )

    def _epochs(self) -> list[RoutingTables]:
        return [self.tables[epoch] for epoch in sorted(self.tables)]

    # --- the transition ----------------------------------------------------------------------------------------

    def _obey(self, command: Command, now_ms: float) -> list[Effect]:
        match command.phase:
            case CommandPhase.PREPARE:
                return self._prepare(command, now_ms)
            case CommandPhase.ACTIVATE:
                return self._activate(command, now_ms)
            case CommandPhase.RETIRE:
                return self._retire(command, now_ms)
            case CommandPhase.ABORT:
                return self._abort(command, now_ms)

    def _prepare(self, command: Command, now_ms: float) -> list[Effect]:
        if command.epoch_to in self.tables:
            under_way = self.transition
            if under_way is not None and not under_way.is_prepared:
                return []  # The answer follows when the subscriptions have settled.
            return [self._answer(command, Outcome.PREPARED, now_ms)]
        reason = self._reason_to_refuse_prepare(command)
        if not reason:
            try:
                configuration = self._target_of(command)
            except ValueError as error:
                reason = str(error)
        if reason:
            return [self._answer(command, Outcome.REFUSED, now_ms, reason)]
        self.tables[command.epoch_to] = RoutingTables(self.broker, configuration)
        self.transition = Transition(command.plan, command.epoch_from, command.epoch_to)
        older = self.tables[self.epoch]
        effects = self._derive_later(older, older.entries.values())
        self.transition.waiting_for = {
            name
            for name in {*self.tables[command.epoch_to].entries, *self.locals, *self._own_unconfirmed()}
            if not self._is_ready(name)
        }
        early = [(source, kept) for source, kept in self._early if kept.epoch == command.epoch_to]  # type: ignore[union-attr]
        self._early.clear()
        effects += self._tell_prepared(now_ms)
        for source, kept in early:
            effects += self._converse(source, kept, now_ms)
        return effects

    def _reason_to_refuse_prepare(self, command: Command) -> str:
        if command.epoch_to <= self._epoch_aborted_max:
            return f"epoch {command.epoch_to} was aborted"
        if command.epoch_from != self.epoch or len(self.tables) > 1:
            return f"holds epoch {self.epoch}, not {command.epoch_from}, with tables of {sorted(self.tables)}"
        if self._early_overflowed:
            self._early_overflowed = False
            return f"more than {EARLY_MESSAGES_MAX} messages came before the prepare"
        return ""

    def _target_of(self, command: Command) -> Configuration:
        """Return the configuration that a prepare asks for; raise ValueError when it cannot be or is another one."""
        target = self.tables[self.epoch].configuration.replaced(
            command.epoch_to,
            [link(a, b) for a, b in command.links_removed],
            [link(a, b) for a, b in command.links_added],
        )
        if command.digest != target.digest:
            raise ValueError(f"the target's digest is {target.digest} here, {command.digest} in the command")
        return target

    def _derive_later(self, older: RoutingTables, entries: Iterable[Entry]) -> list[Effect]:
        """Take entries over into the next epoch's tables where the way home is the same and they are needed.

        Needed means that an advertisement they meet lies beyond this broker, seen from their home.
        """
        effects: list[Effect] = []
        for tables in self._epochs():
            if tables.epoch <= older.epoch:
                continue
            for entry in list(entries):
                if entry.leaving or entry.subscription in tables.entries or entry.epoch_issued_max >= tables.epoch:
                    continue
                if not self._same_way(tables, entry):
                    continue
                derived = Entry(
                    entry.subscription,
                    entry.home,
                    entry.filter_,
                    entry.towards,
                    set(entry.meets),
                    entry.epoch_issued_max,
                )
                tables.install(derived)
                effects += self._forward(tables, derived, derived_from=entry)
        return effects

    def _same_way(self, tables: RoutingTables, entry: Entry) -> bool:
        if entry.towards == LOCAL:
            return True
        homeward = tables.next_hop[entry.home]
        if homeward != entry.towards:
            return False
        homes = {self.advertisements[publisher].home for publisher in entry.meets}
        return any(home == self.broker or tables.next_hop[home] != homeward for home in homes)

    def _own_unconfirmed(self) -> set[str]:
        return {name for name, known in self._unconfirmed_advertisements.items() if known.told_by == LOCAL}

    def _is_ready(self, name: str) -> bool:
        """Tell whether a subscription or publisher no longer keeps this broker from being prepared."""
        if name in self._unconfirmed_advertisements:
            return False
        local = self.locals.get(name)
        if local is not None and local.confirmed_ms is None and local.cancelled_ms is None:
            return False
        return self._is_settled(name, max(self.tables))

    def _tell_prepared(self, now_ms: float) -> list[Effect]:
        under_way = self.transition
        if under_way is None or under_way.is_prepared:
            return []
        under_way.waiting_for = {name for name in under_way.waiting_for if not self._is_ready(name)}
        if under_way.waiting_for:
            return []
        under_way.is_prepared = True
        return [self._result(under_way.plan, CommandPhase.PREPARE, under_way.epoch_to, Outcome.PREPARED, now_ms, "")]

    def _activate(self, command: Command, now_ms: float) -> list[Effect]:
        under_way = self.transition
        if self.epoch >= command.epoch_to:
            answers: list[Effect] = [self._answer(command, Outcome.ACTIVATED, now_ms)]
            if under_way is None or under_way.is_drained_told:
                answers.append(self._answer(command, Outcome.DRAINED, now_ms))
            return answers
        if under_way is None or under_way.epoch_to != command.epoch_to or not under_way.is_prepared:
            reason = f"not prepared for epoch {command.epoch_to}"
            return [self._answer(command, Outcome.REFUSED, now_ms, reason)]
        under_way.is_active = True
        self.epoch = command.epoch_to
        return [self._answer(command, Outcome.ACTIVATED, now_ms), *self._pass_end_on(now_ms)]

    def _pass_end_on(self, now_ms: float) -> list[Effect]:
        """Send END over each old link whose other old links have all ended, and tell when all have."""
        under_way = self.transition
        if under_way is None or not under_way.is_active:
            return []
        old = self.tables[under_way.epoch_from]
        effects: list[Effect] = []
        for peer in old.neighbours:
            if peer not in old.ends_sent and set(old.neighbours) - {peer} <= old.ends_received:
                old.ends_sent.add(peer)
                effects.append(Send(peer, End(old.epoch)))
        if old.is_drained and not under_way.is_drained_told:
            under_way.is_drained_told = True
            effects.append(
                self._result(under_way.plan, CommandPhase.ACTIVATE, under_way.epoch_to, Outcome.DRAINED, now_ms, "")
            )
        return effects

    def _retire(self, command: Command, now_ms: float) -> list[Effect]:
        under_way = self.transition
        is_its_plan = under_way is not None and under_way.epoch_to == command.epoch_to
        if self.epoch >= command.epoch_to and not is_its_plan:
            return [self._answer(command, Outcome.RETIRED, now_ms)]
        if under_way is None or not is_its_plan or not under_way.is_drained_told:
            reason = f"not drained for epoch {command.epoch_to}"
            return [self._answer(command, Outcome.REFUSED, now_ms, reason)]
        if self.held:
            raise ProtocolError(f"{self.broker} is drained but holds {len(self.held)} deliveries")
        answer = self._answer(command, Outcome.RETIRED, now_ms)
        return [*self._drop_tables(under_way.epoch_from, now_ms), answer]

    def _abort(self, command: Command, now_ms: float) -> list[Effect]:
        if self.epoch >= command.epoch_to:
            reason = f"epoch {command.epoch_to} is active already"
            return [self._answer(command, Outcome.REFUSED, now_ms, reason)]
        self._epoch_aborted_max = max(self._epoch_aborted_max, command.epoch_to)
        self._early = deque(
            (source, kept)
            for source, kept in self._early
            if kept.epoch > self._epoch_aborted_max  # type: ignore[union-attr]
        )
        answer = self._answer(command, Outcome.ABORTED, now_ms)
        if command.epoch_to not in self.tables:
            return [answer]
        return [*self._drop_tables(command.epoch_to, now_ms), answer]

    def _drop_tables(self, epoch: int, now_ms: float) -> list[Effect]:
        """Forget an epoch; whatever waited for it no longer does."""
        names = sorted(self.tables.pop(epoch).entries)
        self.transition = None
        effects = self._settle([*names, *sorted(set(self.locals) - set(names))], now_ms)
        while self._postponed:
            effects += self._serve(self._postponed.popleft(), now_ms)
        return effects

    # --- answers -----------------------------------------------------------------------------------------------

    def _answer(self, command: Command, outcome: Outcome, now_ms: float, reason: str = "") -> Answer:
        return self._result(command.plan, command.phase, command.epoch_to, outcome, now_ms, reason)

    def _result(
        self, plan: str, phase: CommandPhase, epoch_to: int, outcome: Outcome, now_ms: float, reason: str
    ) -> Answer:
        under_way = self.transition
        sent = under_way.control_messages if under_way is not None and under_way.plan == plan else 0
        return Answer(CommandResult(plan, phase, self.broker, epoch_to, outcome, reason, sent, int(now_ms)))

    def _count_control(self, sent: list[Message]) -> None:
        self.control_messages_sent += len(sent)
        if self.transition is not None:
            mine = {self.transition.epoch_to}
            self.transition.control_messages += sum(
                isinstance(message, End) or getattr(message, "epoch", None) in mine for message in sent
            )
