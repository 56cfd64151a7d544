"""Mobile users subscribe to their own cell and their friends' by real check-ins; feeds publish real ones there."""

import random
from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import pytest
import simpy

from regraft.producers.brokers.match_content import Content, Filter, matches
from regraft.producers.emulator.emulator_ports import OverlayListener
from regraft.producers.emulator.starting_point import StartingPoint
from regraft.producers.emulator.user_clients import topic_filter
from regraft.producers.workloads.checkin_data import Checkins, cell_name, cell_numbers, checkins_of, load_checkins
from regraft.producers.workloads.checkin_settings import CheckinSettings
from regraft.producers.workloads.checkin_workload import CheckinWorkload
from tests.overlay.small_overlays import line_of

START_MS = 1_000_000.0
DAY_MINUTES = 1_440
DATA = load_checkins()


@dataclass(frozen=True)
class Request:
    """One request of a user, and its time in ms after the start."""

    at_ms: float
    kind: str
    user: str
    home: str
    topics: tuple[str, ...]


class RecordingOverlay:
    """Records requests. A feed may publish ``answer_ms`` after it has connected, in the order of ``answer_rng``."""

    def __init__(
        self, broker_count: int = 8, answer_ms: float = 100.0, answer_rng: random.Random | None = None
    ) -> None:
        self.env = simpy.Environment(START_MS)
        self.start = StartingPoint(line_of(broker_count))
        self.brokers = {f"b{number:02d}": number for number in range(broker_count)}
        self.listeners: list[OverlayListener] = []
        self.homes: dict[str, str] = {}
        self.topics: dict[str, frozenset[str]] = {}
        self.requests: list[Request] = []
        self.feeds: dict[str, tuple[str, Filter]] = {}
        self.published: dict[str, list[Content]] = defaultdict(list)
        self.sizes_bytes: list[int] = []
        self.users = self
        self._answer_ms = answer_ms
        self._answer_rng = answer_rng

    def advertise(self, publisher: str, home: str, filter_: Filter) -> None:
        self.feeds[publisher] = (home, filter_)
        share = 1.0 if self._answer_rng is None else self._answer_rng.random()
        answer = self.env.timeout(self._answer_ms * share, publisher)
        answer.callbacks.append(lambda event: self.listeners[0].on_may_publish(event.value))

    def publish(self, publisher: str, content: Content, size_bytes: int) -> None:
        self.published[publisher].append(content)
        self.sizes_bytes.append(size_bytes)

    def connect(self, user: str, home: str, topics: Iterable[str]) -> None:
        assert user not in self.homes
        self.homes[user] = home
        self._note("connect", user, topics)

    def change_topics(self, user: str, topics: Iterable[str]) -> None:
        assert user in self.homes
        assert self.topics[user] != frozenset(topics)
        self._note("change", user, topics)

    def disconnect(self, user: str) -> None:
        self._note("disconnect", user, ())
        del self.homes[user], self.topics[user]

    def home_of(self, user: str) -> str | None:
        return self.homes.get(user)

    def _note(self, kind: str, user: str, topics: Iterable[str]) -> None:
        self.topics[user] = frozenset(topics)
        now_ms = self.env.now - START_MS
        self.requests.append(Request(now_ms, kind, user, self.homes[user], tuple(sorted(self.topics[user]))))

    def run_until_ms(self, at_ms: float) -> None:
        self.env.run(until=START_MS + at_ms)


def started(
    settings: CheckinSettings, overlay: RecordingOverlay | None = None, data: Checkins = DATA, seed: int = 1
) -> tuple[CheckinWorkload, RecordingOverlay]:
    overlay = overlay or RecordingOverlay()
    workload = CheckinWorkload(overlay, settings, random.Random(seed), data)
    workload.start()
    return workload, overlay


