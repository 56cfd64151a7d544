"""What a NATS server lets a leaf publish and subscribe: it ends the connection at the first message beyond that. Pure.

In: the facts that the server sends after the login. Out: whether a subject may be sent.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

from regraft.producers.brokers.match_content import MatchIndex
from regraft.producers.nodes.connectors.subject_filters import SubjectError, content_of, filter_of

NOT_PERMITTED = "permission_denied"
SUBJECTS_KEPT_MAX = 10_000
ROOT = "subject."  # Before each subject here, as a filter begins with no name of a server or node.
PUBLISH, SUBSCRIBE = "export", "import"  # As the leaf sees them.


class LeafPermissions:
    """The permissions of a leaf link; without any, everything may be sent."""

    def __init__(self, facts: Mapping[str, Any] | None = None) -> None:
        given = {name: (facts or {}).get(name) for name in (PUBLISH, SUBSCRIBE)}
        self.limits = {
            name: limit for name, limit in given.items() if isinstance(limit, Mapping) and any(limit.values())
        }
        self._publish, self._subscribe = (_Subjects(self.limits.get(name, {})) for name in (PUBLISH, SUBSCRIBE))
        self.may_publish = lru_cache(maxsize=SUBJECTS_KEPT_MAX)(self._publish.holds)

    @property
    def has_subscribe_limit(self) -> bool:
        """Return True if not everything may be subscribed."""
        return SUBSCRIBE in self.limits

    def may_subscribe(self, subject: str) -> bool:
        """Return True if a subject may be subscribed."""
        return self._subscribe.holds(subject)


class _Subjects:
    def __init__(self, limit: Mapping[str, Sequence[str]]) -> None:
        self._is_limited = bool(limit.get("allow"))
        self._allowed, self._denied = (_index_of(limit.get(name) or ()) for name in ("allow", "deny"))

    def holds(self, subject: str) -> bool:
        content = content_of(f"{ROOT}{subject}")
        is_allowed = not self._is_limited or bool(self._allowed.destinations(content))
        return is_allowed and not self._denied.destinations(content)


def _index_of(patterns: Sequence[str]) -> MatchIndex:
    index = MatchIndex()
    for pattern in patterns:
        try:
            index.add(pattern, filter_of(f"{ROOT}{pattern}"), pattern)
        except SubjectError:  # No subject of a message matches it.
            continue
    return index
