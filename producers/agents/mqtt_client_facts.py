"""What an agent knows of one client of MQTT: its login, its subscriptions and why it may have to stay. Pure.

A filter ``a/#`` also matches the level above, which takes two subscriptions of the overlay. So the agent subscribes two
filters in its place, ``a`` and ``a/+/#``, each of which is one.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import mqtt5

from regraft.producers.agents.mqtt_frames import MQTT_5, MQTT_311
from regraft.producers.agents.mqtt_upstream import KEEP_ALIVE_S
from regraft.producers.nodes.mqtt.mqtt_session import RECEIVE_MAX
from regraft.producers.nodes.mqtt.mqtt_topics import topic_of
from regraft.schemas import agent_names
from regraft.schemas.agent_names import ALL_AGENTS, ORDERS, PRIVATE
from regraft.schemas.agent_note import NOTE_BYTES_MAX, TEXT_LENGTH_MAX, AgentNote, NoteKind
from regraft.schemas.stay_reasons import StayReason

SUBSCRIPTIONS_MAX = 10_000  # Of one client.
NOTES_ID, PRIVATE_ID, FLUSH_ID, FIRST_ID = 1, 2, 3, 16
TOPICS_KEPT_MAX = 2_000
PACKET_BYTES_MIN = 4 * NOTE_BYTES_MAX  # A client that accepts less could not have its messages handed over alone.
FLUSH = agent_names.FLUSH.replace(".", "/")
NOT_FOR_CLIENTS = "_REGRAFT/"
HOME = "/home"
# Nodes know each subscription of clients that may move, and of those that stay for these: notes pass their broker.
NAMED_STAYING = frozenset({None, StayReason.NO_ECHO, StayReason.SERVER_TOPICS, StayReason.QOS_2})


@dataclass(slots=True)
class MqttSubscription:
    """One of the agent's in place of the client's; ``number`` is -1 if nodes do not know it, ``id`` is for brokers.

    ``wanted`` are the client's filters for which it stands, with the identifiers that the client has given them, or 0.
    """

    filter: str
    home: str
    id: int
    number: int
    options: mqtt5.TopicFilter
    granted: int = 0
    wanted: dict[str, int] = field(default_factory=dict)
    called: dict[str, tuple[str, int]] = field(default_factory=dict)  # Broker -> what its node calls it, epoch or 0.

    @property
    def words(self) -> list[str]:
        """What it subscribes, word by word."""
        return self.filter.split("/")


@dataclass
class MqttClient:
    """One client; ``name`` is the agent's name for it. ``stays_because`` is None if it may move."""

    name: str
    version: int = MQTT_311
    id: str = ""  # Its client identifier, maybe assigned by the first broker.
    connect: mqtt5.ConnectPacket = field(default_factory=lambda: mqtt5.ConnectPacket(""))
    subscriptions: dict[str, MqttSubscription] = field(default_factory=dict)  # By the agent's filter.
    parts: dict[str, list[MqttSubscription]] = field(default_factory=dict)  # By the client's.
    ending: dict[int, MqttSubscription] = field(default_factory=dict)  # Of 3.1.1, until a broker has ended them.
    stays_because: StayReason | None = None
    has_published: bool = False
    _ids: int = FIRST_ID - 1
    _leading: dict[str, int] = field(default_factory=dict)  # Topic -> identifier of the subscription that gets it.
    _by_id: dict[int, MqttSubscription] = field(default_factory=dict)

    # --- the login ---------------------------------------------------------------------------------------------------

    def take_connect(self, connect: mqtt5.ConnectPacket, version: int) -> StayReason | None:
        """Note how the client introduces itself; return why no broker but its own can have it, None if others can."""
        self.version, self.connect, self.id = version, connect, connect.client_id
        if connect.authentication_method is not None:
            return StayReason.AUTHENTICATION
        is_kept = version == MQTT_311 and not connect.clean_start
        return StayReason.SESSION if is_kept or connect.session_expiry_interval else None

    @property
    def stays_partly(self) -> StayReason | None:
        """Why the client may not move, or nothing that it subscribes: with MQTT that is the same."""
        return self.stays_because

    def connect_packet(self, *, is_first: bool) -> mqtt5.ConnectPacket:
        """Return the client's CONNECT as the agent sends it: it takes more than the client, which it lets wait."""
        given = self.connect
        return mqtt5.ConnectPacket(
            self.id,
            username=given.username,
            password=given.password,
            clean_start=given.clean_start if is_first else True,
            will=given.will,
            keep_alive=KEEP_ALIVE_S,
            request_problem_info=given.request_problem_info,
            request_response_info=given.request_response_info,
            receive_max=RECEIVE_MAX,
            max_packet_size=given.max_packet_size,
            user_properties=given.user_properties,
        )

    def take_connack(self, facts: mqtt5.ConnAckPacket) -> StayReason | None:
        """Note what the first broker says; return why the client has to stay there."""
        self.id = facts.assigned_client_id or self.id
        size = self.connect.max_packet_size
        if facts.session_present:
            return StayReason.SESSION
        if size is not None and size < PACKET_BYTES_MIN:
            return StayReason.SMALL_PACKETS
        if not facts.subscription_id_available:
            return StayReason.NO_IDENTIFIERS
        return StayReason.LONG_NAME if len(self.id) > TEXT_LENGTH_MAX else None

    def connack_for(self, facts: mqtt5.ConnAckPacket) -> mqtt5.ConnAckPacket:
        """Return what the client gets in place of a broker's CONNACK: the agent takes no topic aliases, and pings."""
        return mqtt5.ConnAckPacket(
            session_present=facts.session_present,
            reason_code=facts.reason_code,
            assigned_client_id=facts.assigned_client_id if self.version == MQTT_5 else None,
            response_info=facts.response_info,
            server_reference=facts.server_reference,
            reason_str=facts.reason_str,
            receive_max=facts.receive_max,
            max_qos=facts.max_qos,
            retain_available=facts.retain_available,
            max_packet_size=facts.max_packet_size,
            wildcard_subscription_available=facts.wildcard_subscription_available,
            subscription_id_available=facts.subscription_id_available,
            shared_subscription_available=facts.shared_subscription_available,
            user_properties=facts.user_properties,
        )

    # --- subscriptions -----------------------------------------------------------------------------------------------

    def reason_to_stay(self, options: mqtt5.TopicFilter) -> StayReason | None:
        """Return why a client with this subscription has to stay, None if it has not."""
        if options.pattern.startswith("$"):
            return StayReason.SERVER_TOPICS
        if options.max_qos.value == 2:
            return StayReason.QOS_2
        if options.no_local:
            return StayReason.NO_ECHO
        return StayReason.LONG_NAME if len(options.pattern) + 2 > TEXT_LENGTH_MAX else None

    def subscribe(self, options: mqtt5.TopicFilter, own_id: int, home: str) -> list[MqttSubscription]:
        """Note a subscription of the client; return the agent's in its place, new or not."""
        pattern = options.pattern
        parts = self.parts.setdefault(pattern, [])
        if not parts:
            for part in split(pattern) if self._is_named(pattern) else [pattern]:
                parts.append(self.subscriptions.get(part) or self._new(part, options, home))
        for each in parts:
            each.options, each.wanted[pattern] = options, own_id
        return parts

    def _new(self, part: str, options: mqtt5.TopicFilter, home: str) -> MqttSubscription:
        subscription = MqttSubscription(part, home, 0, -1, options)
        self.subscriptions[part] = subscription
        self.renumber(subscription)
        return subscription

    def renumber(self, subscription: MqttSubscription) -> None:
        """Give a subscription a number that no earlier one had: it restarts."""
        self._by_id.pop(subscription.id, None)
        self._ids += 1
        subscription.id = self._ids
        subscription.called.clear()
        subscription.number = self._ids if self._is_named(subscription.filter) else -1
        self._by_id[self._ids] = subscription
        self._leading.clear()

    def _is_named(self, pattern: str) -> bool:
        """Return True if nodes know a subscription as the client's; topics of the broker are none of the overlay."""
        return self.stays_because in NAMED_STAYING and not pattern.startswith("$")

    def forget(self, pattern: str) -> list[MqttSubscription]:
        """Forget a subscription that the client has ended; return the agent's that end with it."""
        ended = []
        for each in self.parts.pop(pattern, ()):
            each.wanted.pop(pattern, None)
            if not each.wanted:
                self.subscriptions.pop(each.filter, None)
                self._by_id.pop(each.id, None)
                self._leading.clear()
                ended.append(each)
                if self.version == MQTT_311:
                    self.ending[each.id] = each
        return ended

    def note_gone(self, subscription: MqttSubscription) -> None:
        """Note that nothing more comes by a subscription that the client has ended."""
        self.ending.pop(subscription.id, None)
        self._leading.clear()

    def stand_in(self, home: str) -> MqttSubscription | None:
        """Return a new subscription by which a plan can move a client that only publishes; None if it needs none."""
        if self.stays_because or self.subscriptions or not self.has_published:
            return None
        pattern = f"{FLUSH}{topic_of(self.name)}{HOME}"
        options = mqtt5.TopicFilter(pattern, max_qos=mqtt5.QoS.AT_MOST_ONCE, retain_as_published=False)
        return self.subscribe(options, 0, home)[0]

    def note_granted(self, subscription: MqttSubscription, qos: int) -> None:
        """Note which QoS a broker grants."""
        subscription.granted = qos
        self._leading.clear()

    def is_repeat(self, subscription: MqttSubscription, topic: str) -> bool:
        """Return True if a client of 3.1.1 gets a message by another of its subscriptions, and so not by this one.

        A broker delivers to the agent by each of them, as to any client of MQTT 5. One that ends leads until nothing
        more comes by it: by another, the client would get what is on its way twice, or not at all.
        """
        every = [*self.subscriptions.values(), *self.ending.values()]
        if self.version == MQTT_5 or len(every) == 1:
            return False
        if topic not in self._leading:
            if len(self._leading) >= TOPICS_KEPT_MAX:
                self._leading.clear()
            levels = topic.split("/")
            matching = [each for each in every if matches(each.filter.split("/"), levels)]
            leading = max(matching, key=lambda each: (each.granted, -each.id), default=subscription)
            self._leading[topic] = leading.id
        return self._leading[topic] != subscription.id

    def numbered(self, number: int) -> MqttSubscription | None:
        """Return the subscription with a number of the agent's."""
        return self._by_id.get(number)

    def has_ended(self, number: int) -> bool:
        """Return True for the number of a subscription that has ended."""
        return 0 < number <= self._ids and number not in self._by_id

    def asked(self, subscription: MqttSubscription, *, is_moving: bool) -> mqtt5.TopicFilter:
        """Return what the agent asks a broker for; what a broker retains, a moving subscription has already."""
        given = subscription.options
        return mqtt5.TopicFilter(
            subscription.filter,
            max_qos=given.max_qos,
            no_local=given.no_local,
            retain_as_published=given.retain_as_published,
            retain_handling=mqtt5.RetainHandling.SEND_NEVER if is_moving else given.retain_handling,
        )

    def beside(self, subscription: MqttSubscription, broker: str) -> AgentNote:
        """Return the note by which a broker's node knows whose a subscription is."""
        name, epoch = subscription.called[broker]
        return AgentNote(NoteKind.BESIDE, name, epoch, identifier=self.id, filter=subscription.filter)

    @property
    def notes_topic(self) -> str:
        """The topic of what nodes and the agent say about the client."""
        return topic_of(f"{ORDERS}{self.name}")

    @property
    def orders_filters(self) -> list[str]:
        """Where nodes reach the client's agent."""
        return [self.notes_topic, topic_of(ALL_AGENTS)]

    @property
    def private_filter(self) -> str:
        """What the client's subscriptions get alone."""
        return f"{topic_of(f'{PRIVATE}{self.name}')}/#"

    @property
    def flush_topic(self) -> str:
        """The topic of the agent's own messages through the overlay."""
        return f"{FLUSH}{topic_of(self.name)}"


def matches(wanted: list[str], levels: list[str]) -> bool:
    """Return True if a filter matches a topic, both in levels."""
    for place, level in enumerate(wanted):
        if level == "#":
            return True
        if place >= len(levels) or level not in ("+", levels[place]):
            return False
    return len(wanted) == len(levels)


def split(pattern: str) -> list[str]:
    """Return filters that each are one subscription of the overlay, and together match what this one does."""
    if pattern == "#" or not pattern.endswith("/#") or pattern.endswith("+/#"):
        return [pattern]
    above = pattern.removesuffix("/#")
    return [above, f"{above}/+/#"] if above else [f"{above}/+/#"]  # No topic is empty.
