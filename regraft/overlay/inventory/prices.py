"""Prices in money for traffic between brokers and from brokers to their subscribers.

The cost of an overlay belongs to :mod:`overlay.cost`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from regraft.schemas.arrays import Floats

BYTES_PER_GB = 1e9
PER_UNIT = 1e6  # Millionths: a notification of 500 bytes costs some hundredths of a millionth of a dollar.
MONTH_S = 30 * 86_400


class PricesError(ValueError):
    """The prices are not usable; the message says which value is wrong."""


@dataclass(frozen=True, eq=False)
class Prices:
    """Prices per GB.

    ``link_per_gb`` (n, n, symmetric, diagonal 0) is the price between brokers, ``access_per_gb`` (n,) that to
    subscribers. Providers charge the sender, so a link's price depends on the direction; use the mean of both. What
    publishers send to their broker is free. ``message_bytes`` is the mean size of a notification on the wire.
    ``delay_price`` is the price of one second of a notification's delay in millionths of ``currency``: not real money,
    it prefers the faster of overlays that cost the same. ``delay_ms`` (n, n) is set if the inventory's link costs are
    already prices.
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
                raise PricesError(f"prices.{name} has a value that is negative or not a number")
        if not np.allclose(self.link_per_gb, self.link_per_gb.T) or self.link_per_gb.diagonal().any():
            raise PricesError("prices.link_per_gb must be the same both ways, and 0 from a broker to itself")
        if not self.currency or not 0 < self.message_bytes < np.inf or not 0 <= self.delay_price < np.inf:
            raise PricesError(
                f"prices name currency {self.currency!r}, message_bytes {self.message_bytes}, delay_price "
                f"{self.delay_price}: give a name, a number above 0, and one of at least 0"
            )

    @property
    def is_charged(self) -> bool:
        """Return True if the inventory's link costs are already prices."""
        return self.delay_ms is not None

    @property
    def link_money(self) -> Floats:
        """The cost of a notification on each link, in millionths, shape (n, n)."""
        return self.link_per_gb * (self.message_bytes / BYTES_PER_GB * PER_UNIT)

    @property
    def access_money(self) -> Floats:
        """The cost of handing a notification to one subscriber at each broker, in millionths, shape (n,)."""
        return self.access_per_gb * (self.message_bytes / BYTES_PER_GB * PER_UNIT)

    def restricted_to(self, rows: Sequence[int]) -> Self:
        """Return the prices of only these brokers."""
        links, delays_ms = self.link_per_gb[np.ix_(rows, rows)], self.delay_ms
        delays_ms = None if delays_ms is None else delays_ms[np.ix_(rows, rows)]
        return replace(self, link_per_gb=links, access_per_gb=self.access_per_gb[rows], delay_ms=delays_ms)

    def extended_to(self, rows: NDArray[np.intp], count: int) -> Self:
        """Return the prices of ``count`` brokers: these at ``rows``, all others at the highest known price."""
        links = np.full((count, count), float(self.link_per_gb.max(initial=0.0)))
        access = np.full(count, float(self.access_per_gb.max(initial=0.0)))
        links[np.ix_(rows, rows)], access[rows] = self.link_per_gb, self.access_per_gb
        np.fill_diagonal(links, 0.0)
        return replace(self, link_per_gb=links, access_per_gb=access, delay_ms=None)

    def to_fields(self) -> dict[str, Any]:
        """Return the fields that describe the prices in an inventory's JSON."""
        return {
            "currency": self.currency,
            "link_per_gb": self.link_per_gb.tolist(),
            "access_per_gb": self.access_per_gb.tolist(),
            "message_bytes": self.message_bytes,
            "delay_price": self.delay_price,
        }

    @classmethod
    def of_fields(cls, fields: Mapping[str, Any]) -> Self:
        """Read prices from an inventory's JSON.

        Raises KeyError, TypeError or ValueError (PricesError) if they are invalid.
        """
        return cls(
            str(fields["currency"]),
            np.asarray(fields["link_per_gb"], dtype=np.float64),
            np.asarray(fields["access_per_gb"], dtype=np.float64),
            float(fields["message_bytes"]),
            float(fields.get("delay_price", 0.0)),
        )


def per_month(money_per_s: float) -> float:
    """Return the cost over 30 days, in the currency itself, of a cost in millionths per second."""
    return money_per_s * MONTH_S / PER_UNIT
