"""Prices: what traffic between brokers, and from brokers to their subscribers, costs in money.

In: prices by volume, as a cloud provider lists them. Out: what one notification costs, in millionths of the currency,
which then is the unit of the one cost. Adding up what an overlay costs belongs to :mod:`overlay.cost`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

BYTES_PER_GB = 1e9
PER_UNIT = 1e6  # Millionths: a notification of 500 bytes costs some hundredths of a millionth of a dollar.
MONTH_S = 30 * 86_400


class PricesError(ValueError):
    """The prices are not usable; the message says which value is wrong."""


@dataclass(frozen=True, eq=False)
class Prices:
    """What a GB costs.

    ``link_per_gb`` (n, n, symmetric, 0 to itself) between brokers, ``access_per_gb`` (n,) to subscribers. Providers
    charge the sender, so a link's cost depends on the direction; the mean of both is taken. What publishers send to
    their broker is free. ``message_bytes`` is what a notification takes on the way on average. ``delay_price`` is what
    a second of a notification's way counts as, in millionths of ``currency``: it is not money, and keeps overlays that
    cost the same from being slow. ``delay_ms`` (n, n) is known where the costs of links are prices already.
    """

    currency: str
    link_per_gb: Floats
    access_per_gb: Floats
    message_bytes: float
    delay_price: float = 0.0
    delay_ms: Floats | None = None

    def __post_init__(self) -> None:
        count = len(self.access_per_gb)
        if self.link_per_gb.shape != (count, count):
            raise PricesError(f"prices of links are {self.link_per_gb.shape}: they must be {count} by {count}")
        for name in ("link_per_gb", "access_per_gb"):
            values = getattr(self, name)
            if not np.isfinite(values).all() or (values < 0).any():
                raise PricesError(f"prices.{name} has a value that is negative or no number")
        if not np.allclose(self.link_per_gb, self.link_per_gb.T) or self.link_per_gb.diagonal().any():
            raise PricesError("prices.link_per_gb must be the same both ways, and 0 from a broker to itself")
        if not self.currency or not 0 < self.message_bytes < np.inf or not 0 <= self.delay_price < np.inf:
            raise PricesError(
                f"prices name currency {self.currency!r}, message_bytes {self.message_bytes}, delay_price "
                f"{self.delay_price}: give a name, a number above 0, and one of at least 0"
            )

    @property
    def is_charged(self) -> bool:
        """Return True if the inventory's costs of links are prices already."""
        return self.delay_ms is not None

    @property
    def link_money(self) -> Floats:
        """What a notification costs on each link, in millionths, shape (n, n)."""
        return self.link_per_gb * (self.message_bytes / BYTES_PER_GB * PER_UNIT)

    @property
    def access_money(self) -> Floats:
        """What handing a notification to one subscriber costs at each broker, in millionths, shape (n,)."""
        return self.access_per_gb * (self.message_bytes / BYTES_PER_GB * PER_UNIT)

    def restricted_to(self, rows: Sequence[int]) -> Self:
        """Return the prices of these brokers alone."""
        links, delays_ms = self.link_per_gb[np.ix_(rows, rows)], self.delay_ms
        delays_ms = None if delays_ms is None else delays_ms[np.ix_(rows, rows)]
        return replace(self, link_per_gb=links, access_per_gb=self.access_per_gb[rows], delay_ms=delays_ms)

    def extended_to(self, rows: NDArray[np.intp], count: int) -> Self:
        """Return the prices of ``count`` brokers with these at ``rows`` and all others at the highest known."""
        links = np.full((count, count), float(self.link_per_gb.max(initial=0.0)))
        access = np.full(count, float(self.access_per_gb.max(initial=0.0)))
        links[np.ix_(rows, rows)], access[rows] = self.link_per_gb, self.access_per_gb
        np.fill_diagonal(links, 0.0)
        return replace(self, link_per_gb=links, access_per_gb=access, delay_ms=None)

    def to_fields(self) -> dict[str, Any]:
        """Return what an inventory's JSON holds of them."""
        return {
            "currency": self.currency,
            "link_per_gb": self.link_per_gb.tolist(),
            "access_per_gb": self.access_per_gb.tolist(),
            "message_bytes": self.message_bytes,
            "delay_price": self.delay_price,
        }

    @classmethod
    def of_fields(cls, fields: Mapping[str, Any]) -> Self:
        """Read prices from an inventory's JSON. Raises KeyError, TypeError or ValueError (PricesError) for others."""
        return cls(
            str(fields["currency"]),
            np.asarray(fields["link_per_gb"], dtype=np.float64),
            np.asarray(fields["access_per_gb"], dtype=np.float64),
            float(fields["message_bytes"]),
            float(fields.get("delay_price", 0.0)),
        )


def per_month(money_per_s: float) -> float:
    """Return what a cost in millionths a second comes to in 30 days, in the currency itself."""
    return money_per_s * MONTH_S / PER_UNIT
