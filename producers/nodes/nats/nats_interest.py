"""What the clients of a NATS server want, as it reports that over a leaf link.

Interest stands while the server is away; what it does not report again once it is back has ended.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress

from regraft.producers.brokers.match_content import MatchIndex
from regraft.producers.nodes.connectors.connector_checks import ConnectorChecks
from regraft.producers.nodes.connectors.groups_once import key_of
from regraft.producers.nodes.connectors.subject_filters import SubjectError, content_of, filter_of
from regraft.producers.nodes.nats.nats_protocol import Interest
from regraft.schemas.agent_names import agent_subscription

WANTED_MAX = 200_000  # Subjects kept here; the node takes INTERESTS_MAX of them at a time.
GROUPS_MAX = 1_000  # Queue groups of one subject: each is named in every message.
TOO_MANY = "too_many_interests"


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


class NatsInterest:
    """The interest at one server; ``queues`` are the groups of the present connection.

    ``leaves_out`` returns True for a subject whose interest is passed on only if a queue group has it.
    """

    def __init__(self, checks: ConnectorChecks) -> None:
        self.queues, self.groups_once = QueueGroups(), frozenset[str]()
        self.leaves_out: Callable[[str], bool] = lambda _subject: False
        self._checks = checks
        self._left_out: set[str] = set()  # Subjects that are wanted without a group, and left out.
        self._wanted: dict[str, set[str]] = {}  # Subject -> queue groups that want it, "" for none.
        self._since_open: dict[str, set[str]] = {}  # The same, since the present connection began.

    def begin_connection(self) -> None:
        """Note that the server reports all interest from the beginning."""
        self._since_open, self.queues = {}, QueueGroups()
        self._left_out.clear()

    def take(self, interest: Interest) -> None:
        """Note that interest begins or ends."""
        subject = interest.subject
        if interest.queue or not (self.leaves_out(subject) if interest.is_wanted else subject in self._left_out):
            self._note(interest)
        elif not interest.is_wanted:
            self._left_out.discard(subject)
        elif len(self._left_out) < WANTED_MAX:
            self._left_out.add(subject)

    def reconsider(self) -> None:
        """Note that other subjects are left out than before."""
        for subject in sorted(self._left_out):
            if not self.leaves_out(subject):
                self._left_out.discard(subject)
                self._note(Interest(subject, "", True))
        for subject in [each for each, queues in self._wanted.items() if "" in queues and self.leaves_out(each)]:
            self._note(Interest(subject, "", False))
            self._left_out.add(subject)

    def _note(self, interest: Interest) -> None:
        subject, queue = interest.subject, interest.queue
        if interest.is_wanted and not self._has_room(subject):
            return
        is_beside = agent_subscription(queue) is not None
        key = key_of(subject, queue) if is_beside or queue in self.groups_once else subject
        if interest.is_wanted:
            self._since_open.setdefault(key, set()).add(queue)
            if key not in self._wanted:
                self._checks.note_interest(key, True)
            self._wanted.setdefault(key, set()).add(queue)
            if not is_beside:  # Those that are to receive a message are named with it.
                self.queues.add(subject, queue)
            return
        self.queues.remove(subject, queue)
        has_ended = [_forget(known, key, queue) for known in (self._since_open, self._wanted)]
        if has_ended[1]:
            self._checks.note_interest(key, False)

    def end_unreported(self) -> None:
        """End interest that the server has not reported since it came back."""
        gone = sorted(subject for subject in self._wanted if subject not in self._since_open)
        self._wanted = {subject: set(queues) for subject, queues in self._since_open.items()}
        for subject in gone:
            self._checks.note_interest(subject, False)

    def _has_room(self, subject: str) -> bool:
        """Return True if an interest can be kept; the others are counted."""
        groups = self._wanted.get(subject, ())
        if len(groups) >= GROUPS_MAX or (not groups and len(self._wanted) >= WANTED_MAX):
            self._checks.refuse(
                TOO_MANY, f"{len(self._wanted)} subjects, {len(groups)} groups of one subject are wanted"
            )
            return False
        return self._checks.may_want(subject)


def _forget(known: dict[str, set[str]], key: str, queue: str) -> bool:
    """Remove a queue group; return True if nobody wants what the key names any more."""
    queues = known.get(key)
    if queues is None:
        return False
    queues.discard(queue)
    if not queues:
        del known[key]
    return not queues
