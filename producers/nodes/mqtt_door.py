"""The door to an MQTT 5 broker: a client of it, which hears all that is published there and its log.

In: the broker's address, the file of its log, and filters where that is silent. Out: interest and messages. Topics
belong to :mod:`producers.nodes.mqtt_topics`, other fields to :mod:`producers.nodes.mqtt_headers`, who wants what to
:mod:`producers.nodes.mqtt_interest`. The client library is paho-mqtt (the extra ``mqtt``), driven by this loop.

While the broker is away, what its clients wanted stands. A connection that is cut for a moment loses nothing of QoS 1:
the broker keeps it for the session and sends it again, and what has been taken already is known by its number.
"""

from __future__ import annotations

import asyncio
import json
import secrets
import ssl
import time
from collections import Counter, OrderedDict, deque
from collections.abc import Callable, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import structlog
from paho.mqtt import client as paho
from paho.mqtt.enums import CallbackAPIVersion
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties
from paho.mqtt.subscribeoptions import SubscribeOptions

from regraft.producers.nodes.doors import DoorError, LocalMessage
from regraft.producers.nodes.drive_paho import PahoDriver
from regraft.producers.nodes.mqtt_headers import MqttFields, block_of, fields_of
from regraft.producers.nodes.mqtt_interest import LOG_TOPIC, MqttInterest
from regraft.producers.nodes.mqtt_topics import TopicError, subject_of, topic_of
from regraft.producers.nodes.read_mosquitto_log import MosquittoLog
from regraft.schemas.status_file import replace_file

log = structlog.get_logger(__name__)

PORTS = {"mqtt": 1883, "mqtts": 8883}
CONNECT_S_MAX = 10.0
LOG_S_MAX = 2.0  # How long the broker's log may take to show our own subscription.
LOG_LINES_MAX = 100_000
RETRY_S, RETRY_S_MAX = 0.05, 2.0
KEEP_ALIVE_S = 15  # A node that is busy for this long would lose QoS 0 messages.
TEND_S = 1.0
SESSION_S = 60  # The broker keeps QoS 1 messages for this long while the connection is cut.
DURABLE_S = 7 * 24 * 3_600  # And for this long while a node with a durable session is away.
UNDER_WAY_MAX = 500  # Messages of a durable session that are not acknowledged.
WAITING_MAX = 20_000  # What waits for a broker that is slow; beyond it messages are dropped.
TAKEN_MAX = 1_000  # Numbers of messages that the broker might send again.
EVERYTHING = "#"
FIELDS_KEPT_MAX = 1_000
PAYLOAD_BYTES_MAX = 8 << 20  # What links carry; brokers have no such limit by default.
AWAY, SLOW, BAD_TOPIC, AGAIN = "broker_away", "broker_slow", "bad_topic", "redelivered"
TOO_LARGE = "payload_too_large"


