"""Count the pages that follow the stream, of all and of each address, and refuse more than there may be.

In: calls with the address they come from. Out: a place for as long as the page is open, or a refusal. Whose word is
taken for the address of a caller behind a proxy is uvicorn's affair (``trusted_proxies``).
"""

from __future__ import annotations

import ipaddress
from collections import Counter
from collections.abc import AsyncIterator

from fastapi import HTTPException, Request

from regraft.dashboard.dashboard_metrics import DashboardMetrics

IPV6_SITE_BITS = 64  # One person has countless IPv6 addresses: a limit on each would limit nobody.


class OpenPages:
    """The places that there are."""

    def __init__(self, pages_max: int, pages_per_address_max: int, metrics: DashboardMetrics) -> None:
        self._pages_max = pages_max
        self._pages_per_address_max = pages_per_address_max
        self._metrics = metrics
        self._open: Counter[str] = Counter()

    async def one_more(self, request: Request) -> AsyncIterator[None]:
        """Count a page while it is open; raise HTTPException where there is no place for it."""
        address = site_of(request.client.host if request.client else "")
        if self._open.total() >= self._pages_max:
            self._refuse(503, f"{self._pages_max} pages are already open (dashboard.clients_max)")
        if self._open[address] >= self._pages_per_address_max:
            most = self._pages_per_address_max
            self._refuse(429, f"{most} pages are already open from {address} (dashboard.clients_per_address_max)")
        self._open[address] += 1
        self._metrics.clients.set(self._open.total())
        try:
            yield
        finally:
            self._open[address] -= 1
            self._open += Counter()  # Addresses without a page are forgotten.
            self._metrics.clients.set(self._open.total())

    def _refuse(self, status: int, text: str) -> None:
        self._metrics.clients_refused.inc()
        raise HTTPException(status, text)


def site_of(host: str) -> str:
    """Return what counts as one address: of IPv6 the network of 64 bits that a site has."""
    try:
        found = ipaddress.ip_address(host)
    except ValueError:
        return host  # A proxy that we trust gave another name.
    if found.version == 4:
        return host
    if found.ipv4_mapped is not None:
        return str(found.ipv4_mapped)
    return str(ipaddress.ip_network((int(found), IPV6_SITE_BITS), strict=False))
