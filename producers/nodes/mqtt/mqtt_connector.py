"""The connector to an MQTT 5 broker: a client that receives everything published there, and the broker's log.

In: the broker's address, its log file, and filters if its log is not readable. Out: interest and messages.
Messages belong to :mod:`producers.nodes.mqtt.mqtt_messages`, interest to :mod:`producers.nodes.mqtt.mqtt_interest`, the
connection to :mod:`producers.nodes.mqtt.mqtt_session`.

While the broker is away, its clients' interest stays as it was. A brief cut of the connection loses no QoS 1 message:
the broker keeps them for the session and sends them again, and those already taken are recognised by their numbers.
"""

from __future__ import annotations

import asyncio
import json
import secrets
import ssl
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import structlog
from mqtt5 import PublishPacket, QoS, TopicFilter

from regraft.producers.nodes.connectors.agent_line import AgentLine
from regraft.producers.nodes.connectors.connector import ConnectorError, LocalMessage, NoteLine
from regraft.producers.nodes.connectors.connector_addresses import ConnectorAddresses, RetryPause
from regraft.producers.nodes.connectors.connector_checks import BAD_SUBJECT
from regraft.producers.nodes.connectors.kept_connector import KeptConnector
from regraft.producers.nodes.connectors.look_for_nodes import loop_error
from regraft.producers.nodes.connectors.roaming_clients import RoamingClients
from regraft.producers.nodes.mqtt.mosquitto_reports import MosquittoReports, comes_true, knocking
from regraft.producers.nodes.mqtt.mqtt_interest import LOG_TOPIC, MqttInterest
from regraft.producers.nodes.mqtt.mqtt_messages import fields_for, message_of
from regraft.producers.nodes.mqtt.mqtt_retained import RetainedTopics
from regraft.producers.nodes.mqtt.mqtt_session import AWAY, FAILED, IDS, MqttLogin, MqttSession, PublishFields, all_of
from regraft.producers.nodes.mqtt.mqtt_taken import Taken, TakenAtOnce, TakenUntilSafe
from regraft.producers.nodes.mqtt.mqtt_topics import TopicError, subject_of, topic_of
from regraft.producers.nodes.mqtt.watch_echoes import EchoWatch
from regraft.schemas.parse_text import parse_json
from regraft.schemas.safe_names import safe_name
from regraft.schemas.status_file import replace_file
from regraft.schemas.topics import DEFAULT_NAMESPACE
from regraft.schemas.wire_grammar import HEADERS_BYTES_MAX, PAYLOAD_BYTES_MAX, SUBJECT_BYTES_MAX

log = structlog.get_logger(__name__)

PORTS = {"mqtt": 1883, "mqtts": 8883}
ADVICE = "mqtt://host:port names an MQTT 5 broker, mqtts one with TLS"
CONNECT_S_MAX = 10.0
LOG_S_MAX = 2.0  # Until the broker's log must show our own subscription.
MAINTAIN_S = 1.0
SESSION_S = 60  # The broker keeps QoS 1 messages for this long while the connection is cut.
DURABLE_S = 7 * 24 * 3_600  # And for this long while a node with a durable session is away.
UNDER_WAY_MAX = 500  # Messages of a durable session that are not acknowledged.
BAD_TOPIC, REDELIVERED, ECHO = "bad_topic", "redelivered", "echoed"
ECHOED = "a message circulates between this broker and another: remove the bridge between them"


