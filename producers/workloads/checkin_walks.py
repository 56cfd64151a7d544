"""Where mobile users are, among the brokers of an overlay, as the shipped check-ins say.

In: the check-ins (data/SOURCES.md), brokers and the delays between them. Out: which user begins near which broker, and
near which one it is from when. The city is cut into strips from west to east, one for each broker, with about as many
check-ins each; the strips of two brokers that are near each other are neighbours where possible. A user is in the strip
of its last check-in until the next one. The check-ins repeat, so before its first one it is where its last one left it.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from regraft.producers.workloads.checkin_data import DAY_MINUTES, Checkins, cell_numbers, load_checkins

ACTIVE_DAYS = 7  # A mobile user has checked in by then: others do not move for weeks.


@dataclass(slots=True)
class _Walk:
    """The check-ins of one user, as minutes and brokers, oldest first; ``next_visit`` counts on when they repeat."""

    minutes: list[int]
    brokers: list[str]
    here: str
    next_visit: int = 0

    def go(self, minute: float, data_minutes: int) -> bool:
        """Move to where the user is at this minute; return True if that is another place."""
        before = self.here
        while True:
            turn, position = divmod(self.next_visit, len(self.minutes))
            if turn * data_minutes + self.minutes[position] > minute:
                return self.here != before
            self.here = self.brokers[position]
            self.next_visit += 1


class CheckinWalks:
    """One mobile user near each of the brokers ``homes``, drawn from those who are there at the start.

    Where nobody is, there is none.
    """

    def __init__(
        self,
        brokers: Sequence[str],
        homes: Sequence[str],
        delay_ms: Callable[[str, str], float],
        rng: random.Random,
        checkins: Checkins | None = None,
    ) -> None:
        self._data = checkins or load_checkins()
        strips = _chain(brokers, delay_ms)
        near = [strips[number] for number in cell_numbers(self._data, 1, len(strips)).tolist()]
        rows: dict[int, list[int]] = defaultdict(list)
        for row, user in enumerate(self._data.user.tolist()):
            rows[user].append(row)
        minutes = self._data.minute.tolist()
        waiting: dict[str, list[int]] = defaultdict(list)
        for user in sorted(rows):
            if minutes[rows[user][0]] < ACTIVE_DAYS * DAY_MINUTES:
                waiting[near[rows[user][-1]]].append(user)
        self._walks: dict[str, _Walk] = {}
        for home in homes:
            if waiting[home]:
                chosen = rows[rng.choice(waiting[home])]
                self._walks[home] = _Walk([minutes[row] for row in chosen], [near[row] for row in chosen], home)

    @property
    def homes(self) -> tuple[str, ...]:
        """The brokers near which a mobile user begins."""
        return tuple(self._walks)

    def moves_until(self, minute: float) -> Iterator[tuple[str, str]]:
        """Yield who has moved since the last call, by the broker where it began, and the broker that it is now near.

        ``minute`` is one of the check-ins', which continues when they repeat.
        """
        for home, walk in self._walks.items():
            if walk.go(minute, self._data.minutes):
                yield home, walk.here


def _chain(brokers: Sequence[str], delay_ms: Callable[[str, str], float]) -> list[str]:
    """Return the brokers from the first on, each followed by the nearest of the rest."""
    rest = list(brokers)
    chain = [rest.pop(0)]
    while rest:
        chain.append(min(rest, key=lambda broker: (delay_ms(chain[-1], broker), broker)))
        rest.remove(chain[-1])
    return chain
