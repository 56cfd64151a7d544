"""How a broker postpones requests about publishers: until the plan under way, or whatever else they wait for, is over.

In: requests, and stays that end. Out: whether a request waits. Serving them again is the broker's own matter.
"""

from __future__ import annotations

from collections import deque

from regraft.producers.brokers.broker_messages import AdvertiseRequest, Effect, UnadvertiseRequest, stay_of


class PostponingBroker:
    """The part of a broker that keeps requests for later."""

    _postponed: deque[AdvertiseRequest | UnadvertiseRequest]  # At most two for each publisher.

    def postpone(self, request: AdvertiseRequest | UnadvertiseRequest) -> list[Effect]:
        """Keep a request until the plan, or whatever else it waits for, is over."""
        self._postponed.append(request)
        return []

    def is_postponed(self, request: AdvertiseRequest | UnadvertiseRequest) -> bool:
        """Return True if this very request is postponed."""
        return request in self._postponed

    def drop_postponed(self, request: UnadvertiseRequest) -> bool:
        """Forget the postponed requests of a stay that has ended; return True if there were any."""
        kept = deque(one for one in self._postponed if stay_of(one) != stay_of(request))
        has_waited = len(kept) < len(self._postponed)
        self._postponed = kept
        return has_waited
