"""Which of two brokers' messages a moving subscription gets: each once, those of the old epoch first. Pure.

In: what both brokers deliver, and what their nodes say about it. Out: what the client gets. Nodes hand over messages of
the old epoch at the old home only, those of the new epoch at the next one only, and the next one's come after it has
everything of the old epoch. So only what clients publish *at* one of the two brokers needs care: the broker delivers it
by itself at once, whatever its epoch. Its node says how many of these belong to the old epoch, since a point that both
sides see; the old home's are taken from there, and so are the next home's from there on.

Two clients that publish at the same moment may be seen by broker and node in different order. So near the border the
count says how many, and the messages themselves say which.
"""

from __future__ import annotations

from collections import Counter, deque
from dataclasses import dataclass, field

NEAR = 64  # Messages on each side of the border that are compared.


@dataclass(slots=True)
class MovingSubscription:
    """One subscription on its way from ``home_from`` to ``home_to``; marks are hashes of subject and payload."""

    home_from: str
    home_to: str
    is_counted: bool = False
    is_drained: bool = False
    switched_from: bool = False
    switched_to: bool = False
    _locals_from: deque[int] = field(default_factory=lambda: deque(maxlen=2 * NEAR))
    _locals_count: int = 0
    _repeated: Counter[int] = field(default_factory=Counter)
    _repeats_left: int = 0
    _copies_to: deque[int] = field(default_factory=lambda: deque(maxlen=NEAR))
    _old_at_next: int = 0

    @property
    def is_complete(self) -> bool:
        """Return True once nothing more of the old epoch comes, and it is clear what of the next home's was of it."""
        return self.is_drained and self.switched_to

    # --- at the old home ---------------------------------------------------------------------------------------------

    def takes_from_old(self, home: str, mark: int) -> bool:
        """Return True if the client gets what the old home delivers; ``home`` is where others published it, or ""."""
        if home:
            if home == self.home_to:
                self._copies_to.append(mark)
            return True
        if self.switched_from:
            return False  # The next home has it, too.
        if self.is_counted:
            self._locals_from.append(mark)
            self._locals_count += 1
        return True

    def note_switched_from(self, count: int) -> None:
        """Note that ``count`` of the old home's own messages were of the old epoch; those beyond come again."""
        self.switched_from = True
        self._repeats_left = max(self._locals_count - count, 0)
        self._repeated = Counter(list(self._locals_from)[-self._repeats_left - NEAR :] if self._repeats_left else ())

    # --- at the next home --------------------------------------------------------------------------------------------

    def note_switched_to(self, count: int) -> None:
        """Note that ``count`` of the next home's own messages were of the old epoch."""
        self.switched_to, self._old_at_next = True, count

    def old_of(self, marks: list[int]) -> set[int]:
        """Return the places of the next home's own messages, in order, that the old home has delivered."""
        count = min(self._old_at_next, len(marks))
        sure = max(count - NEAR, 0)
        places, copies = set(range(sure)), Counter(list(self._copies_to)[-count:] if count else ())
        for place in range(sure, min(count + NEAR, len(marks))):
            if len(places) == count:
                return places
            if copies[marks[place]]:
                copies[marks[place]] -= 1
                places.add(place)
        for place in range(sure, len(marks)):
            if len(places) == count:
                break
            places.add(place)
        return places

    def takes_from_next(self, home: str, mark: int) -> bool:
        """Return True if the client gets what others published and the next home delivers."""
        if self._repeats_left and home == self.home_from and self._repeated[mark]:
            self._repeated[mark] -= 1
            self._repeats_left -= 1
            return False
        return True

    @property
    def awaits_repeats(self) -> bool:
        """Return True if copies of messages that the client has may still come."""
        return self._repeats_left > 0