class MqttDoor:
    """The way to one MQTT 5 broker. ``url`` is ``mqtt://host[:1883]``, mqtts with TLS; no user is nobody.

    ``filters`` are wanted whatever clients want, ``session_s`` is how long a session may outlast its client. A door
    that ``is_durable`` resumes the session of the node's former life, and acknowledges only what is safe.
    ``interest_file`` keeps what clients want for the node's next life, as the broker does not report it again. What
    they began to want while nobody listened stands in the broker's ``log_file`` alone; None for a broker whose log
    cannot be read from here.
    """

    def __init__(
        self,
        url: str,
        name: str,
        user: str = "",
        password: str = "",
        *,
        filters: Sequence[str] = (),
        session_s: float = 3_600.0,
        is_durable: bool = False,
        interest_file: Path | None = None,
        log_file: Path | None = None,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        parts = urlsplit(url)
        if parts.scheme not in PORTS or not parts.hostname:
            raise DoorError(f"{url!r} is no door: mqtt://host:port names an MQTT 5 broker, mqtts one with TLS")
        self.counts: Counter[str] = Counter()
        self.is_open = False
        self._host, self._port, self._name = parts.hostname, parts.port or PORTS[parts.scheme], name
        self._filters, self._session_s = tuple(filters), session_s
        self._is_durable = is_durable
        self._interest_file, self._changes_stored = interest_file, 0
        self._log = None if log_file is None else MosquittoLog(log_file)
        self._is_caught_up = log_file is None
        self._unheard: deque[tuple[str, str]] = deque(maxlen=LOG_LINES_MAX)  # What comes before we have caught up.
        self._client_id = f"regraft-{name}" if is_durable else f"regraft-{name}-{secrets.token_hex(4)}"
        self._client = self._new_client(user, password)
        if parts.scheme == "mqtts":
            self._client.tls_set_context(tls or ssl.create_default_context())
        self._driver = PahoDriver(self._client)
        self._interest: MqttInterest | None = None
        self._on_message: Callable[[LocalMessage], None] = lambda _: None
        self._tasks: list[asyncio.Task[None]] = []
        self._over: asyncio.Future[None] | None = None
        self._first: asyncio.Future[None] | None = None
        self._reason = "no answer"
        self._waiting = 0
        self._under_way: set[int] = set()  # Numbers of a durable session that are not acknowledged.
        self._taken: OrderedDict[int, int] = OrderedDict()  # Number -> hash of what came with it last.

    async def start(self, on_interest: Callable[[str, bool], None], on_message: Callable[[LocalMessage], None]) -> None:
        """Open the door; raise DoorError when the broker is not there, or nobody would say what its clients want."""
        self._on_message = on_message
        self._interest = MqttInterest(on_interest, f"regraft-{self._name}", self._session_s, self.counts)
        try:
            self._interest.want_always(self._filters)
        except TopicError as error:
            raise DoorError(f"node.door_filters: {error}") from error
        self._restore(self._interest)
        loop = asyncio.get_running_loop()
        self._driver.begin()
        self._first = loop.create_future()
        self._tasks = [loop.create_task(each) for each in (self._keep_open(), self._tend(), self._driver.tend())]
        try:
            await asyncio.wait_for(asyncio.shield(self._first), CONNECT_S_MAX)
            await self._catch_up_first()
            await self._hear_own_subscription()
        except TimeoutError as error:
            await self.close()
            raise DoorError(
                f"no MQTT 5 broker lets a client in at {self._host}:{self._port} within {CONNECT_S_MAX:g} s "
                f"({self._reason}): start it there, or give node.door_user and node.door_password_file"
            ) from error

    def _restore(self, interest: MqttInterest) -> None:
        if self._interest_file is None or not self._interest_file.exists():
            return
        try:
            interest.restore(json.loads(self._interest_file.read_text(encoding="utf-8")))
        except (OSError, ValueError, AttributeError, TypeError) as error:  # A TopicError is a ValueError.
            log.warning("interest_not_restored", broker=self._name, reason=str(error))

    def _store(self) -> None:
        interest = self._interest
        if self._interest_file is None or interest is None or interest.changes_count == self._changes_stored:
            return
        self._changes_stored = interest.changes_count
        replace_file(self._interest_file, json.dumps(interest.known()))

    async def _hear_own_subscription(self) -> None:
        """Make sure that somebody says what clients want: the broker's log, or who has configured filters."""
        until_s = time.monotonic() + LOG_S_MAX
        while self._interest is not None and not self._interest.heard_subscribing:
            if self._filters:
                log.info("door_log_silent", broker=self._name, filters=len(self._filters))
                return
            if time.monotonic() > until_s:
                await self.close()
                raise DoorError(
                    f"the broker at {self._host}:{self._port} does not report what its clients want: let Mosquitto "
                    "`log_dest topic` with `log_type subscribe`, `log_type unsubscribe` and `log_type notice`, and let "
                    f"this client read {LOG_TOPIC}#; for any other broker name the filters in node.door_filters"
                )
            await asyncio.sleep(0.01)

    async def _catch_up_first(self) -> None:
        """Wait until what stands in the broker's log is known."""
        until_s = time.monotonic() + LOG_S_MAX
        while not self._catch_up():
            if self._log is not None and time.monotonic() > until_s:
                await self.close()
                raise DoorError(
                    f"{self._log.file} does not hold the subscription of {self._client_id}: node.door_log_file is the "
                    "file of Mosquitto's `log_dest file`, with `log_type subscribe`, `log_type unsubscribe` and "
                    "`log_type notice`, where the node may read it"
                )
            await asyncio.sleep(0.01)

    def _catch_up(self) -> bool:
        """Take what the broker's log says up to our own subscription, then what was heard since; False for not yet."""
        interest = self._interest
        if self._log is None or self._is_caught_up or interest is None or not self.is_open:
            return self._is_caught_up
        try:
            lines = self._log.read(f"{self._client_id} 1 {EVERYTHING}")
        except OSError as error:
            log.warning("log_not_read", broker=self._name, reason=str(error))
            lines = None
        if lines is None:
            return False
        interest.catch_up(lines, time.monotonic())
        self._is_caught_up = True
        while self._unheard:
            interest.hear(*self._unheard.popleft(), time.monotonic())
        return True

    def publish(self, message: LocalMessage) -> bool:
        """Hand a message to the clients that want it; False if the broker is away or slow, or can have no such one."""
        if not self.is_open:
            self.counts[AWAY] += 1
            return False
        if self._waiting >= WAITING_MAX:
            self.counts[SLOW] += 1
            return False
        fields = fields_of(message.headers)
        try:
            topic, properties = topic_of(message.subject), _properties_of(fields, message.reply)
        except TopicError:
            self.counts[BAD_TOPIC] += 1
            return False
        sent = self._client.publish(topic, message.payload, fields.qos, fields.is_retained, properties)
        if sent.rc not in (paho.MQTT_ERR_SUCCESS, paho.MQTT_ERR_QUEUE_SIZE):
            self.counts[AWAY] += 1
            return False
        self._waiting += 1
        return True

    def release(self, receipt: int) -> None:
        """Acknowledge a message of a durable session."""
        self._under_way.discard(receipt)
        self._client.ack(receipt, 1)

    async def close(self) -> None:
        """Close the door, and end its session at the broker."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._tasks, self.is_open = [], False
        self._store()
        ending = Properties(PacketTypes.DISCONNECT)
        ending.SessionExpiryInterval = DURABLE_S if self._is_durable else 0
        self._client.disconnect(properties=ending)
        self._client.loop_write()
        await asyncio.sleep(0)

    # --- the connection ----------------------------------------------------------------------------------------------

    def _new_client(self, user: str, password: str) -> paho.Client:
        client = paho.Client(CallbackAPIVersion.VERSION2, self._client_id, protocol=paho.MQTTv5)
        if user:
            client.username_pw_set(user, password)
        client.max_queued_messages_set(WAITING_MAX)
        client.manual_ack_set(self._is_durable)
        client.on_connect, client.on_disconnect = self._note_connected, self._note_disconnected
        client.on_subscribe, client.on_message, client.on_publish = self._note_subscribed, self._take, self._note_sent
        return client

    async def _keep_open(self) -> None:
        loop = asyncio.get_running_loop()
        session = Properties(PacketTypes.CONNECT)
        session.SessionExpiryInterval = DURABLE_S if self._is_durable else SESSION_S
        if self._is_durable:
            session.ReceiveMaximum = UNDER_WAY_MAX
        is_clean = False if self._is_durable else paho.MQTT_CLEAN_START_FIRST_ONLY
        self._client.connect_async(self._host, self._port, KEEP_ALIVE_S, clean_start=is_clean, properties=session)
        pause_s = RETRY_S
        while True:
            self._over = loop.create_future()
            try:
                await self._driver.reconnect()
                await self._over
                pause_s = RETRY_S if self.is_open else pause_s
                log.warning("door_closed", broker=self._name, reason=self._reason)
            except OSError as error:
                self._reason = str(error)
                log.debug("door_not_reached", broker=self._name, reason=self._reason)
            self.is_open = False
            self.counts["refused"] += 1
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, RETRY_S_MAX)

    async def _tend(self) -> None:
        while True:
            await asyncio.sleep(TEND_S)
            if self._interest is not None:
                self._interest.expire(time.monotonic())
            self._catch_up()
            self._store()

    # --- what the broker says ----------------------------------------------------------------------------------------

    def _note_connected(self, client: paho.Client, _data: Any, flags: Any, reason: Any, _properties: Any) -> None:
        if reason.is_failure:
            self._reason = f"refused: {reason}"
            return
        if not flags.session_present:
            self._taken.clear()
            self._under_way.clear()
        self._waiting = 0
        self._is_caught_up = self._log is None
        everything = SubscribeOptions(qos=1, noLocal=True, retainAsPublished=True, retainHandling=2)
        # Of QoS 1 the log outlasts a cut of some seconds; with what waits in a durable session it would wait, too.
        log_qos = 0 if self._is_durable else 1
        client.subscribe([(f"{LOG_TOPIC}#", SubscribeOptions(qos=log_qos)), (EVERYTHING, everything)])

    def _note_subscribed(self, _client: Any, _data: Any, _number: int, reasons: Sequence[Any], _more: Any) -> None:
        if reasons[-1].is_failure:
            self._reason = f"may not subscribe to {EVERYTHING}: {reasons[-1]}"
            log.warning("door_refused", broker=self._name, reason=self._reason)
            return
        self.is_open = True
        self._catch_up()
        if self._first is not None and not self._first.done():
            self._first.set_result(None)

    def _note_disconnected(self, _client: Any, _data: Any, _flags: Any, reason: Any, _properties: Any) -> None:
        self.is_open = False
        self._reason = str(reason)
        if self._over is not None and not self._over.done():
            self._over.set_result(None)

    def _note_sent(self, *_: Any) -> None:
        self._waiting = max(self._waiting - 1, 0)

    def _take(self, _client: Any, _data: Any, message: paho.MQTTMessage) -> None:
        try:
            topic = message.topic
        except UnicodeDecodeError:
            self.counts[BAD_TOPIC] += 1
            return
        if topic.startswith(LOG_TOPIC) and self._interest is not None:
            said = message.payload.decode(errors="replace")
            if self._is_caught_up:
                self._interest.hear(topic, said, time.monotonic())
            else:
                self._unheard.append((topic, said))
        elif not topic.startswith("$") and not self._is_taken(message):
            if len(message.payload) > PAYLOAD_BYTES_MAX:
                self.counts[TOO_LARGE] += 1
                return
            fields, reply = _fields_of(message)
            receipt = message.mid if self._is_durable and message.qos else 0
            self._on_message(LocalMessage(subject_of(topic), bytes(message.payload), reply, block_of(fields), receipt))

    def _is_taken(self, message: paho.MQTTMessage) -> bool:
        """Return True if the broker sends again what has been taken, as it has not heard so."""
        if message.qos == 0:
            return False
        if self._is_durable:
            if message.mid in self._under_way:
                self.counts[AGAIN] += 1
                return True
            self._under_way.add(message.mid)
            return False
        content = hash((message.topic, bytes(message.payload)))
        if message.dup and self._taken.get(message.mid) == content:
            self.counts[AGAIN] += 1
            return True
        self._taken[message.mid] = content
        self._taken.move_to_end(message.mid)
        if len(self._taken) > TAKEN_MAX:
            self._taken.popitem(last=False)
        return False


def _fields_of(message: paho.MQTTMessage) -> tuple[MqttFields, str]:
    said: dict[str, Any] = {} if message.properties is None else vars(message.properties)
    reply = said.get("ResponseTopic", "")
    fields = MqttFields(
        tuple(said.get("UserProperty", ())),
        min(message.qos, 1),
        message.retain,
        said.get("PayloadFormatIndicator") == 1,
        said.get("ContentType", ""),
        said.get("CorrelationData"),
        said.get("MessageExpiryInterval"),
    )
    return fields, subject_of(reply) if reply else ""


@lru_cache(maxsize=FIELDS_KEPT_MAX)
def _properties_of(fields: MqttFields, reply: str) -> Properties:
    """Return the library's form of the fields, which takes it longer to make than all else: many messages share it."""
    properties = Properties(PacketTypes.PUBLISH)
    if fields.properties:
        properties.UserProperty = list(fields.properties)
    if fields.is_text:
        properties.PayloadFormatIndicator = 1
    if fields.content_type:
        properties.ContentType = fields.content_type
    if fields.correlation is not None:
        properties.CorrelationData = fields.correlation
    if fields.expiry_s is not None:
        properties.MessageExpiryInterval = fields.expiry_s
    if reply:
        properties.ResponseTopic = topic_of(reply)
    return properties