def cells_at(minute: float, data: Checkins, settings: CheckinSettings) -> dict[str, str]:
    """Return each user's last check-in up to a minute, or else its very last one: slow, straight from the data."""
    cells = cell_numbers(data, settings.grid_rows, settings.grid_columns)
    found = {}
    for part in (data.minute >= 0, data.minute <= minute):
        for user, cell in zip(data.user[part].tolist(), cells[part].tolist(), strict=True):
            found[f"user-{user:04d}"] = cell_name(cell, settings.grid_columns)
    return found


def ms_of(minute: float, settings: CheckinSettings) -> float:
    return minute / DAY_MINUTES / settings.days_per_s * 1_000.0


# A street from west (cell-00-00) to east (cell-00-01), one day: user 0 commutes, 1 stays, 2 comes late.
STREET = checkins_of(
    np.array([0, 1, 0, 2, 0, 2]),
    np.array([60, 120, 300, 600, 900, 1_200]),
    np.full(6, 40.7),
    np.array([-74.0, -73.9, -73.9, -74.0, -74.0, -73.9]),
    days=1,
)
STREET_SETTINGS = CheckinSettings(
    user_count=3, friend_count=1, days_per_s=1.0, grid_rows=1, grid_columns=2, linger_days=None, connect_spread_s=0.0
)


def test_worked_example_of_a_street() -> None:
    """At 5:00 user 0 goes east: it and its followers want the eastern cell, if they did not before."""
    workload, overlay = started(STREET_SETTINGS, data=STREET)
    overlay.run_until_ms(ms_of(299, STREET_SETTINGS))
    west, east = "cell-00-00", "cell-00-01"
    own = {"user-0000": west, "user-0001": east, "user-0002": east}
    assert overlay.topics == {user: {own[user], own[friend]} for user, (friend,) in workload.friends.items()}
    overlay.run_until_ms(ms_of(301, STREET_SETTINGS))
    own["user-0000"] = east
    assert overlay.topics == {user: {own[user], own[friend]} for user, (friend,) in workload.friends.items()}
    overlay.run_until_ms(ms_of(1_440 + 59, STREET_SETTINGS))  # The next day, before the first check-in.
    own["user-0000"] = west
    assert overlay.topics == {user: {own[user], own[friend]} for user, (friend,) in workload.friends.items()}


@pytest.mark.parametrize("at_s", [0.5, 7.0, 31.0])
def test_users_want_their_own_cell_and_those_of_four_friends(at_s: float) -> None:
    """This holds for each connected user at any moment, whether its friends are connected or not."""
    settings = CheckinSettings(days_per_s=1.0, connect_spread_s=0.2, notifications_per_s=0.01)
    workload, overlay = started(settings)
    overlay.run_until_ms(at_s * 1_000)
    own = cells_at(at_s * DAY_MINUTES, DATA, settings)
    assert len(overlay.topics) > 500
    for user, topics in overlay.topics.items():
        assert topics == {own[user], *(own[friend] for friend in workload.friends[user])}


def test_friends_are_distinct_other_users() -> None:
    """No user follows itself, or another one twice; all are users of the run."""
    workload, _ = started(CheckinSettings(user_count=5, friend_count=4))
    assert all({user, *friends} == set(workload.friends) for user, friends in workload.friends.items())


def test_topics_change_only_at_check_ins() -> None:
    """Every change is at the compressed time of a real check-in of the user, or of a user it follows."""
    settings = CheckinSettings(user_count=200, days_per_s=0.5, notifications_per_s=0.01)
    workload, overlay = started(settings)
    overlay.run_until_ms(150_000)  # Beyond the shipped days, which last 112 s: they repeat.
    times_ms: dict[str, list[float]] = defaultdict(list)
    for user, minute in zip(DATA.user.tolist(), DATA.minute.tolist(), strict=True):
        times_ms[f"user-{user:04d}"] += [ms_of(minute + turn * DATA.minutes, settings) for turn in range(2)]
    changes = [request for request in overlay.requests if request.kind == "change"]
    assert len(changes) > 1_000
    assert max(request.at_ms for request in changes) > 112_000
    for request in changes:
        causes = (request.user, *workload.friends[request.user])
        assert min(abs(at_ms - request.at_ms) for cause in causes for at_ms in times_ms[cause]) < 1e-3


