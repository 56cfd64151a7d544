"""The check-in workload: mobile users who always want the cell they are in and those their friends are in.

In: the shipped check-ins (data/SOURCES.md), settings and a seed. Out: requests of feeds and users to an emulated
overlay, on its clock. The location model is that of Zhao13, section 5: cells of a grid are topics, a user is in the
cell of its last check-in until its next one, and follows friends drawn at random, four by default. The check-ins
repeat: before its first one, a user is where its last one left it. A feed for each cell publishes the check-ins there.

A user's home is chosen here when it first connects, and when its home has died; otherwise the overlay decides.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import cast

import numpy as np
import simpy

from regraft.producers.brokers.ring_tables import TOPIC
from regraft.producers.emulator.emulate_overlay import EmulatedOverlay
from regraft.producers.emulator.emulator_ports import OverlayListener
from regraft.producers.emulator.user_clients import topic_filter
from regraft.producers.workloads.checkin_data import DAY_MINUTES, Checkins, cell_name, cell_numbers, load_checkins
from regraft.producers.workloads.checkin_settings import CheckinSettings
from regraft.schemas.units import SECOND_MS


def user_name(number: int) -> str:
    """Return the name of the user with this number in the shipped data."""
    return f"user-{number:04d}"


@dataclass(slots=True)
class _Feed:
    """The publisher of one topic: its check-ins, as rows of the data, oldest first, and which one is next."""

    rows: list[int]
    rate_per_s: float
    rng: random.Random
    position: int = 0


@dataclass(slots=True, eq=False)
class _User:
    """One user: the minutes and topics of its check-ins, oldest first, and its current state.

    ``next_visit`` keeps counting when the data repeat. ``here`` is the topic of the cell that it is in, ``wanted`` what
    it has subscribed to while it ``is_connected``; ``home`` is where it connects next time.
    """

    name: str
    minutes: list[int]
    topics: list[str]
    home: str
    friends: list[_User] = field(default_factory=list)
    followers: list[_User] = field(default_factory=list)
    here: str = ""
    next_visit: int = 0
    is_connected: bool = False
    wanted: frozenset[str] = frozenset()

    def topics_now(self) -> frozenset[str]:
        """Return the topic of its own cell and those of its friends' cells."""
        return frozenset((self.here, *(friend.here for friend in self.friends)))