class MqttConnector(KeptConnector):
    """The way to one MQTT 5 broker. ``url`` is ``mqtt://host[:1883]``, mqtts with TLS; several addresses, of one
    cluster, are separated by commas, and tried in turn. Without a user it is anonymous.

    ``filters`` are always wanted; ``session_s`` is how long a session may outlast its client's connection. A connector
    that ``is_durable`` resumes the session of the node's former incarnation, and acknowledges a message only once it is
    safe. ``interest_file`` keeps what clients want for the node's next incarnation, because the broker does not report
    it again. Subscriptions made while nobody listened are only in the broker's ``log_file``, None if it cannot be read
    from here.
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
        overlay: str = DEFAULT_NAMESPACE,
    ) -> None:
        super().__init__(ConnectorAddresses(url, PORTS, ADVICE), name, overlay, partial(self._send, 0), CONNECT_S_MAX)
        self._filters = tuple(filters)
        self._is_durable, self._interest_file, self._changes_stored = is_durable, interest_file, 0
        own = f"regraft-{safe_name(name)}"
        self._client_id = own if is_durable else f"{own}-{secrets.token_hex(4)}"
        self._interest = MqttInterest(self._checks.note_interest, own, session_s, self.counts)
        retained_file = None if interest_file is None else interest_file.with_suffix(".retained.json")
        self._retained = RetainedTopics(self._interest.keep, retained_file, self.counts)
        self._reports = MosquittoReports(name, (self._client_id, user), log_file, self.counts)
        context = (tls or ssl.create_default_context()) if self._addresses.scheme == "mqtts" else None
        self._session = MqttSession(self._login(user, password, context), self._take, self.counts)
        self._is_subscribed = False
        self._search.on_found = lambda node: self._session.cut(loop_error(node))
        self._echoes = EchoWatch(self._note_local, self._refuse_echo)
        self._line = AgentLine(partial(self._send, 1), overlay)
        self.agents: NoteLine | None = self._line
        self.roaming: RoamingClients = RoamingClients(name, self.counts, self._interest.knows)
        self._interest.on_session, self._line.on_beside = self.roaming.note, self._interest.note_beside
        self._taken: Taken = TakenUntilSafe() if is_durable else TakenAtOnce()

    def _login(self, user: str, password: str, tls: ssl.SSLContext | None) -> MqttLogin:
        return MqttLogin(
            self._client_id,
            session_s=DURABLE_S if self._is_durable else SESSION_S,
            packet_bytes_max=PAYLOAD_BYTES_MAX + HEADERS_BYTES_MAX,
            is_resumed=self._is_durable,
            receive_max=UNDER_WAY_MAX if self._is_durable else IDS,
            user=user,
            password=password,
            tls=tls,
        )

    def _prepare(self) -> None:
        """Want what is always wanted, and was in the node's former incarnation; raise ConnectorError if a filter is
        none.
        """
        self._interest.groups_once = self.groups_once
        try:
            self._interest.want_always(self._filters)
        except TopicError as error:
            raise ConnectorError(f"connectors.mqtt.filters: {error}") from error
        self._restore()

    async def _settle(self) -> None:
        """Look for other nodes, and learn what clients want; raise ConnectorError if nothing reports it."""
        self._tasks.append(asyncio.get_running_loop().create_task(self._maintain()))
        await self._search.look()
        await self._catch_up_first()
        await self._await_reports()

    def _advice(self) -> str:
        return (
            f"no MQTT 5 broker has accepted a client at {self._addresses} within {CONNECT_S_MAX:g} s "
            f"({self._reason}): start it there, or give node.connector_user and node.connector_password_file"
        )

    def _restore(self) -> None:
        """Restore what the node wanted in its former incarnation."""
        self._retained.restore()
        if self._interest_file is None or not self._interest_file.exists():
            return
        try:
            self._interest.restore(parse_json(self._interest_file.read_text(encoding="utf-8")))
        except (OSError, ValueError, AttributeError, TypeError) as error:  # TopicError is a ValueError.
            log.warning("interest_not_restored", broker=self._name, reason=str(error))

    def _store(self) -> None:
        self._retained.store()
        if self._interest_file is not None and self._interest.changes_count != self._changes_stored:
            self._changes_stored = self._interest.changes_count
            replace_file(self._interest_file, json.dumps(self._interest.known()))

    async def _await_reports(self) -> None:
        """Wait until the log shows what this node does; raise ConnectorError if it does not, unless filters
        are listed.
        """
        reports = self._reports
        if await comes_true(lambda: reports.is_understood, LOG_S_MAX):
            async with knocking(self._addresses.host, self._addresses.port):
                if await comes_true(lambda: not reports.missing, LOG_S_MAX):
                    return
        if self._filters:
            log.info(
                "connector_log_silent", broker=self._name, filters=len(self._filters), missing=list(reports.missing)
            )
            return
        raise ConnectorError(f"the broker at {self._addresses} {reports.missing_error}")

    async def _catch_up_first(self) -> None:
        """Wait until the broker's log file has been read; raise ConnectorError if our subscription does not appear
        there.
        """
        if not await comes_true(self._catch_up, LOG_S_MAX):
            error = self._reports.file_error or f"does not hold the subscription of {self._client_id}"
            raise ConnectorError(
                f"{self._reports.file} {error}: connectors.mqtt.log_file must be the file of Mosquitto's "
                "`log_dest file`, with `log_type subscribe`, `log_type unsubscribe` and `log_type "
                "notice`, where the node may read it"
            )

    def _catch_up(self) -> bool:
        """Process the log file up to our own subscription, then later entries; return False if it is not there yet."""
        if not self.is_open:
            return self._reports.is_caught_up
        return self._reports.catch_up(self._interest, time.monotonic())

    @property
    def is_open(self) -> bool:
        """Return True if the broker is connected, sends what is published, and reaches no other node by itself."""
        return self._is_subscribed and self._session.is_connected and self._search.is_open

    def publish(self, message: LocalMessage) -> bool:
        """Hand a message to the clients that want it; return False if the broker is away, slow or cannot carry it."""
        if not self.is_open:
            self.counts[AWAY] += 1
            return False
        checked = self._checks.checked(message)
        if checked is None:
            return False
        try:
            qos, fields = fields_for(checked, self._checks.stamp_of(message))
            self._echoes.note_handed_over(checked)
            is_taken = [self._hand_over_apart(name, checked, qos, fields) for name in message.apart_for]
            return all(is_taken) if message.only_for else self._hand_over(checked, qos, fields)
        except ValueError:  # From topic_of, or the codec.
            self.counts[BAD_TOPIC] += 1
            return False

    def _hand_over(self, message: LocalMessage, qos: int, fields: PublishFields) -> bool:
        """Publish a message, and follow its topic if the broker retains it."""
        subject, payload = message.subject, message.payload
        is_retained = fields["retain"] and self._session.keeps_retained
        if is_retained and payload and not self._retained.may_retain(subject):
            is_retained = fields["retain"] = False
        is_taken = self._session.publish(topic_of(subject), payload, qos, fields)
        if is_taken and is_retained:
            expiry_s = fields["message_expiry_interval"]
            self._retained.note(subject, is_deleted=not payload, expiry_s=expiry_s, now_s=time.time())
        return is_taken

    def _hand_over_apart(self, name: str, message: LocalMessage, qos: int, fields: PublishFields) -> bool:
        """Publish a message for one subscription that a plan is bringing here."""
        topic = topic_of(AgentLine.private(name, message).subject)
        return self._session.publish(topic, message.payload, qos, {**fields, "retain": False})

    def _send(self, qos: int, message: LocalMessage) -> None:
        """Publish what the node itself has to say; at QoS 1 it overtakes nothing."""
        self._session.publish(topic_of(message.subject), message.payload, qos, PublishFields(), is_own=True)

    def release(self, receipt: int) -> None:
        """Acknowledge a message of a durable session: now, or if the broker is away, once it is sent again."""
        if packet_id := self._taken.release(receipt, self._session.is_connected):
            self._session.acknowledge(packet_id)

    async def close(self) -> None:
        """Close the connector; the broker ends its session, or keeps a durable one for ``DURABLE_S``."""
        await self._end_tasks()
        self._is_subscribed = False
        self._store()
        await self._session.close(DURABLE_S if self._is_durable else 0)

    # --- the connection ----------------------------------------------------------------------------------------------

    async def _stay_open(self, pause: RetryPause) -> str:
        async with asyncio.timeout(CONNECT_S_MAX / len(self._addresses)):
            await self._open()
        pause.note_open(time.monotonic())
        return await self._session.lost()

    async def _leave(self) -> None:
        self._session.cut(self._reason)
        self._is_subscribed = False

    async def _open(self) -> None:
        """Connect and subscribe; raise OSError if the broker refuses."""
        own_filter = self._reports.begin_connection()
        if not await self._session.connect(self._addresses.host, self._addresses.port):
            self._taken.begin()
            self._interest.doubt_agents(time.monotonic())
        # With QoS 1 the log survives a cut of some seconds, but would queue behind the messages of a durable session.
        log_qos = QoS.AT_MOST_ONCE if self._is_durable else QoS.AT_LEAST_ONCE
        reporting = [TopicFilter(each, max_qos=log_qos) for each in (f"{LOG_TOPIC}#", own_filter)]
        reasons = await self._session.subscribe([*reporting, all_of()])
        if reasons[-1].value >= FAILED:
            reason = f"may not subscribe to #: {reasons[-1].name}"
            log.warning("connector_refused", broker=self._name, reason=reason)
            raise ConnectionError(reason)
        self._is_subscribed = True
        self._line.ask_all()
        self._session.unsubscribe(own_filter)
        if self._first is None or self._first.done():
            await self._look_again()
        self._catch_up()
        if not self._note_first():
            self._line.on_open()

    async def _look_again(self) -> None:
        """Look for other nodes; raise OSError if the broker still reaches one."""
        try:
            await self._search.look()
        except ConnectorError as error:
            raise ConnectionError(str(error)) from error

    async def _maintain(self) -> None:
        while True:
            await asyncio.sleep(MAINTAIN_S)
            try:
                self._interest.expire(time.monotonic())
                self._retained.expire(time.time())
                self._catch_up()
                if self._reports.is_outdated:
                    self._session.cut(
                        "its log has a different form than before, which is learnt at the next connection"
                    )
                self._store()
                self._search.ask_again(is_hinted=self._echoes.is_suspected)
            except Exception as error:  # A full disk, an odd line: tried again in a second.
                log.warning("maintenance_failed", broker=self._name, reason=repr(error))

    # --- from the broker ---------------------------------------------------------------------------------------------

    def _take(self, packet: PublishPacket) -> bool:
        """Handle a message; return True if the broker may forget it now."""
        topic = packet.topic
        if topic.startswith("$"):
            if topic.startswith(LOG_TOPIC):
                self._reports.take(self._interest, topic, packet.payload, time.monotonic())
            return True
        packet_id = packet.packet_id or 0
        if packet.retain and not packet.payload:
            self._retained.forget(subject_of(topic))
        if len(topic) > SUBJECT_BYTES_MAX:
            self._checks.refuse(BAD_SUBJECT, f"a topic of {len(topic)} characters: at most {SUBJECT_BYTES_MAX}")
            return True
        receipt = self._taken.take(packet, packet_id) if packet_id else 0
        if receipt is None:
            self.counts[REDELIVERED] += 1
            return self._taken.may_forget(packet_id)
        self._echoes.take(message_of(packet, receipt))
        return not receipt

    def _note_local(self, message: LocalMessage) -> None:
        """Pass on what a client has published, or its agent."""
        if not self._line.receive(message):
            self._checks.note_message(message)
        elif message.receipt:
            self.release(message.receipt)

    def _refuse_echo(self, message: LocalMessage) -> None:
        self._checks.refuse(ECHO, ECHOED)
        if message.receipt:
            self.release(message.receipt)
