"""What clients of an MQTT broker want, as subjects. Pure: the broker is heard by :mod:`producers.nodes.mqtt_door`.

In: filters that somebody has configured, what Mosquitto says of its clients under ``$SYS/broker/log`` and in its log
file: who subscribes, unsubscribes, comes and goes; or all subscriptions, as EMQX lists them. Out: subjects that begin
to be wanted, and that are no more.

A client that leaves may have a session that outlasts it, and no broker says for how long: what it wanted stands for
``session_s``. A client of MQTT 3.1.1 with a clean session has none, so what it wanted ends at once. While the broker is
away nobody is heard leaving, so all stands until the client is heard again.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

import structlog

from regraft.producers.nodes.mqtt_topics import TopicError, subjects_of

log = structlog.get_logger(__name__)

CLIENTS_MAX = 100_000  # Beyond it the one that left longest ago is forgotten, or a new one not heard.
REFUSED_MAX = 1_000
LOG_TOPIC = "$SYS/broker/log/"
MQTT_5 = 5
_TIME = re.compile(r"^[\dT:+.-]+: ")
_QOS = re.compile(r" [012](?= )")
_CAME = re.compile(r"New client connected from .*? as (.*) \(p(\d+), c([01]), k\d+.*\)\.", re.DOTALL)
# From Mosquitto 2.1 on, the client's address follows its name in brackets.
_LEFT = re.compile(
    r"Client (.*?)( \[[^]]*:\d+\])? (?:disconnected|closed its connection|has exceeded timeout|been disconnected)",
    re.DOTALL,
)


@dataclass
class _Client:
    """``left_s`` is since when it is gone, None while it is there; ``has_session`` whether a session may outlast it."""

    filters: set[str] = field(default_factory=set)
    has_session: bool = True
    left_s: float | None = None


class MqttInterest:
    """All that is wanted at one broker. ``own`` is what the node itself is as a client, each life with its mark."""

    def __init__(
        self, on_interest: Callable[[str, bool], None], own: str, session_s: float, counts: Counter[str]
    ) -> None:
        self.counts = counts
        self.changes_count = 0  # Of what clients want, so that it is stored when there are some.
        self.reported_count = 0  # Subscriptions that the broker has reported, our own too.
        self._on_interest, self._session_s = on_interest, session_s
        self._own = re.compile(rf"{re.escape(own)}(-[0-9a-f]{{8}})?")
        self._is_quiet = False
        self._refused: set[str] = set()  # Filters that are none, so that a list that holds them is refused once.
        self._clients: dict[str, _Client] = {}
        self._wanted: Counter[str] = Counter()  # Subject -> filters of clients that want it.

    def want_always(self, filters: Iterable[str]) -> None:
        """Take these filters as wanted from now on; raise TopicError for what is none."""
        for wanted in filters:
            for subject in subjects_of(wanted):
                self._add(subject)

    def catch_up(self, lines: Iterable[str], now_s: float) -> None:
        """Process what the broker has written into its log, and report only what differs at its end.

        Lines that were heard before change nothing. A file does not say which kind a line is of: its form does.
        """
        before = dict(self._wanted)
        self._is_quiet = True
        for line in lines:
            entry = _TIME.sub("", line, count=1)
            if not self._handle_notice(entry, now_s):
                name, wanted = self._who_wants_what(entry)
                is_known = self._is_known(name)
                if wanted and (is_known or not self._handle_unsubscribe(entry)):
                    self._take_subscribing(name, wanted)
                elif not wanted:
                    self._handle_unsubscribe(entry)
        self._is_quiet = False
        for subject in before:
            if subject not in self._wanted:
                self._on_interest(subject, False)
        for subject in self._wanted:
            if subject not in before:
                self._on_interest(subject, True)

    def known(self) -> dict[str, list[str]]:
        """Return what each client wants."""
        return {name: sorted(client.filters) for name, client in self._clients.items() if client.filters}

    def restore(self, known: Mapping[str, Iterable[str]]) -> None:
        """Take what clients wanted in the node's former life as wanted; raise TopicError for what is not a filter."""
        for name, filters in known.items():
            for wanted in filters:
                self._want(name, wanted)

    def replace(self, known: Mapping[str, Iterable[str]]) -> None:
        """Take these as all that clients want: what is new begins first, so that nothing ends in between."""
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
        """Process what the broker logs; skip what does not concern interest."""
        entry = _TIME.sub("", text, count=1)
        match topic.removeprefix(LOG_TOPIC):
            case "M/subscribe":
                self._handle_subscribe(entry)
            case "M/unsubscribe":
                self._handle_unsubscribe(entry)
            case "N":
                self._handle_notice(entry, now_s)

    def expire(self, now_s: float) -> None:
        """Forget clients whose session is over by now."""
        gone = [
            name
            for name, client in self._clients.items()
            if client.left_s is not None and now_s - client.left_s > self._session_s
        ]
        for name in gone:
            self._forget(name)

    # --- what the log says -------------------------------------------------------------------------------------------

    def _handle_subscribe(self, entry: str) -> None:
        name, wanted = self._who_wants_what(entry)
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
            for subject in subjects:
                self._add(subject)

    def _who_wants_what(self, entry: str) -> tuple[str, str]:
        """Take "NAME QOS FILTER" apart: names and filters may hold spaces, so a known name goes before the first."""
        found = [(entry[: one.start()], entry[one.end() + 1 :]) for one in _QOS.finditer(entry)]
        known = (one for one in found if self._is_known(one[0]))
        return next(known, found[0] if found else ("", ""))

    def _is_known(self, name: str) -> bool:
        return name in self._clients or self._own.fullmatch(name) is not None

    def _handle_unsubscribe(self, entry: str) -> bool:
        """Take "NAME FILTER"; return False where nobody wanted that."""
        # Here, too, names and filters may hold spaces: a client known to want it is meant.
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
        """Take a line that says who comes and goes; return False for any other."""
        if (came := _CAME.fullmatch(entry)) is not None:
            name, protocol, is_clean = came[1], int(came[2]), came[3] == "1"
            if self._own.fullmatch(name):
                return True
            if is_clean:
                self._forget(name)
            client = self._clients.get(name) or self._new_client(name)
            if client is not None:
                client.has_session, client.left_s = protocol >= MQTT_5 or not is_clean, None
        elif (left := _LEFT.match(entry)) is not None:
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
            self._clients[name] = self._clients.pop(name)  # In the order in which they left.
        else:
            self._forget(name)

    def _forget(self, name: str) -> None:
        client = self._clients.pop(name, None)
        for wanted in sorted(client.filters) if client is not None else ():
            self._end(wanted)

    def _add(self, subject: str) -> None:
        self._wanted[subject] += 1
        if self._wanted[subject] == 1 and not self._is_quiet:
            self._on_interest(subject, True)

    def _end(self, wanted: str) -> None:
        self.changes_count += 1
        for subject in subjects_of(wanted):
            self._wanted[subject] -= 1
            if not self._wanted[subject]:
                del self._wanted[subject]
                if not self._is_quiet:
                    self._on_interest(subject, False)