class CheckinWorkload(OverlayListener):
    """Feeds and mobile users of one overlay. Deterministic: equal seeds and settings make the same requests.

    ``rates_per_s``: what each feed publishes on average, by topic. ``regime_changed_ms`` is None: users move all the
    time, and interests do not shift otherwise.
    """

    def __init__(
        self,
        overlay: EmulatedOverlay,
        settings: CheckinSettings,
        rng: random.Random,
        checkins: Checkins | None = None,
    ) -> None:
        self._overlay = overlay
        self._settings = settings
        self._data = checkins or load_checkins()
        self._brokers = list(overlay.brokers)
        # Each kind of choice has its own random stream, so that the order of brokers' answers does not affect others.
        self._home_rng, choice_rng, friend_rng, self._connect_rng = (
            random.Random(rng.getrandbits(64)) for _ in range(4)
        )
        cells = cell_numbers(self._data, settings.grid_rows, settings.grid_columns)
        self._topics = [cell_name(number, settings.grid_columns) for number in cells.tolist()]
        self._feeds = self._make_feeds(rng)
        self._users = self._make_users(choice_rng)
        _make_friends(self._users, settings.friend_count, friend_rng)
        self.rates_per_s: Mapping[str, float] = {topic: feed.rate_per_s for topic, feed in self._feeds.items()}
        self.regime_changed_ms: float | None = None
        self._is_running = False
        self._start_ms = 0.0

    def _make_feeds(self, rng: random.Random) -> dict[str, _Feed]:
        rows: dict[str, list[int]] = defaultdict(list)
        for row, topic in enumerate(self._topics):
            rows[topic].append(row)
        per_checkin_per_s = self._settings.notifications_per_s / len(self._topics)
        return {
            topic: _Feed(rows[topic], per_checkin_per_s * len(rows[topic]), random.Random(rng.getrandbits(64)))
            for topic in sorted(rows)
        }

    def _make_users(self, rng: random.Random) -> list[_User]:
        chosen = sorted(rng.sample(range(self._data.user_count), self._settings.user_count))
        users = []
        for number in chosen:
            rows = np.flatnonzero(self._data.user == number).tolist()
            topics = [self._topics[row] for row in rows]
            minutes = self._data.minute[rows].tolist()
            name = user_name(number)
            home = self._overlay.start.first_home(name, self._home_rng.choice(self._brokers))
            users.append(_User(name, minutes, topics, home, here=topics[-1]))
        return users

    @property
    def friends(self) -> dict[str, tuple[str, ...]]:
        """Whom each user follows."""
        return {user.name: tuple(friend.name for friend in user.friends) for user in self._users}

    def publisher_rate_per_s(self, publisher: str) -> float:
        """Return what a feed publishes on average; a feed has the name of its topic."""
        return self.rates_per_s.get(publisher, 0.0)

    def start(self) -> None:
        """Connect all feeds now, and users when they are due; feeds publish as soon as the overlay lets them."""
        self._is_running = True
        self._start_ms = self._overlay.env.now
        self._overlay.listeners.append(self)
        for topic in self._feeds:
            self._overlay.advertise(topic, self._home_rng.choice(self._brokers), topic_filter(topic))
        for user in self._users:
            self._plan_start(user)
            self._plan_visit(user)

    def stop(self) -> None:
        """Stop publishing and changing anything; connected clients stay."""
        self._is_running = False

    # --- what the overlay reports ----------------------------------------------------------------------------------

    def on_may_publish(self, publisher: str) -> None:
        """Begin to publish."""
        self._plan_publication(publisher)

    # --- publishing ------------------------------------------------------------------------------------------------

    def _plan_publication(self, topic: str) -> None:
        feed = self._feeds[topic]
        pause_ms = feed.rng.expovariate(feed.rate_per_s) * SECOND_MS
        self._overlay.env.timeout(pause_ms, topic).callbacks.append(self._publish)

    def _publish(self, event: simpy.Event) -> None:
        if not self._is_running:
            return
        topic = cast(str, event.value)
        feed = self._feeds[topic]
        row = feed.rows[feed.position % len(feed.rows)]  # After the newest check-in, the oldest again.
        feed.position += 1
        content: dict[str, float | str] = {
            TOPIC: topic,
            "user": user_name(int(self._data.user[row])),
            "minute": float(self._data.minute[row]),
            "lat": float(self._data.lat[row]),
            "lon": float(self._data.lon[row]),
        }
        self._overlay.publish(topic, content, sum(len(f"[{name},{value}],") for name, value in content.items()))
        self._plan_publication(topic)

    # --- coming, moving, leaving -----------------------------------------------------------------------------------

    def _visit_minute(self, user: _User, visit: int) -> int:
        turn, position = divmod(visit, len(user.minutes))
        return turn * self._data.minutes + user.minutes[position]

    def _at_minute(self, minute: float, user: _User, callback: Callable[[simpy.Event], None]) -> None:
        """Call back at a minute of the data, which keeps counting when they repeat."""
        due_ms = self._start_ms + minute / (self._settings.days_per_s * DAY_MINUTES) * SECOND_MS
        env = self._overlay.env
        env.timeout(max(due_ms - env.now, 0.0), user).callbacks.append(callback)

    def _plan_start(self, user: _User) -> None:
        """Connect a user who is present at the start, within ``connect_spread_s`` and before it checks in or leaves."""
        before, first = self._visit_minute(user, -1), self._visit_minute(user, 0)
        leaves, comes = self._plan_absence(user, before, first)
        if leaves > 0 or comes <= 0:
            spread_minutes = self._settings.connect_spread_s * self._settings.days_per_s * DAY_MINUTES
            until = min(spread_minutes, first, leaves if leaves > 0 else first)
            self._at_minute(self._connect_rng.random() * until, user, self._connect)

    def _plan_absence(self, user: _User, minute: int, next_minute: int) -> tuple[float, float]:
        """Plan that a user leaves and returns between two check-ins far apart; neither is planned before the start.

        Returns the minutes of both; if the user stays, twice the minute of the next check-in.
        """
        linger_days = self._settings.linger_days
        if linger_days is None or next_minute - minute <= 2 * linger_days * DAY_MINUTES:
            return next_minute, next_minute
        leaves, comes = minute + linger_days * DAY_MINUTES, next_minute - linger_days * DAY_MINUTES
        for due, callback in ((leaves, self._disconnect), (comes, self._connect)):
            if due > 0:
                self._at_minute(due, user, callback)
        return leaves, comes

    def _plan_visit(self, user: _User) -> None:
        self._at_minute(self._visit_minute(user, user.next_visit), user, self._visit)

    def _visit(self, event: simpy.Event) -> None:
        """Let a user check in; if it enters another cell, it and its followers change topics."""
        if not self._is_running:
            return
        user = cast(_User, event.value)
        minute = self._visit_minute(user, user.next_visit)
        topic = user.topics[user.next_visit % len(user.topics)]
        user.next_visit += 1
        self._plan_absence(user, minute, self._visit_minute(user, user.next_visit))
        self._plan_visit(user)
        if topic != user.here:
            user.here = topic
            for each in (user, *user.followers):
                self._ask_again(each)

    def _connect(self, event: simpy.Event) -> None:
        if not self._is_running:
            return
        user = cast(_User, event.value)
        user.is_connected = True
        user.wanted = user.topics_now()
        self._overlay.users.connect(user.name, user.home, sorted(user.wanted))

    def _ask_again(self, user: _User) -> None:
        """Let a connected user request the topics that it wants now, if they have changed."""
        wanted = user.topics_now()
        if not user.is_connected or wanted == user.wanted:
            return
        user.wanted = wanted
        if self._overlay.users.home_of(user.name) is None:  # Its home has died.
            user.home = self._home_rng.choice(self._brokers)
            self._overlay.users.connect(user.name, user.home, sorted(wanted))
        else:
            self._overlay.users.change_topics(user.name, sorted(wanted))

    def _disconnect(self, event: simpy.Event) -> None:
        if not self._is_running:
            return
        user = cast(_User, event.value)
        user.is_connected = False
        home = self._overlay.users.home_of(user.name)
        if home is not None:
            user.home = home  # It reconnects where it was last.
            self._overlay.users.disconnect(user.name)


def _make_friends(users: list[_User], friend_count: int, rng: random.Random) -> None:
    """Let each user follow this many others, drawn at random, which need not follow it back."""
    for position, user in enumerate(users):
        for drawn in rng.sample(range(len(users) - 1), friend_count):
            friend = users[drawn + (drawn >= position)]
            user.friends.append(friend)
            friend.followers.append(user)
