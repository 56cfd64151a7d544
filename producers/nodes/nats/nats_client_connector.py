"""The connector to a NATS server without a leaf port: a client that polls the server's monitoring port.

In: the addresses of the client port and the monitoring port. Out: messages that other brokers want, and interest, some
time after it changes. Subscriptions belong to :mod:`producers.nodes.nats.nats_subscriptions`.
The client library is nats-py (the extra ``nats``). If there is a leaf port, use
:mod:`producers.nodes.nats.nats_connector`, which learns of interest at once.
"""

from __future__ import annotations

import asyncio
import math
import ssl
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any
from urllib.parse import urlsplit

import msgspec
import structlog
from nats.aio.client import Client
from nats.errors import Error as NatsError

from regraft.infra.process.end_tasks import end_tasks
from regraft.producers.nodes.connectors.ask_api import BrokerApi, NoAnswerError, keep_asking
from regraft.producers.nodes.connectors.connector import ConnectorError, LocalMessage, PlainConnector
from regraft.producers.nodes.connectors.connector_checks import BAD_SUBJECT, TOO_LARGE, ConnectorChecks
from regraft.producers.nodes.connectors.groups_once import key_of
from regraft.producers.nodes.connectors.look_for_nodes import NodeSearch
from regraft.producers.nodes.nats.local_streams import LocalStreams
from regraft.producers.nodes.nats.nats_login import NO_LOGIN, NatsLogin, is_login_refused, login_advice
from regraft.producers.nodes.nats.nats_permissions import NOT_PERMITTED
from regraft.producers.nodes.nats.nats_protocol import stamped
from regraft.producers.nodes.nats.nats_subscriptions import NatsSubscriptions
from regraft.schemas.safe_names import safe_name
from regraft.schemas.topics import DEFAULT_NAMESPACE

log = structlog.get_logger(__name__)

CONNECT_S_MAX = 10.0
PAGE = 1_024  # Subscriptions per answer.
PAGES_MAX = 100
WAITING_MAX = 20_000  # Messages waiting for a slow server; further ones are dropped.
PROBE_S, PROBE_S_MAX = 1.0, 5.0  # How often the server must answer through the library's reader, and how soon.
LINE_BYTES_MAX = 4_000  # Of subject and reply; servers end a client that sends a line of more than 4,096 bytes.
END = "\r\n"
AWAY, SLOW, TOO_LONG, UNPROVED = "broker_away", "broker_slow", "subject_too_long", "reopened"
FAILED, VIOLATION = "handling_failed", "permissions violation"
OWN = "$js.", "_regraft."  # What only the node itself publishes.


class _Subscription(msgspec.Struct):
    cid: int
    subject: str
    account: str = ""
    qgroup: str = ""


class _Subscriptions(msgspec.Struct):
    server_id: str = ""
    subscriptions_list: list[_Subscription] | None = None


class _Client(Client):
    """A client whose messages are all handled at once, in their order, whichever subscription they arrived for.

    The library would handle each subscription's messages by themselves, and drop those that arrive for one just ended.
    """

    on_message: Callable[[bytes, bytes, bytes, bytes], None] = staticmethod(lambda *_: None)

    def use_key(self, public_key: str) -> None:
        """Log in with a signature; the library would want a package for keys, and the file of the seed."""
        self._auth_configured, self._public_nkey = True, public_key

    @property
    def facts(self) -> Mapping[str, Any]:
        """What the connected server says of itself."""
        return self._server_info

    @property
    def server_id(self) -> str:
        """What the connected server calls itself."""
        return str(self._server_info.get("server_id", ""))

    async def _process_msg(self, _sid: int, subject: bytes, reply: bytes, data: bytes, headers: bytes) -> None:
        self.on_message(subject, reply, data, headers)


