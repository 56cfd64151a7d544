"""The connector to a RabbitMQ broker: a client whose queue receives everything published to one topic exchange.

In: the broker's address and exchange, its management interface, and filters if nothing reports what clients want. Out:
interest and messages. Keys belong to :mod:`producers.nodes.amqp.amqp_keys`, properties to
:mod:`producers.nodes.amqp.amqp_headers`, interest to :mod:`producers.nodes.amqp.amqp_interest`, the connection to
:mod:`producers.nodes.amqp.drive_pika`. The client library is pika (the extra ``amqp``).

The broker's event exchange reports bindings as they are made and removed, its management interface lists existing ones;
without events, the latter is polled. While the broker is away, its clients' interest stays as it was.
"""

from __future__ import annotations

import asyncio
import struct
import time
from collections import OrderedDict, deque
from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any, NoReturn

import structlog
from pika import BasicProperties
from pika.exceptions import AMQPError

from regraft.infra.process.handle_each import count_logged
from regraft.producers.nodes.amqp.amqp_address import AmqpPlace, addresses_of, parameters_of, reports_error, vhost_of
from regraft.producers.nodes.amqp.amqp_bindings import UNDER_WAY_MAX, AmqpBindings, declare_queue
from regraft.producers.nodes.amqp.amqp_headers import block_of, is_dead_letter, properties_of
from regraft.producers.nodes.amqp.amqp_interest import BINDINGS_MAX, AmqpInterest, Binding, binding_in
from regraft.producers.nodes.amqp.amqp_keys import KeyFormError, key_of
from regraft.producers.nodes.amqp.amqp_taken import AmqpTaken
from regraft.producers.nodes.amqp.ask_rabbit import bindings_of
from regraft.producers.nodes.amqp.drive_pika import UNREADABLE, ClosedError, PikaChannel, PikaConnection
from regraft.producers.nodes.connectors.ask_api import NoAnswerError
from regraft.producers.nodes.connectors.connector import ConnectorError, LocalMessage
from regraft.producers.nodes.connectors.connector_addresses import RetryPause
from regraft.producers.nodes.connectors.kept_connector import KeptConnector
from regraft.producers.nodes.connectors.look_for_nodes import loop_error
from regraft.schemas.safe_names import safe_name

log = structlog.get_logger(__name__)

CONNECT_S_MAX = 15.0
CLOSE_S_MAX = 2.0
WAITING_MAX = 20_000  # Messages that the broker has not confirmed; further ones are dropped.
EVENTS = "amq.rabbitmq.event"
PROBE_S, PROVED_S_MAX = 2.0, 10.0  # How often a message goes through the broker and back; it polls bindings as often.
PROBE_EXPIRES_MS = "10000"
AWAY, SLOW, BAD_KEY, REDELIVERED = "broker_away", "broker_slow", "bad_topic", "redelivered"
REFUSED, UNREADABLE_HEADERS, PARKED = "broker_refused", "headers_unreadable", "parked"
NOT_REPORTED = "bindings_not_reported"


