"""What clients of an MQTT broker want, as subjects. Pure: :mod:`producers.nodes.mqtt_door` listens to the broker.

In: configured filters; who subscribes, unsubscribes, connects and disconnects, as Mosquitto reports it under
``$SYS/broker/log`` and in its log file; or all subscriptions, as EMQX lists them. Out: subjects that become wanted, and
that no longer are.

The session of a client that disconnects may last, and no broker reports for how long: what it wanted stays wanted for
``session_s``. A client of MQTT 3.1.1 with a clean session has none, so what it wanted ends at once. While the broker is
away it reports no disconnects, so all interest stays until the client connects again.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

import structlog

from regraft.producers.nodes.mqtt_topics import TopicError, subjects_of
from regraft.producers.nodes.wanted_subjects import WantedSubjects

log = structlog.get_logger(__name__)

CLIENTS_MAX = 100_000  # Beyond this, the one gone longest is forgotten, or a new one ignored.
REFUSED_MAX = 1_000
LOG_TOPIC = "$SYS/broker/log/"
MQTT_5 = 5
_TIME = re.compile(r"^[\dT:+.-]+: ")
_QOS = re.compile(r" [012](?= )")
_CONNECTED = re.compile(r"New client connected from .*? as (.*) \(p(\d+), c([01]), k\d+.*\)\.", re.DOTALL)
# From Mosquitto 2.1 on, the client's address follows its name in brackets.
_DISCONNECTED = re.compile(
    r"Client (.*?)( \[[^]]*:\d+\])? (?:disconnected|closed its connection|has exceeded timeout|been disconnected)",
    re.DOTALL,
)


@dataclass
class _Client:
    """``left_s`` is when it disconnected, None while connected; ``has_session``: its session may outlast that."""

    filters: set[str] = field(default_factory=set)
    has_session: bool = True
    left_s: float | None = None


class MqttInterest:
    """All that is wanted at one broker. ``own`` is the node's client ID, to which a life may append random digits."""

    def __init__(
        self, on_interest: Callable[[str, bool], None], own: str, session_s: float, counts: Counter[str]
    ) -> None:
        self.counts = counts
        self.changes_count = 0  # Changes of what clients want; the door stores it after some.
        self.reported_count = 0  # Subscriptions that the broker has reported, including our own.
        self._session_s = session_s
        self._own = re.compile(rf"{re.escape(own)}(-[0-9a-f]{{8}})?")
        self._refused: set[str] = set()  # Invalid filters; each is refused once, however often it is listed.
        self._clients: dict[str, _Client] = {}
        self._wanted = WantedSubjects(on_interest)

    def want_always(self, filters: Iterable[str]) -> None:
        """Treat these filters as always wanted; raise TopicError for an invalid one."""
        for wanted in filters:
            self._wanted.add(subjects_of(wanted))

    def catch_up(self, lines: Iterable[str], now_s: float) -> None:
        """Process lines of the broker's log file, and report only what differs at the end.

        Lines that were received before change nothing. The file does not name the kind of a line: its form shows it.
        """
        with self._wanted.net_changes():
            for line in lines:
                entry = _TIME.sub("", line, count=1)
                if not self._handle_notice(entry, now_s):
                    name, wanted = self._name_and_filter(entry)
                    is_known = self._is_known(name)
                    if wanted and (is_known or not self._handle_unsubscribe(entry)):
                        self._take_subscribing(name, wanted)
                    elif not wanted:
                        self._handle_unsubscribe(entry)

    def known(self) -> dict[str, list[str]]:
        """Return the filters of each client that wants any."""
        return {name: sorted(client.filters) for name, client in self._clients.items() if client.filters}

    def restore(self, known: Mapping[str, Iterable[str]]) -> None:
        """Restore what clients wanted in the node's former life; raise TopicError for an invalid filter."""
        for name, filters in known.items():
            for wanted in filters:
                self._want(name, wanted)

    def replace(self, known: Mapping[str, Iterable[str]]) -> None:
        """Replace what clients want, adding before removing, so that a subject in both stays wanted throughout."""
        self.reported_count += 1
        there = {name: set(filters) for name, filters in known.items() if not self._own.fullmatch(name)}
        for name, filters in there.items():
            for wanted in sorted(filters - self._refused):
                try:
                    self._want(name, wanted)
                except TopicError as error:
                    self._refuse(wanted, error)
        for name, client in list(self._clients.items()):
            for wanted in sorted(client.filters - there.get(name, set())):
                client.filters.discard(wanted)
                self._end(wanted)
            if not client.filters:
                del self._clients[name]

    def handle(self, topic: str, text: str, now_s: float) -> None:
        """Process an entry of the broker's log; skip one that does not concern interest."""
        entry = _TIME.sub("", text, count=1)
        match topic.removeprefix(LOG_TOPIC):
            case "M/subscribe":
                self._handle_subscribe(entry)
            case "M/unsubscribe":
                self._handle_unsubscribe(entry)
            case "N":
                self._handle_notice(entry, now_s)

    def expire(self, now_s: float) -> None:
        """Forget clients whose sessions have expired."""
        gone = [
            name
            for name, client in self._clients.items()
            if client.left_s is not None and now_s - client.left_s > self._session_s
        ]
        for name in gone:
            self._forget(name)

    # --- entries of the log ------------------------------------------------------------------------------------------

    def _handle_subscribe(self, entry: str) -> None:
        name, wanted = self._name_and_filter(entry)
        if wanted:
            self._take_subscribing(name, wanted)

    def _take_subscribing(self, name: str, wanted: str) -> None:
        self.reported_count += 1
        if self._own.fullmatch(name):
            return
        try:
            self._want(name, wanted)
        except TopicError as error:
            self._refuse(wanted, error)

    def _refuse(self, wanted: str, error: TopicError) -> None:
        if len(self._refused) < REFUSED_MAX:
            self._refused.add(wanted)
        self.counts["bad_filter"] += 1
        log.warning("interest_refused", reason=str(error))

    def _want(self, name: str, wanted: str) -> None:
        subjects = subjects_of(wanted)
        client = self._clients.get(name) or self._new_client(name)
        if client is not None and wanted not in client.filters:
            client.filters.add(wanted)
            self.changes_count += 1
            self._wanted.add(subjects)

    def _name_and_filter(self, entry: str) -> tuple[str, str]:
        """Split "NAME QOS FILTER": both may contain spaces, so a split with a known name wins over the first one."""
        found = [(entry[: one.start()], entry[one.end() + 1 :]) for one in _QOS.finditer(entry)]
        known = (one for one in found if self._is_known(one[0]))
        return next(known, found[0] if found else ("", ""))

    def _is_known(self, name: str) -> bool:
        return name in self._clients or self._own.fullmatch(name) is not None

    def _handle_unsubscribe(self, entry: str) -> bool:
        """Handle "NAME FILTER"; return False if no client wanted that."""
        # Names and filters may contain spaces here too: find the client that is known to want the filter.
        place = entry.find(" ")
        while place >= 0:
            client, wanted = self._clients.get(entry[:place]), entry[place + 1 :]
            if client is not None and wanted in client.filters:
                client.filters.discard(wanted)
                self._end(wanted)
                return True
            place = entry.find(" ", place + 1)
        return False

    def _handle_notice(self, entry: str, now_s: float) -> bool:
        """Handle a line about a client that connects or disconnects; return False for any other."""
        if (connected := _CONNECTED.fullmatch(entry)) is not None:
            name, protocol, is_clean = connected[1], int(connected[2]), connected[3] == "1"
            if self._own.fullmatch(name):
                return True
            if is_clean:
                self._forget(name)
            client = self._clients.get(name) or self._new_client(name)
            if client is not None:
                client.has_session, client.left_s = protocol >= MQTT_5 or not is_clean, None
        elif (left := _DISCONNECTED.match(entry)) is not None:
            # A name may itself end in brackets.
            name = next((one for one in (left[1] + (left[2] or ""), left[1]) if one in self._clients), "")
            if not name:
                return False
            self._leave(name, self._clients[name], now_s)
        else:
            return False
        return True

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
        for wanted in sorted(client.filters) if client is not None else ():
            self._end(wanted)

    def _end(self, wanted: str) -> None:
        self.changes_count += 1
        self._wanted.remove(subjects_of(wanted))
