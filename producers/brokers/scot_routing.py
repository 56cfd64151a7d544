"""How a broker of a structured cyclic overlay handles each message (Shafique).

In: one message at a time from a neighbour or a local client, the time, and now and then measurements of its links'
queues. Out: effects. A notification carries the clusters that its receiver must serve. The broker itself decides which
links are congested (:mod:`overlay.link_congestion`); :mod:`producers.brokers.scot_routing` decides where copies go.
Subscriptions and publishers belong to :mod:`producers.brokers.scot_interests`, the change from one configuration to the
next to :mod:`producers.brokers.scot_change`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial

from regraft.overlay.link_congestion import PRODUCT, CongestionRule, QueueWindow
from regraft.overlay.scot.scot_configuration import ScotConfiguration
from regraft.producers.brokers.broker_messages import (
    Advertise,
    AdvertiseAck,
    AdvertiseRequest,
    ArriveRequest,
    CancelRequest,
    ClientRequest,
    ControlMessage,
    Dropped,
    Effect,
    FlowEnd,
    LeaveRequest,
    Notification,
    Published,
    PublisherComes,
    ReadyRequest,
    Send,
    Subscribe,
    SubscribeAck,
    SubscribeRequest,
    Unadvertise,
    UnadvertiseRequest,
    Unsubscribe,
    VectorAck,
    VectorBit,
)
from regraft.producers.brokers.broker_reports import NOT_ADVERTISED, ProtocolError
from regraft.producers.brokers.broker_state import BrokerState
from regraft.producers.brokers.epoch_change import rejected
from regraft.producers.brokers.scot_change import ScotChange
from regraft.producers.brokers.scot_interests import ScotInterests
from regraft.producers.brokers.scot_tables import LOCAL, ScotPlanUnderWay, ScotState, ScotTables
from regraft.producers.brokers.two_epochs import TwoEpochBroker


def vector_of(clusters: Iterable[int]) -> int:
    """Return the vector with the bits of these clusters set."""
    vector = 0
    for cluster in clusters:
        vector |= 1 << cluster
    return vector


def clusters_of(vector: int) -> list[int]:
    """Return the clusters whose bits are set, ascending."""
    return [cluster for cluster in range(vector.bit_length()) if vector >> cluster & 1]


def without(vector: int, cluster: int) -> int:
    """Return the vector with the bit of one cluster cleared."""
    return vector & ~(1 << cluster)


def as_text(vector: int, cluster_count: int) -> str:
    """Return the vector as the paper writes it, cluster 0 on the right."""
    return format(vector, f"0{cluster_count}b")


Copies = list[tuple[str, int]]
SPOKEN = (
    Subscribe, SubscribeAck, Unsubscribe, Advertise, AdvertiseAck, Unadvertise,
    VectorBit, VectorAck, PublisherComes, FlowEnd,
)  # fmt: skip


def copies(
    within: Collection[str], region: Sequence[str], vector: int, hot: Collection[str], loads: Mapping[str, float]
) -> Copies:
    """Return the neighbours that get a copy, each with the clusters that it must serve.

    ``within``: the neighbours in the cluster that want it. ``region``: the broker of each cluster here. ``hot``: the
    congested links. Clusters behind hot links are left to the least loaded free link to another cluster. If there is
    none, all clusters are left to the least loaded free link within the cluster; if there is none either, one copy
    takes the least loaded link to another cluster and serves the rest as well.
    """
    copied = [(peer, 0) for peer in sorted(within)]
    if not vector:
        return copied
    clusters = clusters_of(vector)
    free = [cluster for cluster in clusters if region[cluster] not in hot]
    if free:
        left = vector & ~vector_of(free)
        carrier = min(free, key=lambda cluster: (loads.get(region[cluster], 0.0), cluster))
        return copied + [(region[each], left if each == carrier else 0) for each in free]
    free_within = [peer for peer in sorted(within) if peer not in hot]
    if free_within:
        chosen = min(free_within, key=lambda peer: (loads.get(peer, 0.0), peer))
        return [(peer, vector if peer == chosen else 0) for peer in sorted(within)]
    least = min(clusters, key=lambda cluster: (loads.get(region[cluster], 0.0), cluster))
    return [*copied, (region[least], without(vector, least))]


class LinkLoads:
    """The links of one broker as it measures them, and whether it sends notifications around the congested ones.

    ``rule`` decides when a link is congested; with ``is_dynamic``, notifications go around such links. ``diverted``
    counts the clusters that were left to a broker other than the one static routing chooses.
    """

    def __init__(self, rule: CongestionRule) -> None:
        self.rule = rule
        self.is_dynamic = True
        self.diverted = 0
        self.loads: dict[str, float] = {}
        self.hot: frozenset[str] = frozenset()

    def observe(self, windows: Mapping[str, QueueWindow]) -> None:
        """Note the measurements of all links' queues in the last window, by neighbour."""
        self.loads = {peer: self.rule.measure(window) for peer, window in windows.items()}
        self.hot = frozenset(
            peer for peer, load in self.loads.items() if self.rule.is_above(load, was=peer in self.hot)
        )


class ScotBroker(TwoEpochBroker[ScotTables, ScotPlanUnderWay]):
    """The protocol core of a broker of a structured cyclic overlay, or of an outsider, with its links' measurements."""

    def __init__(
        self,
        broker: str,
        configuration: ScotConfiguration,
        boot_ms: int,
        rule: CongestionRule = PRODUCT,
        *,
        is_outside: bool = False,
    ) -> None:
        self.links = LinkLoads(rule)
        state: ScotState = BrokerState(broker, ScotTables(broker, configuration, is_outside=is_outside))
        super().__init__(state, boot_ms, partial(ScotRouting, state, self.links))


