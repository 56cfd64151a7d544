"""Add data from the register of clients to a window of a ring: what users want and where, and how often topics publish.

Windows of a tree do not need this.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from regraft.controller.state.closed_window import ClosedWindow
from regraft.controller.state.find_homes import strayed_users
from regraft.overlay.ring.ring_configuration import RingConfiguration
from regraft.overlay.ring.user_interests import UserInterests
from regraft.overlay.sets.delivery_sets import DeliverySets
from regraft.schemas.texts import name_some

NAMED_MAX = 3  # Publishers named; the others are only counted.


@dataclass(frozen=True)
class TopicTraffic:
    """How often topics were published, and what is unknown: notifications of publishers without a topic."""

    rates_per_s: Mapping[str, float]
    unknown_publishers: tuple[str, ...]
    unknown_share: float


def topic_traffic(sets: DeliverySets, topic_of: Mapping[str, str]) -> TopicTraffic:
    """Return the notifications published per second by topic; each counts once, wherever it was delivered."""
    counts = np.bitwise_count(sets.published)
    by_topic: dict[str, int] = {}
    unknown: dict[str, int] = {}
    for (publisher, _), count in zip(sets.columns, counts.tolist(), strict=True):
        topic = topic_of.get(publisher)
        where, name = (unknown, publisher) if topic is None else (by_topic, topic)
        where[name] = where.get(name, 0) + count
    span_s = max(sets.span_s, 1e-9)
    rates_per_s = {topic: count / span_s for topic, count in sorted(by_topic.items())}
    total = sum(by_topic.values()) + sum(unknown.values())
    return TopicTraffic(rates_per_s, tuple(sorted(unknown)), sum(unknown.values()) / total if total else 0.0)


def with_clients(
    window: ClosedWindow,
    interests: UserInterests | None,
    traffic: TopicTraffic,
    rings: Sequence[RingConfiguration],
    unknown_share_max: float,
    error: str = "",
) -> ClosedWindow:
    """Return the window with interests and rates.

    ``rings`` are the rings of the window's first and last epoch, with the homes that plans have set; in between a user
    may still be where the first one has it. The window is incomplete, and so not decided on, without interests
    (``error`` says why), or if more than ``unknown_share_max`` of its notifications are of publishers without a topic.
    """
    errors = [window.error]
    if interests is None:
        errors.append(f"the users' subscriptions are unknown: {error or 'no register of clients'}")
    if traffic.unknown_share > unknown_share_max:
        errors.append(
            f"{traffic.unknown_share:.0%} of the notifications come from publishers without a topic "
            f"({name_some(list(traffic.unknown_publishers), NAMED_MAX)}), but the limit is {unknown_share_max:.0%}: "
            "check that the register of clients names their topics"
        )
    return replace(
        window,
        interests=interests,
        topic_rates_per_s=traffic.rates_per_s,
        strayed=_strayed(interests, rings),
        error="; ".join(one for one in errors if one),
    )


def _strayed(interests: UserInterests | None, rings: Sequence[RingConfiguration]) -> frozenset[str]:
    if interests is None or not rings:
        return frozenset()
    return frozenset.intersection(*(strayed_users(interests, ring.home_of) for ring in rings))