def test_users_are_connected_around_their_check_ins() -> None:
    """A user is connected for a week before and after each check-in of the looped data, and at no other time."""
    settings = CheckinSettings(linger_days=7.0, days_per_s=1.0, connect_spread_s=0.5, notifications_per_s=0.01)
    _, overlay = started(settings)
    minutes = [DATA.minute[DATA.user == user] for user in range(DATA.user_count)]
    seen = set()
    for at_s in (1.5, 20.0, 40.0, 55.5, 57.5, 90.0):
        overlay.run_until_ms(at_s * 1_000)
        for user, own in enumerate(minutes):
            distance = np.abs(own - at_s % DATA.days * DAY_MINUTES)
            is_near = min(distance.min(), (DATA.minutes - distance).min()) < settings.linger_days * DAY_MINUTES
            assert (f"user-{user:04d}" in overlay.homes) == is_near
            seen.add(is_near)
    assert seen == {True, False}


def test_users_at_the_start_connect_within_the_spread() -> None:
    """They do not all come at once, and no user checks in before it is connected."""
    settings = CheckinSettings(linger_days=None, days_per_s=0.01, connect_spread_s=4.0, notifications_per_s=0.01)
    _, overlay = started(settings)
    overlay.run_until_ms(4_000)
    first = {request.user: request for request in reversed(overlay.requests)}
    assert len(first) == DATA.user_count
    assert {request.kind for request in first.values()} == {"connect"}
    times_ms = [request.at_ms for request in first.values()]
    assert np.histogram(times_ms, bins=4, range=(0, 4_000))[0].min() > DATA.user_count / 5
    for user in range(DATA.user_count):
        assert first[f"user-{user:04d}"].at_ms <= ms_of(int(DATA.minute[DATA.user == user][0]), settings)


def test_first_homes_are_spread_over_all_brokers() -> None:
    """No broker is without users, and none has twice its share."""
    _, overlay = started(CheckinSettings(linger_days=None, notifications_per_s=0.01))
    overlay.run_until_ms(5_000)
    counts = Counter(overlay.homes.values())
    share = DATA.user_count / len(overlay.brokers)
    assert all(0.5 * share < counts[broker] < 2 * share for broker in overlay.brokers)


def test_a_returning_user_connects_to_its_last_home() -> None:
    """A user that was moved while it was connected next connects to where it was moved."""
    _, overlay = started(CheckinSettings(linger_days=3.0, days_per_s=2.0, notifications_per_s=0.01))
    overlay.run_until_ms(4_000)
    moved = set(overlay.homes)
    for user in moved:
        overlay.homes[user] = "b00"
    overlay.run_until_ms(28_000)
    again = [request for request in overlay.requests if request.kind == "connect" and request.at_ms > 4_000]
    came_again = [request for request in again if request.user in moved]
    assert len(came_again) > 100
    assert {request.home for request in came_again} == {"b00"}
    assert len({request.home for request in again}) == len(overlay.brokers)


def test_a_user_that_lost_its_home_reconnects_at_its_next_change() -> None:
    """A user whose home died has none; its next change of topics is a connection with all its topics."""
    settings = CheckinSettings(linger_days=None, days_per_s=0.5, notifications_per_s=0.01)
    workload, overlay = started(settings)
    overlay.run_until_ms(6_000)
    lost = [user for user, home in overlay.homes.items() if home == "b03"]
    for user in lost:
        del overlay.homes[user], overlay.topics[user]
    overlay.run_until_ms(30_000)
    own = cells_at(15 * DAY_MINUTES, DATA, settings)
    back = [user for user in lost if user in overlay.homes]
    assert len(back) > 0.8 * len(lost) > 80
    for user in back:
        assert overlay.topics[user] == {own[user], *(own[friend] for friend in workload.friends[user])}


