"""What reaches a broker for epochs that it has yet to prepare: another broker was prepared first.

In: messages of neighbours, requests of clients that a plan brings here. Out: the same, in order, once their epoch is
prepared. A client can let others arrive that no plan brings. So arrivals have their own bound: they take no room from
neighbours, and block no plan that does not bring clients here.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator

from regraft.producers.brokers.broker_messages import ArriveRequest, ClientRequest, ControlMessage
from regraft.producers.brokers.ring_messages import AttachRequest

EARLY_MESSAGES_MAX = 100_000  # Messages of neighbours.
ARRIVALS_MAX = 50_000  # Clients and subscriptions that have arrived; beyond, their plan waits in vain and is aborted.

# The epoch that a message waits for, its source, None if local, and the message.
Early = tuple[int, str | None, ControlMessage | ClientRequest]
Arrival = str | tuple[str, int]  # A subscription, or a user with the number of its stay.


class EarlyMessages:
    """The messages of all such epochs, in the order of arrival."""

    def __init__(self) -> None:
        self._kept: deque[Early] = deque()
        self._epochs: dict[Arrival, int] = {}  # What has arrived -> the epoch of its first arrival.
        self._arrival_count = 0
        self._ends: set[ControlMessage | ClientRequest] = set()  # Requests about the end of something that has arrived.

    def __iter__(self) -> Iterator[Early]:
        return iter(self._kept)

    def __len__(self) -> int:
        return len(self._kept)

    def keep(self, epoch: int, source: str | None, message: ControlMessage | ClientRequest) -> bool:
        """Keep a message; return False if there is no room for one of a neighbour."""
        if source is not None:
            if len(self._kept) - self._arrival_count - len(self._ends) >= EARLY_MESSAGES_MAX:
                return False
        elif isinstance(message, ArriveRequest | AttachRequest):
            if self._arrival_count >= ARRIVALS_MAX:
                return True
            self._note_arrival(epoch, message)
        elif message in self._ends:
            return True
        else:
            self._ends.add(message)
        self._kept.append((epoch, source, message))
        return True

    def _note_arrival(self, epoch: int, message: ArriveRequest | AttachRequest) -> None:
        self._arrival_count += 1
        if isinstance(message, ArriveRequest):
            self._epochs.setdefault(message.subscription, epoch)
            return
        self._epochs.setdefault((message.user, message.connection), epoch)
        for moved in message.subscriptions:
            self._epochs.setdefault(moved.subscription, epoch)

    def epoch_of(self, arrival: Arrival) -> int | None:
        """Return the epoch for which a subscription or a user has arrived, or None."""
        return self._epochs.get(arrival)

    def take(self, epoch: int) -> list[tuple[str | None, ControlMessage | ClientRequest]]:
        """Return the messages of an epoch; forget all."""
        taken = [(source, message) for opened, source, message in self._kept if opened == epoch]
        self.clear()
        return taken

    def clear(self) -> None:
        """Forget all messages."""
        self._kept.clear()
        self._epochs.clear()
        self._ends.clear()
        self._arrival_count = 0

    def forget(self, epoch_max: int) -> None:
        """Forget the messages of epochs up to this one."""
        kept = [each for each in self._kept if each[0] > epoch_max]
        self.clear()
        for each in kept:
            self.keep(*each)