class AmqpConnector(KeptConnector):
    """The way to one RabbitMQ broker at ``amqp://host[:5672][/vhost]``, amqps with TLS; the default user is guest.

    Several addresses, of one cluster, are separated by commas, and tried in turn.
    """

    def __init__(self, url: str, name: str, user: str = "", password: str = "", place: AmqpPlace | None = None) -> None:
        self._place = place or AmqpPlace()
        super().__init__(addresses_of(url), name, self._place.overlay, self._send_question, CONNECT_S_MAX)
        self._login = user, password
        self._is_ready = False
        self._own = f"regraft.{safe_name(name)}"
        self._vhost = vhost_of(self._addresses)
        self._interest = AmqpInterest(self._checks.note_interest, self._own, self.counts)
        self._search.on_found = self._give_way
        self._connection: PikaConnection | None = None
        self._main: PikaChannel | None = None
        self._events: PikaChannel | None = None
        self._published, self._proved_s = 0, 0.0
        self._unconfirmed: OrderedDict[int, None] = OrderedDict()
        self._taken = AmqpTaken(UNDER_WAY_MAX)
        self._queue = ""
        self._bindings = AmqpBindings(self._place.exchange, self._search.subjects)
        self._polls = self._has_events = self._is_caught_up = False
        self._early_events: deque[tuple[bool, Binding]] = deque(maxlen=BINDINGS_MAX)

    def _prepare(self) -> None:
        """Want what is always wanted; raise ConnectorError if a filter is none."""
        self._interest.groups_once = self.groups_once
        try:
            self._interest.want_always(self._place.filters)
        except KeyFormError as error:
            raise ConnectorError(f"connectors.amqp.filters: {error}") from error

    def _advice(self) -> str:
        return (
            f"no RabbitMQ server has accepted a client at {self._addresses} within {CONNECT_S_MAX:g} s "
            f"({self._reason}): start it there, or give node.connector_user and node.connector_password_file"
        )

    @property
    def is_open(self) -> bool:
        """Return True if the broker is connected, and reaches no other node by itself."""
        return self._is_ready and self._search.is_open

    def publish(self, message: LocalMessage) -> bool:
        """Publish a message to the exchange; return False if the broker is away or slow, or the subject has no key."""
        if self._main is None or not self.is_open or not self._main.channel.is_open:
            self.counts[AWAY] += 1
            return False
        if len(self._unconfirmed) >= WAITING_MAX:
            self.counts[SLOW] += 1
            return False
        checked = self._checks.checked(message)
        if checked is None:
            return False
        try:
            key = key_of(checked.subject)
            properties = properties_of(checked.headers, checked.reply, self._checks.stamp_of(message))
            self._main.channel.basic_publish(self._place.exchange, key, checked.payload, properties)
        except (KeyFormError, AMQPError, ValueError, struct.error) as error:  # What AMQP cannot express.
            self._checks.refuse(BAD_KEY, str(error))
            return False
        self._note_published()
        return True

    def ask_for(self, subjects: Collection[str]) -> asyncio.Future[Any] | None:
        """Bind further keys; what is returned completes once the broker has them."""
        return self._bindings.ask_for(subjects)

    def ask_only(self, subjects: Collection[str]) -> None:
        """Bind these keys, and unbind others."""
        self._bindings.ask_only(subjects)

    def _note_published(self) -> None:
        self._published += 1
        self._unconfirmed[self._published] = None

    def _send_question(self, message: LocalMessage) -> None:
        if self._main is not None and self._main.channel.is_open:
            key, properties = key_of(message.subject), BasicProperties(expiration=PROBE_EXPIRES_MS)
            self._main.channel.basic_publish(self._place.exchange, key, message.payload, properties)
            self._note_published()

    def _give_way(self, node: str) -> None:
        """Close the connection, as the broker reaches another node by itself."""
        if self._main is not None and not self._main.closed.done():
            self._main.closed.set_result(loop_error(node))

    def release(self, receipt: int) -> None:
        """Acknowledge a message of a durable queue: now, or if the broker is away, once it is redelivered."""
        main = self._main
        is_connected = main is not None and main.channel.is_open
        if (tag := self._taken.release(receipt, is_connected=is_connected)) and main is not None:
            main.channel.basic_ack(tag)

    # --- the connection ----------------------------------------------------------------------------------------------

    async def _stay_open(self, pause: RetryPause) -> str:
        connection = PikaConnection(parameters_of(self._addresses, *self._login, self._place))
        self._connection = connection
        try:
            await self._open(connection)
            pause.note_open(time.monotonic())
            await self._poll_until_closed(connection)
        except ClosedError as error:
            return str(error)

    async def _leave(self) -> None:
        self._is_ready = False
        if self._connection is not None:
            await self._connection.close(CLOSE_S_MAX)

    async def _open(self, connection: PikaConnection) -> None:
        """Consume what is published, and learn what is wanted; done again for each connection."""
        main = await connection.channel()
        channel, exchange = main.channel, self._place.exchange
        try:
            await main.ask(channel.exchange_declare, exchange=exchange, exchange_type="topic", passive=True)
        except ClosedError as error:
            self._refuse(f"exchange {exchange!r} of {self._addresses} cannot be used: {error}")
            raise
        await main.ask(channel.confirm_delivery, ack_nack_callback=self._note_confirmed)
        self._main, self._published = main, 0
        main.watch_consumers()
        self._unconfirmed.clear()
        self._taken.expect_redelivery()
        queue = self._queue = await declare_queue(main, self._own, is_durable=self._place.is_durable)
        await self._bindings.begin(main, queue)
        self._is_caught_up, self._proved_s = False, time.monotonic()
        self._events = await self._follow_events(connection)
        bindings = await self._list_bindings()
        self._check_reports(self._events is not None, bindings)
        self._learn(bindings)
        is_acknowledged = not self._place.is_durable
        await main.ask(channel.basic_consume, queue=queue, on_message_callback=self._take, auto_ack=is_acknowledged)
        await self._look()
        self._is_ready = True
        self._has_events = self._events is not None
        self._polls = self._place.api is not None and (bindings is None or not self._has_events)
        self._note_first()

    async def _look(self) -> None:
        """Look for other nodes; raise ClosedError if the broker reaches one by itself."""
        try:
            await self._search.look()
        except ConnectorError as error:
            self._refuse(str(error))
            raise ClosedError(str(error)) from error

    def _learn(self, bindings: list[Binding] | None) -> None:
        """Apply the listed bindings, then the events that arrived meanwhile, some of which are newer."""
        if bindings is not None:
            self._interest.replace(bindings)
        self._is_caught_up = True
        while self._early_events:
            self._note_binding(*self._early_events.popleft())

    async def _follow_events(self, connection: PikaConnection) -> PikaChannel | None:
        """Subscribe to events about bindings; return the channel, None if the broker publishes none."""
        events = await connection.channel()
        events.watch_consumers()
        try:
            declared = await events.ask(events.channel.queue_declare, queue="", exclusive=True)
            queue = declared.method.queue
            await events.ask(events.channel.queue_bind, queue=queue, exchange=EVENTS, routing_key="binding.*")
            await events.ask(
                events.channel.basic_consume, queue=queue, on_message_callback=self._handle_event, auto_ack=True
            )
        except ClosedError as error:
            log.info("connector_events_unavailable", broker=self._name, reason=str(error))
            return None
        return events

    async def _list_bindings(self) -> list[Binding] | None:
        """Return all existing bindings, None without an interface or an answer from it."""
        api = self._place.api
        if api is None:
            return None
        loop = asyncio.get_running_loop()
        try:
            return await loop.run_in_executor(None, bindings_of, api, self._vhost, self._place.exchange)
        except NoAnswerError as error:
            count_logged(self.counts, NOT_REPORTED, log.warning, NOT_REPORTED, broker=self._name, reason=str(error))
            return None

    def _check_reports(self, has_events: bool, bindings: list[Binding] | None) -> None:
        """Say what cannot be learned; raise ClosedError if that is all, or the list is that of another broker."""
        if error := reports_error(self._addresses, self._place, self._queue, bindings, has_events=has_events):
            self._refuse(error)
            raise ClosedError(error)
        if has_events and self._place.api is None:
            log.warning("connector_reports_changes_only", broker=self._name, reason=AmqpPlace.CHANGES_ONLY)

    def _refuse(self, error: str) -> None:
        """Make the start of the connector fail if it is still under way: waiting longer would not help."""
        if self._first is not None and not self._first.done():
            self._first.set_exception(ConnectorError(error))

    async def _poll_until_closed(self, connection: PikaConnection) -> NoReturn:
        """Poll bindings if necessary until the connection or a channel closes, then raise ClosedError."""
        main, events = self._main, self._events
        while main is not None and not main.closed.done():
            closed = {main.closed, connection.closed} | ({events.closed} if events is not None else set())
            await asyncio.wait(closed, timeout=PROBE_S, return_when=asyncio.FIRST_COMPLETED)
            if events is not None and events.closed.done():
                raise ClosedError(events.closed.result())
            self._prove(main)
            if self._polls and not main.closed.done():
                self._is_caught_up = not self._has_events  # Until then, events wait.
                bindings = await self._list_bindings()
                self._learn(bindings)
                self._polls = bindings is None or not self._has_events
        raise ClosedError(main.closed.result() if main is not None else "no channel")

    def _prove(self, main: PikaChannel) -> None:
        """Send a probe through the broker; raise ClosedError if nothing has arrived for PROVED_S_MAX.

        A durable queue delivers nothing while all it may have under way waits for the overlay.
        """
        if self._taken.is_full or not self.is_open:
            self._proved_s = time.monotonic()
        elif time.monotonic() - self._proved_s > PROVED_S_MAX:
            raise ClosedError(f"the node's queue has delivered nothing, not even a probe, for {PROVED_S_MAX:g} s")
        if main.channel.is_open:
            main.channel.basic_publish("", self._queue, b"", BasicProperties(expiration=PROBE_EXPIRES_MS))
            self._note_published()
        self._search.ask_again()

    # --- from the broker ---------------------------------------------------------------------------------------------

    def _note_confirmed(self, frame: Any) -> None:
        method, before = frame.method, len(self._unconfirmed)
        if not method.multiple:
            self._unconfirmed.pop(method.delivery_tag, None)
        while method.multiple and self._unconfirmed and next(iter(self._unconfirmed)) <= method.delivery_tag:
            self._unconfirmed.popitem(last=False)
        if method.NAME == "Basic.Nack":
            self.counts[REFUSED] += before - len(self._unconfirmed)

    def _handle_event(self, _channel: Any, deliver: Any, properties: BasicProperties, _body: bytes) -> None:
        """Handle an event of the broker: a binding was made or removed."""
        binding = binding_in(properties.headers or {}, self._place.exchange, self._vhost)
        if binding is None:
            return
        is_made = deliver.routing_key == "binding.created"
        if not is_made and self._main is not None:
            self._bindings.repair(binding.name, binding.key)
        if self._is_caught_up:
            self._note_binding(is_made, binding)
        else:
            self._early_events.append((is_made, binding))

    def _note_binding(self, is_made: bool, binding: Binding) -> None:
        (self._interest.begin if is_made else self._interest.end)(binding)

    def _take(self, channel: Any, deliver: Any, properties: BasicProperties, body: bytes) -> None:
        """Forward a published message, unless the overlay itself handed it over here, or it is our probe.

        A message that fails here would fail again: a durable queue parks it where the broker keeps dead letters.
        """
        self._proved_s = time.monotonic()
        try:
            is_taken = self._forward(channel, deliver, properties, body)
        except Exception as error:
            self._checks.refuse(PARKED, repr(error))
            if self._place.is_durable:
                channel.basic_reject(deliver.delivery_tag, requeue=False)
            return
        if not is_taken and self._place.is_durable:
            channel.basic_ack(deliver.delivery_tag)

    def _forward(self, channel: Any, deliver: Any, properties: BasicProperties, body: bytes) -> bool:
        """Forward a message; return False if it is to be forgotten at once."""
        headers: Mapping[str, Any] = properties.headers or {}
        if is_dead_letter(headers):
            headers = properties.headers = {k: v for k, v in headers.items() if k != self._checks.stamp_header}
        if not deliver.exchange or self._checks.is_carried(deliver.routing_key, headers):
            return False
        if UNREADABLE in headers:
            self._checks.refuse(UNREADABLE_HEADERS, str(headers[UNREADABLE]))
        message = LocalMessage(deliver.routing_key, body, properties.reply_to or "", block_of(properties))
        if not self._place.is_durable:
            self._checks.note_message(message)
            return True
        key, tag = deliver.routing_key, deliver.delivery_tag
        receipt, repeated_tag = self._taken.take(key, body, tag, is_redelivered=deliver.redelivered)
        if receipt:
            self._checks.note_message(replace(message, receipt=receipt))
        else:
            self.counts[REDELIVERED] += 1
        if repeated_tag:
            channel.basic_ack(repeated_tag)
        return True