def test_feeds_publish_in_proportion_to_real_check_ins() -> None:
    """Rates are shares of the total; what is published in 100 s differs from them only by chance."""
    settings = CheckinSettings(user_count=10)
    workload, overlay = started(settings)
    cells = Counter(
        cell_name(cell, settings.grid_columns)
        for cell in cell_numbers(DATA, settings.grid_rows, settings.grid_columns).tolist()
    )
    assert len(cells) == len(overlay.feeds) == 119
    for topic, count in cells.items():
        assert workload.rates_per_s[topic] == pytest.approx(150.0 * count / len(DATA.user))
    overlay.run_until_ms(100_000)
    for topic, rate_per_s in workload.rates_per_s.items():
        expected = rate_per_s * 100
        assert abs(len(overlay.published[topic]) - expected) < 6 * (expected + 1) ** 0.5
    assert sum(map(len, overlay.published.values())) == pytest.approx(15_000, rel=0.05)


def test_feeds_publish_the_check_ins_of_their_cell_oldest_first_and_repeatedly() -> None:
    """Content is a real check-in there and matches what the feed advertised; the oldest follows the newest."""
    settings = CheckinSettings(user_count=10, notifications_per_s=5_000.0)
    _, overlay = started(settings)
    overlay.run_until_ms(8_000)
    cells = cell_numbers(DATA, settings.grid_rows, settings.grid_columns)
    real = defaultdict(list)
    for cell, user, minute in zip(cells.tolist(), DATA.user.tolist(), DATA.minute.tolist(), strict=True):
        real[cell_name(cell, settings.grid_columns)].append((f"user-{user:04d}", float(minute)))
    for topic, contents in overlay.published.items():
        rows = real[topic]
        assert overlay.feeds[topic][1] == topic_filter(topic)
        assert all(matches(topic_filter(topic), content) for content in contents)
        published = [(content["user"], content["minute"]) for content in contents]
        assert published == [rows[position % len(rows)] for position in range(len(published))]
    assert max(len(overlay.published[topic]) / len(rows) for topic, rows in real.items()) > 1.5
    assert 60 < min(overlay.sizes_bytes) <= max(overlay.sizes_bytes) < 120


def test_equal_seeds_give_the_same_requests_in_any_order_of_answers() -> None:
    """Users and homes of feeds do not depend on when feeds may publish; another seed gives other requests."""
    settings = CheckinSettings(user_count=300, notifications_per_s=50.0)

    def asked(overlay: RecordingOverlay, seed: int) -> tuple[list[Request], dict[str, tuple[str, Filter]]]:
        started(settings, overlay, seed=seed)
        overlay.run_until_ms(30_000)
        return overlay.requests, overlay.feeds

    prompt = asked(RecordingOverlay(), 1)
    late = RecordingOverlay(answer_ms=9_000.0, answer_rng=random.Random(5))
    assert asked(late, 1) == prompt
    other = asked(RecordingOverlay(), 2)
    assert other[0] != prompt[0]
    assert other[1] != prompt[1]


def test_contents_do_not_depend_on_when_feeds_may_publish() -> None:
    """Each feed has its own stream: its pauses and check-ins are the same whatever other feeds publish."""
    settings = CheckinSettings(user_count=10)
    _, prompt = started(settings)
    _, other = started(settings, RecordingOverlay(answer_rng=random.Random(5)))
    for overlay in (prompt, other):
        overlay.run_until_ms(20_000)
    for topic, contents in prompt.published.items():
        both = min(len(contents), len(other.published[topic]))
        assert both >= len(contents) - 3
        assert contents[:both] == other.published[topic][:both]


def test_a_stopped_workload_changes_nothing() -> None:
    """After the stop no client publishes, connects, moves or leaves; connected ones stay."""
    workload, overlay = started(CheckinSettings(days_per_s=1.0))
    overlay.run_until_ms(3_000)
    workload.stop()
    counts = len(overlay.requests), len(overlay.sizes_bytes), dict(overlay.homes)
    assert min(counts[:2]) > 100
    overlay.run_until_ms(60_000)
    assert (len(overlay.requests), len(overlay.sizes_bytes), overlay.homes) == counts
