"""Count the pages that follow the stream, in total and by address, and refuse those above the limits.

In: requests with their source address. Out: a place for as long as the page is open, or a refusal. Uvicorn determines
the address of a caller behind a proxy (``trusted_proxies``).
"""

from __future__ import annotations

import ipaddress
from collections import Counter
from collections.abc import AsyncIterator

from fastapi import HTTPException, Request

from regraft.dashboard.dashboard_metrics import DashboardMetrics

IPV6_SITE_BITS = 64  # A client has countless IPv6 addresses, so a limit per address would be useless.


class OpenPages:
    """The places for open pages."""

    def __init__(self, pages_max: int, pages_per_address_max: int, metrics: DashboardMetrics) -> None:
        self._pages_max = pages_max
        self._pages_per_address_max = pages_per_address_max
        self._metrics = metrics
        self._open: Counter[str] = Counter()

    async def admit(self, request: Request) -> AsyncIterator[None]:
        """Count a page while it is open; raise HTTPException if there is no place for it."""
        address = site_of(request.client.host if request.client else "")
        if self._open.total() >= self._pages_max:
            self._refuse(503, f"{self._pages_max} pages are already open, the maximum")
        if self._open[address] >= self._pages_per_address_max:
            most = self._pages_per_address_max
            self._refuse(429, f"{most} pages are already open from {address} (dashboard.clients_per_address_max)")
        self._open[address] += 1
        self._metrics.clients.set(self._open.total())
        try:
            yield
        finally:
            self._open[address] -= 1
            self._open += Counter()  # Drops addresses without a page.
            self._metrics.clients.set(self._open.total())

    def _refuse(self, status: int, text: str) -> None:
        self._metrics.clients_refused.inc()
        raise HTTPException(status, text)


def site_of(host: str) -> str:
    """Return what counts as one address: for IPv6, the /64 network of a site."""
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return host  # A trusted proxy gave something other than an address.
    if address.version == 4:
        return host
    if address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    return str(ipaddress.ip_network((int(address), IPV6_SITE_BITS), strict=False))