class NatsClientConnector(PlainConnector):
    """The way to one NATS server. ``url`` is ``nats://host[:4222]``, tls:// with TLS; ``api`` its monitoring port.

    Of several headers with the same name, only the last is handed over.
    """

    def __init__(
        self,
        url: str,
        name: str,
        api: BrokerApi,
        login: NatsLogin = NO_LOGIN,
        tls: ssl.SSLContext | None = None,
        overlay: str = DEFAULT_NAMESPACE,
        local_streams: Collection[str] = (),
    ) -> None:
        self.counts: Counter[str] = Counter()
        self._url, self._name, self._api = url, name, api
        self._tls = (tls or ssl.create_default_context()) if urlsplit(url).scheme == "tls" else None
        self._login = login
        self._client: Any = None
        self._is_proved, self._reason = True, ""
        self._wanted: frozenset[str] = frozenset()
        self._search = NodeSearch(overlay, name, self._put)
        self._search.on_found = lambda _node: self._show()
        self._checks = ConnectorChecks(name, self.counts, self.release, overlay, self._search)
        self._streams = LocalStreams(name, local_streams, self._put)
        self._subscriptions = NatsSubscriptions(self._search.subjects, self._streams.answers)
        self._waiting: asyncio.Queue[LocalMessage] = asyncio.Queue(WAITING_MAX)
        self._tasks: list[asyncio.Task[None]] = []

    async def start(self, on_interest: Callable[[str, bool], None], on_message: Callable[[LocalMessage], None]) -> None:
        """Open the connector and learn what clients already want; raise ConnectorError if a port cannot be reached."""
        self._checks.begin(on_interest, on_message)
        try:
            await self._connect()
        except (OSError, TimeoutError, NatsError) as error:
            reason = self._reason or str(error) or "no answer"
            await self.close()
            if is_login_refused(reason):
                raise ConnectorError(login_advice(f"the NATS server at {self._url}", self._login, reason)) from error
            raise ConnectorError(f"no NATS server has accepted a client at {self._url} ({reason})") from error
        loop = asyncio.get_running_loop()
        self._tasks = [loop.create_task(self._send_waiting())]
        try:
            await self._streams.wait(self._url, CONNECT_S_MAX)
            await self._poll()
            self._tasks += [
                loop.create_task(each) for each in (keep_asking(self._poll, self._name), self._keep_proved())
            ]
            await self._search.look()
            self._show()
        except ConnectorError:
            await self.close()
            raise
        except NoAnswerError as error:
            await self.close()
            raise ConnectorError(
                f"{self._api.url}/subsz does not report what clients want ({error}): start the server with "
                "`http_port`, and give its address as node.connector_api, or name a leaf port as node.connector "
                "without node.connector_api"
            ) from error

    async def _connect(self) -> None:
        """Connect and receive what is published; raise OSError or NatsError if the server refuses."""
        client = self._client = _Client()
        login: dict[str, Any] = {}
        if self._login.key is not None:
            login = {"signature_cb": lambda nonce: self._login.signature(nonce).encode()}
            if self._login.jwt:
                login["user_jwt_cb"] = lambda: self._login.jwt.encode()
            client.use_key(self._login.public_key)
        elif self._login.user:
            login = {"user": self._login.user, "password": self._login.password}
        elif self._login.password:
            login = {"token": self._login.password}
        client.on_message = self._take
        async with asyncio.timeout(CONNECT_S_MAX):
            await client.connect(
                self._url, name=f"regraft-{safe_name(self._name)}", no_echo=True, max_reconnect_attempts=-1,
                skip_subject_validation=True, tls=self._tls, error_cb=self._note_error,
                connect_timeout=math.ceil(CONNECT_S_MAX), **login,
            )  # fmt: skip
            await self._subscriptions.begin(client)

    def _show(self) -> None:
        """Let nodes at a leaf port find this one while it is open: they see what is subscribed."""
        own = self._subscriptions.own
        (own.add if self._search.is_open else own.discard)(self._search.subject)
        self._subscriptions.settle()

    async def _keep_proved(self) -> None:
        """Let the server answer through the reader each second; connect again if no answer arrives."""
        while True:
            await asyncio.sleep(PROBE_S)
            if self._client.is_reconnecting:  # By the library; its answers prove the new connection.
                continue
            try:
                async with asyncio.timeout(PROBE_S_MAX):
                    await self._client.flush()
                self._is_proved = True
                if self._search.found:  # The server may no longer reach the other node.
                    await self._look_again()
                self._search.ask_again()
            except Exception as error:
                self._is_proved = False
                self.counts[UNPROVED] += 1
                log.warning("connector_unproved", broker=self._name, reason=str(error) or "no answer")
                await self._renew()

    async def _look_again(self) -> None:
        try:
            await self._search.look()
            self._show()
            log.info("connector_opened", broker=self._name)
        except ConnectorError as error:
            log.debug("connector_refused", broker=self._name, reason=str(error))

    async def _renew(self) -> None:
        try:
            async with asyncio.timeout(CONNECT_S_MAX):
                await self._client.close()
        except Exception as error:  # What is left of it is dropped.
            log.debug("connection_left", broker=self._name, reason=str(error))
        try:
            await self._connect()
            self._is_proved = True
        except (OSError, TimeoutError, NatsError) as error:
            log.debug("connector_not_reached", broker=self._name, reason=str(error) or "no answer")

    @property
    def is_open(self) -> bool:
        """Return True if the server is connected, has answered lately, and reaches no other node by itself."""
        is_connected = self._client is not None and bool(self._client.is_connected)
        return self._is_proved and self._search.is_open and is_connected

    @property
    def error(self) -> str:
        """Return which other node the server reaches by itself, "" if none is known."""
        return self._checks.error

    def publish(self, message: LocalMessage) -> bool:
        """Hand a message to the clients that want it; return False if the server is away or too slow."""
        if not self.is_open:
            self.counts[AWAY] += 1
            return False
        if self._waiting.full():
            self.counts[SLOW] += 1
            return False
        checked = self._checks.checked(message)
        if checked is None:
            return False
        checked = stamped(checked, self._checks.stamp_of(message))
        size_bytes = len(checked.headers) + len(checked.payload)
        if size_bytes > self._client.max_payload:
            self._checks.refuse(TOO_LARGE, f"{size_bytes} bytes: the server takes {self._client.max_payload}")
            return False
        if len(f"{checked.subject} {checked.reply}".encode()) > LINE_BYTES_MAX:
            self.counts[TOO_LONG] += 1
            return False
        self._waiting.put_nowait(checked)
        return True

    def ask_for(self, subjects: Collection[str]) -> asyncio.Future[Any] | None:
        """Subscribe further subjects; what is returned completes once the server has them."""
        return self._subscriptions.ask_for(subjects)

    def ask_only(self, subjects: Collection[str]) -> None:
        """Subscribe these subjects, and unsubscribe others."""
        self._subscriptions.ask_only(subjects)

    def _put(self, message: LocalMessage) -> None:
        if not self._waiting.full():
            self._waiting.put_nowait(message)

    async def close(self) -> None:
        """Close the connector."""
        await end_tasks(self._tasks)
        if self._client is not None:
            await self._client.close()

    async def _send_waiting(self) -> None:
        while True:
            message = await self._waiting.get()
            try:
                headers = dict(_lines_of(message.headers)) or None
                await self._client.publish(message.subject, message.payload, message.reply, headers=headers)
            except Exception as error:  # One message must not keep those behind it from leaving.
                self.counts[AWAY] += 1
                log.warning("message_not_handed_over", broker=self._name, reason=str(error))

    async def _poll(self) -> None:
        """Poll the subscriptions of our account and report changes of what is wanted, additions first."""
        loop = asyncio.get_running_loop()
        subscriptions = await loop.run_in_executor(None, self._ask)
        own_client = self._client.client_id
        own_account = next((each.account for each in subscriptions if each.cid == own_client), "")
        others = [each for each in subscriptions if each.cid != own_client and each.account == own_account]
        listed = Counter((each.subject, each.qgroup) for each in others)
        local = self._streams.subjects  # Each of these streams is listed once.
        wanted = frozenset(
            key_of(subject, group) if group in self.groups_once else subject
            for (subject, group), count in listed.items()
            if group or count > local.get(subject, 0)
        )
        before, self._wanted = self._wanted, wanted
        for subject in sorted(wanted - before):
            self._checks.note_interest(subject, True)
        for subject in sorted(before - wanted):
            self._checks.note_interest(subject, False)
        self._streams.ask_again(self._client.facts)

    def _ask(self) -> list[_Subscription]:
        """Return all subscriptions of the server, page by page."""
        subscriptions: list[_Subscription] = []
        for page in range(PAGES_MAX):
            answer = self._api.ask(f"/subsz?subs=1&limit={PAGE}&offset={page * PAGE}", _Subscriptions)
            if answer.server_id != self._client.server_id:  # Of another one, client IDs and wishes would be mistaken.
                raise NoAnswerError(
                    f"{self._api.url} is the monitoring port of server {answer.server_id}, but {self._url} is server "
                    f"{self._client.server_id}"
                )
            listed = answer.subscriptions_list or []
            subscriptions += listed
            if len(listed) < PAGE:
                return subscriptions
        raise NoAnswerError(
            f"{self._api.url}/subsz lists more than {PAGE * PAGES_MAX:,} subscriptions, which is the limit: give the "
            "server a leaf port and name that as node.connector"
        )

    def _take(self, subject: bytes, reply: bytes, data: bytes, headers: bytes) -> None:
        """Handle a message; one that fails is counted, and those behind it are handled."""
        try:
            message = LocalMessage(subject.decode(), data, (reply or b"").decode(), headers or b"")
        except UnicodeDecodeError as error:
            self._checks.refuse(BAD_SUBJECT, str(error))
            return
        try:
            if not self._streams.receive(message):
                self._checks.note_message(message)
        except Exception:
            self.counts[FAILED] += 1
            log.exception("message_failed", broker=self._name, subject=message.subject)

    async def _note_error(self, error: Exception) -> None:
        text = str(error).lower()
        if VIOLATION in text:
            if any(f'publish to "{own}' in text for own in OWN):  # A question of the node, no message of a client.
                return
            self._checks.refuse(NOT_PERMITTED, str(error))
            return
        if not is_login_refused(self._reason):  # The reset behind a refusal explains nothing.
            self._reason = str(error)
        log.warning("connector_failed", broker=self._name, reason=str(error))


def _lines_of(block: bytes) -> Iterator[tuple[str, str]]:
    for line in block.decode(errors="replace").split(END)[1:]:
        name, is_pair, value = line.partition(":")
        if is_pair:
            yield name, value.strip()
