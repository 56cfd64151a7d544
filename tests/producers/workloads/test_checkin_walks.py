"""Mobile users roam among brokers by real check-ins."""

from __future__ import annotations

import random

import numpy as np

from regraft.producers.workloads.checkin_data import DAY_MINUTES, Checkins, checkins_of, load_checkins
from regraft.producers.workloads.checkin_walks import ACTIVE_DAYS, CheckinWalks

BROKERS = ("b1", "b2", "b3", "b4")
PLACES = {"b1": 0.0, "b2": 30.0, "b3": 10.0, "b4": 20.0}  # On a line, from west to east: b1, b3, b4, b2.


def _delay_ms(one: str, other: str) -> float:
    return abs(PLACES[one] - PLACES[other])


def _walks(data: Checkins | None, homes: tuple[str, ...] = BROKERS, seed: int = 1) -> CheckinWalks:
    return CheckinWalks(BROKERS, homes, _delay_ms, random.Random(seed), data)


def _checkins(*rows: tuple[int, int, float]) -> Checkins:
    """Return check-ins (user, minute, degrees east) of 30 days."""
    user, minute, lon = (np.array(column) for column in zip(*rows, strict=True))
    return checkins_of(user, minute, np.full(len(rows), 40.7), lon, 30)


# Four strips of two check-ins each: user 0 ends in the second, user 1 in the last, user 2 comes too late.
SMALL = _checkins(
    (0, 100, 1.0), (0, 200, 4.0), (0, 300, 2.0), (1, 150, 3.5), (1, 250, 4.5),
    (2, 15_000, 1.5), (2, 16_000, 2.5), (2, 17_000, 3.0),
)  # fmt: skip


def test_users_are_near_the_broker_of_their_last_checkin() -> None:
    """Strips from west to east belong to brokers each of which is near the next; moves come once, and repeat."""
    walks = _walks(SMALL)
    assert walks.homes == ("b2", "b3")  # Users 1 and 0; nobody who is mobile begins near the others.
    assert list(walks.moves_until(99)) == []
    assert list(walks.moves_until(100)) == [("b3", "b1")]
    assert list(walks.moves_until(220)) == [("b2", "b4"), ("b3", "b2")]
    assert list(walks.moves_until(220)) == []
    assert list(walks.moves_until(400)) == [("b2", "b2"), ("b3", "b3")]
    again = SMALL.minutes + 100
    assert list(walks.moves_until(again - 1)) == []
    assert list(walks.moves_until(again)) == [("b3", "b1")]


def test_who_left_and_returned_between_two_looks_has_not_moved() -> None:
    """Only the present place counts."""
    assert list(_walks(SMALL).moves_until(SMALL.minutes)) == []


def test_the_shipped_checkins_move_a_user_near_each_broker() -> None:
    """Each begins at its own broker and visits that one's and others' strips; equal seeds draw equal users."""
    data = load_checkins()
    first, again, other = (
        list(_walks(None, seed=seed).moves_until(ACTIVE_DAYS * DAY_MINUTES * 2)) for seed in (1, 1, 2)
    )
    assert first == again != other
    walks, moves = _walks(None), []
    for minute in range(0, data.minutes, 15):
        moves += walks.moves_until(minute)
    assert walks.homes == BROKERS
    assert {home for home, _ in moves} == {at for _, at in moves} == set(BROKERS)


def test_most_users_soon_move_on() -> None:
    """Most stays end within a day and a half, which is 30 s beside real brokers: no plan can follow all of them."""
    walks, moved, stays_days = _walks(None), {}, []
    for minute in range(0, ACTIVE_DAYS * DAY_MINUTES, 15):
        for home, _ in walks.moves_until(minute):
            if home in moved:
                stays_days.append((minute - moved[home]) / DAY_MINUTES)
            moved[home] = minute
    assert len(stays_days) > 5
    assert np.median(stays_days) < 1.5


def test_only_the_homes_asked_for_have_a_user() -> None:
    """Where clients cannot move, nobody is mobile."""
    assert _walks(None, ("b4",)).homes == ("b4",)
    assert _walks(None, ()).homes == ()
