"""Which of two brokers' messages a moving subscription gets: each once, those of the old epoch first. Pure.

In: what both brokers deliver, and what their nodes say about it. Out: what the client gets. Nodes hand over messages of
the old epoch at the old home only, those of the new epoch at the next one only, and the next one's come after it has
everything of the old epoch. So only what clients publish *at* one of the two brokers needs care: the broker delivers it
by itself at once, whatever its epoch. Its node says how many of these belong to the old epoch, since a note that both
sides see; those are taken from the old home, the rest from the next one.

A busy broker may let its subscribers and its node see messages, or a message and the note, in quite different order. So
the marks of messages of the old epoch, in the node's order, decide: of what is published at the next home, those that
the old home hands over; of what is published at the old home, the last ones, which its node says. The count decides
only between messages that are all equal.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Sequence
from dataclasses import dataclass, field

from regraft.schemas.agent_note import MARKS_MAX

RACE_MAX = MARKS_MAX * 3 // 4  # Messages by which a broker may show one earlier than its node, of the last ones.
SEEN_MAX = 10_000  # Messages of the old home's clients between its switch and the note that says so.


def new_places(seen: Sequence[int], nominal: int, old: Sequence[int], *, is_whole: bool) -> set[int]:
    """Return the places of ``seen``, in a subscriber's order, that are of the new epoch.

    ``old`` are the marks of the old epoch in the node's order, all or the last ``MARKS_MAX``. Those without an equal
    show where the new epoch begins, as most of them have it; if there is none, that is at ``nominal``, by count. On
    either side of that place, what has no equal is of the epoch that ``old`` says.
    """
    places, seen_counts, old_counts = {mark: at for at, mark in enumerate(seen)}, Counter(seen), Counter(old)
    alone = [(at, mark) for at, mark in enumerate(old) if old_counts[mark] == 1 == seen_counts[mark]]
    begins = sorted(places[mark] + len(old) - at for at, mark in alone)
    border = begins[len(begins) // 2] if begins else max(nominal, 0)
    # Before the first that the node has seen, it may not have seen any: nobody else wanted them.
    first = next((at for at, mark in enumerate(seen) if mark in old_counts), border)
    near = first if is_whole else max(border - RACE_MAX, first)
    return {
        at
        for at, mark in enumerate(seen)
        if (at >= near and mark not in old_counts if seen_counts[mark] == 1 else at >= border)
    }


def _take(marks: Counter[int], mark: int) -> bool:
    if marks[mark] <= 0:
        return False
    marks[mark] -= 1
    return True


@dataclass(slots=True)
class MovingSubscription:
    """One subscription on its way from ``home_from`` to ``home_to``.

    ``is_joined`` is False as long as the next home's node may hold back what is for this subscription and hand it over
    apart from the rest.
    """

    home_from: str
    home_to: str
    is_joined: bool = False
    is_counting: bool = False
    is_drained: bool = False
    switched_from: bool = False
    switched_to: bool = False
    _seen_from: deque[int] = field(default_factory=lambda: deque(maxlen=SEEN_MAX))
    _since_from: int = 0  # How many of the old home's own messages have come since the note.
    _is_noted_from: bool = False
    _owed_from: Counter[int] = field(default_factory=Counter)  # Of the old epoch, and not seen before the switch.
    _copies_to: deque[int] = field(default_factory=lambda: deque(maxlen=SEEN_MAX))  # Of the next home's, by the old.
    _seen_to: list[int] = field(default_factory=list)
    _before_note_to: int = 0
    _border: tuple[int, tuple[int, ...]] = (0, ())
    _repeated: Counter[int] = field(default_factory=Counter)

    @property
    def is_complete(self) -> bool:
        """Return True once nothing more of the old epoch comes, and it is clear what of the next home's was of it."""
        return self.is_drained and self.switched_to

    # --- at the old home ---------------------------------------------------------------------------------------------

    def note_counted_from(self) -> None:
        """Note that the old home's node counts from here on, since the last note that says so."""
        self._is_noted_from, self._since_from = True, 0

    def takes_from_old(self, home: str, mark: int) -> bool:
        """Return True if the client gets what the old home delivers; ``home`` is where others published it, or ""."""
        if home:
            if home == self.home_to:
                self._copies_to.append(mark)
            return True
        if self.switched_from and not _take(self._owed_from, mark):
            return False  # The next home has it, too.
        self._seen_from.append(mark)
        self._since_from += self._is_noted_from
        return True

    def note_switched_from(self, count: int, last: Sequence[int]) -> None:
        """Note that ``count`` of the old home's own messages were of the old epoch; those beyond come again."""
        self.switched_from = True
        seen = list(self._seen_from)
        nominal = len(seen) - self._since_from + count
        new = new_places(seen, nominal, last, is_whole=len(last) < MARKS_MAX)
        self._repeated = Counter(seen[place] for place in new)
        self._owed_from = Counter(last[-count:] if count else ()) - Counter(seen)

    # --- at the next home --------------------------------------------------------------------------------------------

    def keep_own(self, mark: int) -> int:
        """Return the place of a message that a client of the next home has published."""
        self._seen_to.append(mark)
        return len(self._seen_to) - 1

    def note_counted_to(self) -> None:
        """Note that the next home's node counts from here on, since the last note before it said that it does."""
        if not self.is_counting:
            self._before_note_to = len(self._seen_to)

    def note_switched_to(self, count: int, last: Sequence[int]) -> None:
        """Note that ``count`` of the next home's own messages were of the old epoch."""
        self.switched_to = True
        self._border = self._before_note_to + count, tuple(last)

    def finish(self) -> set[int]:
        """Return the places of the next home's own messages that the client gets from it.

        If the old home is lost, any of its own messages since the note may come again.
        """
        if not self.switched_from:
            seen = list(self._seen_from)
            self._repeated = Counter(seen[len(seen) - self._since_from if self._is_noted_from else 0 :])
        nominal, last = self._border
        is_whole = bool(self._copies_to) or len(last) < MARKS_MAX
        return new_places(self._seen_to, nominal, self._copies_to or last, is_whole=is_whole)

    def takes_from_next(self, home: str, mark: int) -> bool:
        """Return True if the client gets what others published and the next home delivers."""
        return not (home == self.home_from and _take(self._repeated, mark))

    @property
    def is_over(self) -> bool:
        """Return True if all that the next home delivers from now on is for the client."""
        return self.is_joined and not self.awaits_repeats

    @property
    def awaits_repeats(self) -> bool:
        """Return True if copies of messages that the client has may still come."""
        return self._repeated.total() > 0
