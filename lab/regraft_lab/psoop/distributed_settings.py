"""Settings of Jaeger07's distributed protocol: one frozen value, checked as a whole before a run.

This module reads neither files nor the environment. Defaults are the paper's values, or ours if the paper gives none.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class CommonInterest(StrEnum):
    """How a broker estimates I_ikj, the notifications that it shares with two others (Jaeger07, sections 4.1 and 6)."""

    MEAN = "mean"  # min(phi, I_ij, I_ik), with phi of Eq. 6.
    CONJUNCTION = "conjunction"  # Counts its own cached ids in both filters: the paper's open question.


class FilterContent(StrEnum):
    """Which ids a broadcast's filter contains: sections 4 and 4.3.1 of the paper disagree."""

    CACHE = "cache"  # All cached ids.
    INTERVAL = "interval"  # Those cached since the broker's last broadcast.


@dataclass(frozen=True, slots=True)
class DistributedSettings:
    """Settings of the brokers of the distributed protocol.

    ``horizon_hops``: eta. ``broadcast_ms``: time between two broadcasts of a broker; the paper's 250 ticks are a tenth
    of a subscription's mean lifetime. ``cache_count_max``: newest ids that a broker keeps. ``filter_bits`` and
    ``filter_hashes``: shape of every filter, unless ``false_positive_share`` is set: then each filter has the shape
    that holds its ids with this share of false positives. ``common_interest`` and ``filter_content``: the paper's open
    questions as switches. ``request_ms_max``: how long a request may travel, and how long a broker waits for its
    outcome before it is free again. ``agreed_ms_max``: how long a broker waits for an agreed exchange to be executed.
    ``gather_ms``: how long the first exchange handed over waits for others to share its transition.
    ``exchanges_waiting_max``: exchanges that may wait for a transition; more are rejected.
    """

    horizon_hops: int = 4
    broadcast_ms: float = 2_500.0
    cache_count_max: int = 8_192
    filter_bits: int = 100_000
    filter_hashes: int = 5
    false_positive_share: float | None = None
    common_interest: CommonInterest = CommonInterest.MEAN
    filter_content: FilterContent = FilterContent.CACHE
    request_ms_max: float = 5_000.0
    agreed_ms_max: float = 120_000.0
    gather_ms: float = 1_000.0
    exchanges_waiting_max: int = 32

    def errors(self) -> list[str]:
        """Return every error as one sentence with the value, the limit and what to do; empty if there is none."""
        errors = [
            f"{name} is {value:g}: must be at least {least:g} ({reason})"
            for name, value, least, reason in (
                ("horizon_hops", self.horizon_hops, 2, "a direct neighbour is already linked"),
                ("broadcast_ms", self.broadcast_ms, 1, "each broadcast goes to the whole neighbourhood"),
                ("cache_count_max", self.cache_count_max, 1, "without ids nothing is in common"),
                ("filter_bits", self.filter_bits, 8, "a filter needs a byte"),
                ("filter_hashes", self.filter_hashes, 1, "an id sets at least one bit"),
                ("request_ms_max", self.request_ms_max, 1, "a request crosses links"),
                ("agreed_ms_max", self.agreed_ms_max, self.request_ms_max, "a transition follows the request"),
                ("gather_ms", self.gather_ms, 0, "it is a time"),
                ("exchanges_waiting_max", self.exchanges_waiting_max, 1, "nothing could be executed"),
            )
            if not value >= least
        ]
        if self.false_positive_share is not None and not 0 < self.false_positive_share < 1:
            errors.append(
                f"false_positive_share is {self.false_positive_share:g}: must be above 0 and below 1, or none for a "
                "fixed shape"
            )
        return errors
