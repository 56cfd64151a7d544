"""Count how often each subject is wanted at a broker, and report the first and the last time. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager


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
