"""The queue groups of a NATS server's clients, which a leaf must name in each message for them. Pure.

In: interest with a group. Out: the groups that want a subject.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

from regraft.producers.brokers.match_content import MatchIndex
from regraft.producers.nodes.connectors.subject_filters import SubjectError, content_of, filter_of


class QueueGroups:
    """Which queue groups want which subjects: a leaf must name the groups that are to receive a message."""

    def __init__(self) -> None:
        self._index = MatchIndex()

    def add(self, subject: str, queue: str) -> None:
        """Note that a group wants a subject; ignore "", which is no group."""
        key = f"{subject} {queue}"
        if queue and key not in self._index:
            with suppress(SubjectError):  # Refused and counted by the node.
                self._index.add(key, filter_of(subject), queue)

    def remove(self, subject: str, queue: str) -> None:
        """Note that a group no longer wants a subject."""
        if f"{subject} {queue}" in self._index:
            self._index.remove(f"{subject} {queue}")

    def of(self, subject: str, excluded: frozenset[str] = frozenset()) -> Sequence[str]:
        """Return the groups that are to receive a message with this subject, sorted."""
        return sorted(self._index.destinations(content_of(subject)) - excluded) if len(self._index) else ()
