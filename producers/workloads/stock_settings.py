"""Settings of the stock workload: who publishes and subscribes to what, and when interests shift."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated

from regraft.producers.workloads.field_texts import WORKLOAD_TEXTS, text_errors

SYMBOLS_SHIPPED = 49  # Symbols that the shipped subscriptions name (data/SOURCES.md).


class RegimeChange(StrEnum):
    """What changes at a regime change."""

    INTERESTS = "interests"
    PUBLISHER = "publisher"
    CROWD = "crowd"
    DAY = "day"


class Detours(StrEnum):
    """When notifications go around congested links."""

    ALWAYS = "always"
    NEVER = "never"
    ALTERNATE = "alternate"  # In every second burst; not in or before the first.


@dataclass(frozen=True, slots=True)
class WorkloadSettings:
    """Who publishes and subscribes to what, and when interests shift."""

    publisher_count: Annotated[int, "publishers, each with the quotes of one symbol"] = SYMBOLS_SHIPPED
    notifications_per_s: Annotated[float, "average rate of each publisher, at random times"] = 4.0
    interested_broker_count: Annotated[
        int,
        "average number of simultaneous subscriptions to a symbol, each at a different broker while there are enough",
    ] = 9
    lifetime_s_mean: Annotated[float, "mean lifetime of a subscription, which is then replaced by one elsewhere"] = 20.0
    broker_load_exponent: Annotated[
        float,
        "how unevenly brokers draw subscriptions, 0 for evenly, 1 as in Jaeger07; by default, interests matter "
        "enough next to PlanetLab's delays for their shift to require a different overlay",
    ] = 4.0
    # How unevenly symbols are wanted, 0 for evenly.
    popularity_sigma: float = 0.5
    # Time from the start of traffic to the regime change; none for never. These and the fields of bursts are given by
    # the texts below.
    regime_change_s: float | None = None
    # What changes then.
    regime_change_kind: str = RegimeChange.INTERESTS
    # Factor on that symbol's or publisher's rate.
    regime_change_factor: float = 20.0
    # How long a crowd stays, or a day is from midnight to midnight.
    regime_change_for_s: float = 60.0
    # Time over which all subscriptions are replaced when interests change or a crowd comes or goes.
    regime_change_spread_s: float = 3.0
    # Time from one change to the next, for long runs; none for at most one change.
    regime_change_every_s: float | None = None
    # Time from the start of one burst to that of the next; none for no bursts.
    burst_every_s: float | None = None
    # Length of a burst.
    burst_s: float = 10.0
    # Factor on the rate of each publisher in a burst.
    burst_factor: float = 3.0
    # Number of bursts; none for no limit.
    burst_count: int | None = None
    # Length of the last burst; none for that of the others.
    burst_s_last: float | None = None
    regime_change: Annotated[
        str | None,
        'what changes and when, such as "interests at 90 over 3 every 300": interests (brokers and symbols draw new '
        "shares), publisher (one publishes more from then on), crowd (for a time every second subscription is to one "
        "symbol, which also publishes more) or day (from then on brokers draw more by day than by night, and the day "
        'moves around them in their order), after how many seconds of traffic, over how many ("over", 3 unless given) '
        'all subscriptions are replaced, and for long runs how often it happens again ("every"); none for no change',
    ] = None
    bursts: Annotated[
        str | None,
        'bursts of publications, such as "every 30 for 5 by 6 times 3 last 45": seconds from the start of one to that '
        "of the next, and unless other values are given 10 s each, at 3 times the rate, without end; the last one may "
        "have another length; none for no bursts",
    ] = None
    publisher_broker_count: Annotated[
        int | None,
        "number of brokers at which publishers first connect, as if feeds entered through few gateways; none for all",
    ] = None

    def errors(self) -> list[str]:
        """Return each error as one sentence with the value, the limit and what to do; empty if there is none."""
        errors = too_small(
            [
                ("interested_broker_count", self.interested_broker_count, 1, "no broker would subscribe to anything"),
                (
                    "lifetime_s_mean",
                    self.lifetime_s_mean,
                    1.0,
                    "subscriptions must outlive their set-up",
                ),
                ("broker_load_exponent", self.broker_load_exponent, 0.0, "0 makes all brokers alike"),
                ("regime_change_spread_s", self.regime_change_spread_s, 0.0, "0 replaces all at once"),
                ("burst_factor", self.burst_factor, 1.0, "1 is not a burst at all"),
                ("burst_s", self.burst_s, 0.1, "it is a duration"),
            ]
        )
        if not 1 <= self.publisher_count <= SYMBOLS_SHIPPED:
            errors.append(
                f"publisher_count is {self.publisher_count}: must be from 1 to {SYMBOLS_SHIPPED}, the number of "
                "symbols shipped"
            )
        if not 0 < self.notifications_per_s <= 1_000:
            errors.append(
                f"notifications_per_s is {self.notifications_per_s:g}: must be above 0 and at most 1000 for each "
                "publisher"
            )
        return errors + text_errors(self, WORKLOAD_TEXTS) + self._regime_errors() + self._burst_errors()

    def _burst_errors(self) -> list[str]:
        errors = []
        if self.publisher_broker_count is not None and self.publisher_broker_count < 1:
            errors.append(
                f"publisher_broker_count is {self.publisher_broker_count}: must be at least 1, or none for all brokers"
            )
        if self.burst_s_last is not None and (self.burst_s_last < 0.1 or self.burst_count is None):
            errors.append(
                f"burst_s_last is {self.burst_s_last:g}: must be at least 0.1, and it needs burst_count, which ends "
                "the bursts"
            )
        if self.burst_count is not None and self.burst_count < 1:
            errors.append(f"burst_count is {self.burst_count}: must be at least 1, or none for endless bursts")
        if self.burst_every_s is not None and self.burst_every_s <= self.burst_s:
            errors.append(
                f"burst_every_s is {self.burst_every_s:g}: must be above burst_s ({self.burst_s:g}), or none for no "
                "bursts"
            )
        return errors

    def _regime_errors(self) -> list[str]:
        errors = []
        if self.regime_change_s is not None and self.regime_change_s <= 0:
            errors.append(f"regime_change_s is {self.regime_change_s:g}: must be above 0, or none for no regime change")
        if self.regime_change_kind not in set(RegimeChange):
            errors.append(
                f"regime_change_kind is {self.regime_change_kind!r}: must be one of {', '.join(RegimeChange)}"
            )
        every_s, for_s = self.regime_change_every_s, self.regime_change_for_s
        if every_s is not None and every_s <= self.regime_change_spread_s:
            errors.append(
                f"regime_change_every_s is {every_s:g}: must be above regime_change_spread_s "
                f"({self.regime_change_spread_s:g}), "
                "so that one shift is over before the next, or none for one shift at most"
            )
        if every_s is not None and self.regime_change_kind == RegimeChange.CROWD and every_s <= for_s:
            errors.append(
                f"regime_change_every_s is {every_s:g}: must be above regime_change_for_s ({for_s:g}), so that one "
                "crowd "
                "has gone before the next comes, or none for one crowd at most"
            )
        return errors


def too_small(checks: Iterable[tuple[str, float, float, str]]) -> list[str]:
    """Return a sentence for each (name, value, minimum, reason) whose value is below the minimum."""
    return [
        f"{name} is {value:g}: must be at least {least:g} ({reason})"
        for name, value, least, reason in checks
        if not value >= least
    ]
