"""Which subjects are wanted at a broker, and which of those wanted elsewhere a connector asks its broker for. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager

ASKED_MAX = 2_000  # Beyond this, one wildcard costs the broker less than as many subscriptions.


class WantedSubjects:
    """Subjects with the number of bindings or subscriptions that want them; calls ``on_interest(subject, wanted)``."""

    def __init__(self, on_interest: Callable[[str, bool], None]) -> None:
        self._on_interest = on_interest
        self._counts: Counter[str] = Counter()
        self._is_deferred = False

    def add(self, subjects: Iterable[str]) -> None:
        """Count one more for each subject; report those that become wanted."""
        for subject in subjects:
            self._counts[subject] += 1
            if self._counts[subject] == 1 and not self._is_deferred:
                self._on_interest(subject, True)

    def remove(self, subjects: Iterable[str]) -> None:
        """Count one less for each subject; report those that nothing wants any more."""
        for subject in subjects:
            self._counts[subject] -= 1
            if not self._counts[subject]:
                del self._counts[subject]
                if not self._is_deferred:
                    self._on_interest(subject, False)

    @contextmanager
    def net_changes(self) -> Iterator[None]:
        """Report at the end only what differs from the beginning."""
        before = set(self._counts)
        self._is_deferred = True
        try:
            yield
        finally:
            self._is_deferred = False
        for subject in sorted(before - set(self._counts)):
            self._on_interest(subject, False)
        for subject in sorted(set(self._counts) - before):
            self._on_interest(subject, True)


class AskedSubjects:
    """The subjects of one connector. It begins with ``everything``, until someone says what is wanted."""

    def __init__(self, everything: str) -> None:
        self._everything = everything
        self.asked: set[str] = {everything}

    def add(self, subjects: Collection[str]) -> list[str]:
        """Note further subjects; return those to ask for."""
        if self._everything in self.asked:
            return []
        new = set(subjects) - self.asked
        if len(self.asked) + len(new) > ASKED_MAX:
            new = {self._everything}
        self.asked |= new
        return sorted(new)

    def replace(self, subjects: Collection[str]) -> tuple[list[str], list[str]]:
        """Note all that is wanted; return what to ask for, and what no longer."""
        target = set(subjects) if len(subjects) <= ASKED_MAX else {self._everything}
        before, self.asked = self.asked, target
        return sorted(target - before), sorted(before - target)
