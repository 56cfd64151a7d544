"""What clients of an MQTT broker want, as subjects. Pure: :mod:`producers.nodes.mqtt.mqtt_connector` listens to the
broker.

In: configured filters; who subscribes, unsubscribes, connects and disconnects, as the entries of Mosquitto's log say
(:mod:`producers.nodes.mqtt.mosquitto_reports`). Out: subjects that become wanted, and that no longer are.

The session of a client that disconnects may last, and no broker reports for how long: what it wanted stays wanted for
``session_s``. A client of MQTT 3.1.1 with a clean session has none, so what it wanted ends at once. While the broker is
away it reports no disconnects, so all interest stays until the client connects again, or its agent does not answer.

Clients choose their names, and names may look like parts of the log. Where a line can be read in two ways, interest
begins in both and ends in neither: a client may keep another's interest alive, but cannot end it.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

import structlog

from regraft.infra.process.handle_each import count_logged
from regraft.producers.nodes.connectors.groups_once import key_of
from regraft.producers.nodes.connectors.wanted_subjects import WantedSubjects
from regraft.producers.nodes.mqtt.mqtt_topics import TopicError, subjects_of
from regraft.schemas.agent_names import agent_subscription, group_for
from regraft.schemas.agent_note import AgentNote

log = structlog.get_logger(__name__)

CLIENTS_MAX = 100_000  # Beyond this, the one gone longest is forgotten, or a new one ignored.
FILTERS_MAX = 200_000  # Of all clients; one client's share is smaller, so that it does not shut out the others.
FILTERS_OF_CLIENT_MAX = 10_000
BRACKETED_MAX = 1_000  # Names of clients that are kept because they end as if an address followed them.
TOO_MANY, AMBIGUOUS = "too_many_filters", "log_ambiguous"
FOR_AGENTS = "_REGRAFT/"
ANSWER_S_MAX = 60.0  # A slow client's agent answers once the client has read what came before.
GIVEN_UP = "session_given_up"
AWAY_TOO_LONG = "it has been away for longer than connectors.mqtt.session_s: nothing crosses to its session any more"
LOG_TOPIC = "$SYS/broker/log/"
MQTT_5 = 5
CONNECTING = ("New connection from ", "New client connected from ", "Client connection from ")
_QOS = re.compile(r" [012](?= )")
_CONNECTED = re.compile(r"New client connected from .*? as (.*\))\.", re.DOTALL)
_OPTIONS = re.compile(r" \(p(\d+), c([01]), k\d+")  # After the name; the user's name follows, and may contain the same.
# The whole line, with the longest possible name: a name may contain any of these texts.
_DISCONNECTED = re.compile(
    r"Client (.*) (?:disconnected(?:(?:: | due to |, not authorised).*)?\.?|closed its connection\."
    r"|has exceeded timeout, disconnecting\.|been disconnected by administrative action\.)",
    re.DOTALL,
)
_STARTING = re.compile(r"mosquitto version \d+\.\d+\.\d+\S* starting")
_ADDRESS = re.compile(r" \[[^]]*:\d+\]\Z")  # From Mosquitto 2.1 on, it follows the name of a client that disconnects.


@dataclass
class _Client:
    """``left_s`` is when it left, or may have, None while connected; ``has_session``: its session may outlast that.

    ``asked_for_session``: it did not ask for a clean one. ``waiting`` are filters for which there was no room,
    ``beside`` those that an agent subscribes, with what that is called in the overlay.
    """

    filters: set[str] = field(default_factory=set)
    waiting: dict[str, None] = field(default_factory=dict)
    has_session: bool = True
    is_of_agent: bool = False
    asked_for_session: bool = False
    beside: dict[str, str] = field(default_factory=dict)
    left_s: float | None = None

    def is_over(self, now_s: float, session_s: float) -> bool:
        wait_s = session_s if self.has_session else ANSWER_S_MAX
        return self.left_s is not None and now_s - self.left_s > wait_s


class MqttInterest:
    """All that is wanted at one broker. ``own`` is the node's client ID; an incarnation may append random digits."""

    def __init__(
        self, on_interest: Callable[[str, bool], None], own: str, session_s: float, counts: Counter[str]
    ) -> None:
        self.counts, self.groups_once = counts, frozenset[str]()
        self.on_session: Callable[[str], None] = lambda _name: None  # A client asks for a session, now.
        self._is_catching_up = self._is_deferred = False
        self.changes_count = 0  # Changes of what clients want; the connector stores it after some.
        self._session_s = session_s
        self._own = re.compile(rf"{re.escape(own)}(-[0-9a-f]{{8}})?")
        self._own_names: set[str] = set()  # Further ones.
        self._clients: dict[str, _Client] = {}
        self._filter_count = self._beside_count = 0
        self._bracketed: dict[str, None] = {}  # Names seen that end as if an address followed them.
        self._wanted = WantedSubjects(on_interest)

    def want_always(self, filters: Iterable[str]) -> None:
        """Treat these filters as always wanted; raise TopicError for an invalid one."""
        for wanted in filters:
            self._wanted.add(subjects_of(wanted))

    def note_beside(self, note: AgentNote) -> None:
        """Note that a client's agent has subscribed a filter, or is about to: it is a subscription by itself."""
        name, wanted, group = note.identifier, note.filter, group_for(note.subscription, note.epoch or -1)
        client = None if self._is_own(name) else self._clients.get(name) or self._new_client(name)
        if client is None or agent_subscription(group) is None:
            return
        is_new, client.left_s = wanted not in client.beside, None
        if is_new and (self._beside_count >= FILTERS_MAX or len(client.beside) >= FILTERS_OF_CLIENT_MAX):
            self.counts[TOO_MANY] += 1
            return
        try:
            before = self._subjects(client, wanted)
        except TopicError as error:
            self._refuse(wanted, error)
            return
        self._set_beside(client, wanted, group, before)

    def _set_beside(self, client: _Client, wanted: str, group: str, before: tuple[str, ...]) -> None:
        self._beside_count += wanted not in client.beside
        client.beside[wanted] = group
        if wanted in client.filters:
            self._wanted.add(self._subjects(client, wanted))
            self._wanted.remove(before)

    def _keep_beside(self, answers: Mapping[str, Mapping[str, str]]) -> None:
        """Note again what agents have said: lines about connections of which the node knew void it."""
        for name, beside in answers.items():
            client = self._clients.get(name)
            for wanted, group in beside.items():
                if client is not None and client.is_of_agent and wanted not in client.beside:
                    self._set_beside(client, wanted, group, self._subjects(client, wanted))

    def _subjects(self, client: _Client, wanted: str) -> tuple[str, ...]:
        """Return the subjects that a client's filter wants; raise TopicError if it is invalid."""
        subjects, group = subjects_of(wanted, self.groups_once), client.beside.get(wanted)
        return (key_of(subjects[0], group),) if group is not None and len(subjects) == 1 else subjects

    def keep(self, subject: str, is_wanted: bool) -> None:
        """Treat a subject as wanted by the node itself, or no longer."""
        (self._wanted.add if is_wanted else self._wanted.remove)((subject,))

    def note_own(self, name: str) -> None:
        """Note a name by which the broker's log knows the node; what that name wants is no client's wish."""
        if not self._is_own(name):
            self._own_names.add(name)
            self._forget(name)

    def _is_own(self, name: str) -> bool:
        return name in self._own_names or self._own.fullmatch(name) is not None

    def catch_up(self, entries: Iterable[str], now_s: float) -> None:
        """Process entries of the broker's log file, and report only what differs at the end.

        Those that were received before change nothing. The file does not name the kind of an entry: its form shows it.
        """
        with self.net_changes(), self._catching_up():
            for entry in entries:
                if not self._handle_notice(entry, now_s):
                    subscriptions = self._names_and_filters(entry)
                    is_known = any(self._is_known(name) for name, _ in subscriptions)
                    if subscriptions and (is_known or not self._handle_unsubscribe(entry)):
                        self._take_subscribing(subscriptions)
                    elif not subscriptions:
                        self._handle_unsubscribe(entry)

    @contextmanager
    def net_changes(self) -> Iterator[None]:
        """Report only what differs at the end, and keep what agents have said: lines that are old would void it."""
        if self._is_deferred:
            yield
            return
        answers = {name: dict(client.beside) for name, client in self._clients.items() if client.beside}
        self._is_deferred = True
        try:
            with self._wanted.net_changes():
                yield
                self._keep_beside(answers)
        finally:
            self._is_deferred = False

    @contextmanager
    def _catching_up(self) -> Iterator[None]:
        self._is_catching_up = True
        try:
            yield
        finally:
            self._is_catching_up = False

    def knows(self, name: str) -> bool:
        """Return True for a client that is connected, or whose session may last."""
        return name in self._clients

    def known(self) -> dict[str, list[str]]:
        """Return the filters of each client that wants any."""
        return {name: sorted(client.filters) for name, client in self._clients.items() if client.filters}

    def restore(self, known: Mapping[str, Iterable[str]]) -> None:
        """Restore what clients wanted in the node's former incarnation; raise TopicError for an invalid filter."""
        for name, filters in known.items():
            for wanted in filters:
                self._want(name, wanted)

    def handle(self, kind: str, entry: str, now_s: float) -> None:
        """Process an entry of the broker's log, without its time; skip one that does not concern interest."""
        match kind:
            case "M/subscribe":
                self._handle_subscribe(entry)
            case "M/unsubscribe":
                self._handle_unsubscribe(entry)
            case "N":
                self._handle_notice(entry, now_s)

    def doubt_agents(self, now_s: float) -> None:
        """Await agents' answers: the broker has lost sessions, and maybe connections."""
        for client in self._clients.values():
            client.left_s = now_s if client.beside else client.left_s

    def expire(self, now_s: float) -> None:
        """Forget clients whose sessions have expired, or whose agents do not answer."""
        gone = [name for name, client in self._clients.items() if client.is_over(now_s, self._session_s)]
        for name in gone:
            if self._clients[name].asked_for_session:
                count_logged(self.counts, GIVEN_UP, log.warning, GIVEN_UP, client=name, reason=AWAY_TOO_LONG)
            self._forget(name)

    # --- entries of the log ------------------------------------------------------------------------------------------

    def _handle_subscribe(self, entry: str) -> None:
        if subscriptions := self._names_and_filters(entry):
            self._take_subscribing(subscriptions)

    def _take_subscribing(self, subscriptions: list[tuple[str, str]]) -> None:
        """Take a subscription, in each way in which its line can be read."""
        for name, wanted in subscriptions:
            if self._is_own(name):
                continue
            try:
                self._want(name, wanted)
            except TopicError as error:
                self._refuse(wanted, error)

    def _refuse(self, wanted: str, error: TopicError) -> None:
        self.counts["bad_filter"] += 1
        log.warning("interest_refused", reason=str(error))

    def _want(self, name: str, wanted: str) -> None:
        subjects_of(wanted)
        client = self._clients.get(name) or self._new_client(name)
        if client is None or wanted in client.filters:
            return
        if wanted.startswith(FOR_AGENTS):  # Of an agent, whose clients have no sessions.
            client.has_session, client.is_of_agent = False, True
            return
        subjects = self._subjects(client, wanted)
        if len(client.filters) >= FILTERS_OF_CLIENT_MAX or self._filter_count >= FILTERS_MAX:
            self.counts[TOO_MANY] += 1
            if len(client.waiting) < FILTERS_OF_CLIENT_MAX:
                client.waiting[wanted] = None
            return
        client.waiting.pop(wanted, None)
        client.filters.add(wanted)
        self._filter_count += 1
        self.changes_count += 1
        self._wanted.add(subjects)

    def _names_and_filters(self, entry: str) -> list[tuple[str, str]]:
        """Split "NAME QOS FILTER" wherever the name is known, else at the first QoS: both may contain spaces."""
        subscriptions = [(entry[: one.start()], entry[one.end() + 1 :]) for one in _QOS.finditer(entry)]
        own = [one for one in subscriptions if self._is_known(one[0])]
        if len(own) > 1:
            self.counts[AMBIGUOUS] += 1
        return own or subscriptions[:1]

    def _is_known(self, name: str) -> bool:
        return name in self._clients or self._is_own(name)

    def _handle_unsubscribe(self, entry: str) -> bool:
        """Handle "NAME FILTER"; return False if no client wanted that."""
        places = [place.start() for place in re.finditer(" ", entry)]
        own = [(self._clients[entry[:place]], entry[place + 1 :]) for place in places if entry[:place] in self._clients]
        wants = [(client, wanted) for client, wanted in own if wanted in client.filters or wanted in client.waiting]
        if len(own) > 1 and wants:
            self.counts[AMBIGUOUS] += 1
        elif wants:
            [(client, wanted)] = wants
            client.waiting.pop(wanted, None)
            if wanted in client.filters:
                self._end(client, wanted)
        return bool(wants)

    def _handle_notice(self, entry: str, now_s: float) -> bool:
        """Handle a line about a client that connects or disconnects, or a broker that starts: it has no clients yet.

        Return False for any other.
        """
        if _STARTING.fullmatch(entry) and entry.rpartition(" ")[0] not in self._clients:  # No client has that name.
            for name, client in list(self._clients.items()):
                self._leave(name, client, now_s)
        elif (connected := _CONNECTED.fullmatch(entry)) is not None:
            self._handle_connected(connected[1])
        elif (left := _DISCONNECTED.fullmatch(entry)) is not None:
            is_whole = left[1] in self._bracketed or len(self._bracketed) >= BRACKETED_MAX
            name = left[1] if is_whole else _ADDRESS.sub("", left[1], count=1)
            if name not in self._clients:
                return False
            self._leave(name, self._clients[name], now_s)
        else:
            return False
        return True

    def _handle_connected(self, text: str) -> None:
        """Handle "NAME (pVERSION, cCLEAN, ...)", in each way in which it can be read."""
        matches = list(_OPTIONS.finditer(text))
        if len(matches) > 1:
            self.counts[AMBIGUOUS] += 1
        for options in matches:
            name, protocol, is_clean = text[: options.start()], int(options[1]), options[2] == "1"
            if self._is_own(name):
                continue
            if _ADDRESS.search(name) and len(self._bracketed) < BRACKETED_MAX:
                self._bracketed[name] = None
            if is_clean and len(matches) == 1:
                self._forget(name)
            client = self._clients.get(name) or self._new_client(name)
            if client is not None:
                has_session = protocol >= MQTT_5 or not is_clean
                client.has_session = has_session or (len(matches) > 1 and client.has_session)
                client.asked_for_session, client.left_s = not is_clean, None
            if not (is_clean or self._is_catching_up or len(matches) > 1):
                self.on_session(name)

    # --- clients and subjects ----------------------------------------------------------------------------------------

    def _new_client(self, name: str) -> _Client | None:
        if len(self._clients) >= CLIENTS_MAX:
            gone = next((each for each, client in self._clients.items() if client.left_s is not None), None)
            if gone is None:
                self.counts["too_many_clients"] += 1
                return None
            self._forget(gone)
        client = self._clients[name] = _Client()
        return client

    def _leave(self, name: str, client: _Client, now_s: float) -> None:
        if client.has_session and client.filters:
            client.left_s = now_s
            self._clients[name] = self._clients.pop(name)  # Ordered by when they left.
        else:
            self._forget(name)

    def _forget(self, name: str) -> None:
        client = self._clients.pop(name, None)
        if client is not None:
            client.waiting.clear()
            for wanted in sorted(client.filters):
                self._end(client, wanted)
            self._beside_count -= len(client.beside)

    def _end(self, client: _Client, wanted: str) -> None:
        """End what a client wants; take what it wanted besides when there was no room."""
        client.filters.discard(wanted)
        self._filter_count -= 1
        self.changes_count += 1
        self._wanted.remove(self._subjects(client, wanted))
        self._beside_count -= client.beside.pop(wanted, None) is not None
        if client.waiting:
            following = next(iter(client.waiting))
            del client.waiting[following]
            self._wanted.add(self._subjects(client, following))
            client.filters.add(following)
            self._filter_count += 1