class ScotRouting:
    """Message routing at one broker. A :class:`producers.brokers.epoch_change.Routing`."""

    covered_forwards = 0

    def __init__(self, state: ScotState, links: LinkLoads) -> None:
        self._state = state
        self._links = links
        self.broker = state.broker
        self.interests = ScotInterests(state)
        self.change = ScotChange(state, self.interests)

    @property
    def ended_count(self) -> int:
        """Number of subscriptions that have ended and are served a while longer."""
        return self.interests.ended_count

    def clients_here(self) -> dict[str, int]:
        """Return the publishers and subscribers whose home this broker is, with the number of their stay."""
        return self.interests.clients_here()

    def release_ended(self) -> list[Effect]:
        """Forget the subscriptions that ended long ago."""
        return self.interests.release_ended()

    # --- notifications -----------------------------------------------------------------------------------------------

    def route(self, source: str | None, notification: Notification) -> list[Effect]:
        """Pass a notification on in the cluster and to the clusters that it must serve, and hand it over here."""
        effects: list[Effect] = []
        if source is None:
            host = self._state.tables[self._state.epoch].host_of(notification.publisher)
            if host is None:
                return [Dropped(notification, NOT_ADVERTISED)]
            notification = replace(notification, epoch=self._state.epoch, vector=host.vector)
            effects.append(Published(notification))
        tables = self.change.tables_for(source, notification)
        if isinstance(tables, Dropped):
            return [tables]
        if notification.vector & ~tables.others:
            raise ProtocolError(f"{source} left {self.broker} clusters that it cannot serve: {notification.vector:b}")
        destinations = tables.index.destinations(notification.content, source)
        self._send_copies(tables, source, notification, destinations - {LOCAL}, effects)
        if LOCAL in destinations:
            self.change.hand_over(notification, tables.index.keys_for(notification.content, LOCAL), effects)
        return effects

    def _send_copies(
        self,
        tables: ScotTables,
        source: str | None,
        notification: Notification,
        within: set[str],
        effects: list[Effect],
    ) -> None:
        links = self._links
        # Static routing crosses between clusters only at the publisher's home.
        is_crossed = notification.is_detour or source is not None
        hot, loads = (links.hot, links.loads) if links.is_dynamic else (frozenset[str](), {})
        for peer, left in copies(within, tables.region, notification.vector, hot, loads):
            is_detour = notification.is_detour if peer in within else is_crossed
            effects.append(Send(peer, notification.routed(left, is_detour=is_detour)))
            links.diverted += left.bit_count()

    # --- clients and neighbours --------------------------------------------------------------------------------------

    def serve(self, request: ClientRequest) -> list[Effect]:
        """Handle a request of a local client."""
        if isinstance(request, SubscribeRequest | AdvertiseRequest) and not self._state.takes_clients:
            return rejected(request)
        match request:
            case SubscribeRequest():
                return self.interests.subscribe(request)
            case CancelRequest():
                return self.interests.cancel(request)
            case AdvertiseRequest():
                return self.change.advertise(request)
            case UnadvertiseRequest():
                return self.change.unadvertise(request)
            case LeaveRequest():
                return self.change.note_leave(request)
            case ArriveRequest():
                return self.change.movers.arrive(request)
            case ReadyRequest():
                return self.change.movers.note_ready(request)
        raise ProtocolError(f"{self.broker} got {type(request).__name__} from a client")

    def converse(self, source: str, message: ControlMessage) -> list[Effect]:
        """Handle a control message from a neighbour; raise ProtocolError for one of another kind of overlay."""
        if not isinstance(message, SPOKEN):  # At once: it might have to wait for a plan.
            raise ProtocolError(f"{self.broker} got {type(message).__name__} from {source}")
        tables = self._tables_of(message)
        if tables is None:
            return self._state.keep_early(message.epoch, source, message)
        if isinstance(message, PublisherComes):
            return self.change.note_arrival(message)
        if source in tables.dead or tables.is_outside:
            return []
        if isinstance(message, FlowEnd):
            return self.change.note_flow_end(tables, source, message)
        return self._learn(tables, source, message)

    def _tables_of(self, message: ControlMessage) -> ScotTables | None:
        """Return the oldest live tables that a message is about, or None."""
        if not isinstance(message, Subscribe | SubscribeAck | Unsubscribe):
            return self._state.tables.get(message.epoch)
        return next((one for one in self._state.epochs() if one.interest == message.epoch), None)

    def _learn(self, tables: ScotTables, source: str, message: ControlMessage) -> list[Effect]:
        interests = self.interests
        match message:
            case Subscribe(_, subscription, home, filter_):
                return interests.learn(tables, source, subscription, filter_, home)
            case SubscribeAck(_, subscription):
                return interests.accept_ack(tables, source, subscription)
            case Unsubscribe(_, subscription):
                return interests.forget(tables, source, subscription)
            case Advertise():
                return interests.learn_publisher(tables, source, message)
            case AdvertiseAck(_, publisher, connection):
                return interests.note_known(tables, source, publisher, connection)
            case Unadvertise(_, publisher, connection):
                return interests.forget_publisher(tables, (publisher, connection))
            case VectorBit():
                return interests.set_bit(tables, source, message)
            case VectorAck():
                return interests.note_bit_set(tables, message)
        raise ProtocolError(f"{self.broker} got {type(message).__name__} from {source}")
