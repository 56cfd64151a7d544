"""Messages between brokers of a structured cyclic overlay that a tree does not have."""

from __future__ import annotations

from dataclasses import dataclass

from regraft.producers.brokers.match_content import Filter


@dataclass(frozen=True, slots=True)
class VectorBit:
    """Whether the sender's cluster now wants what a publisher at the receiver publishes (CIB_SET)."""

    epoch: int
    publisher: str
    connection: int
    is_on: bool


@dataclass(frozen=True, slots=True)
class VectorAck:
    """The bit is set as requested and applies to everything published from now on."""

    epoch: int
    publisher: str
    connection: int


@dataclass(frozen=True, slots=True)
class PublisherComes:
    """A publisher's home will be ``home`` in ``epoch``; without a filter, it will not come or has ended.

    Sent from its home in the epoch before, hop by hop over the overlay of ``epoch_of_path``.
    """

    epoch: int
    publisher: str
    connection: int
    home: str
    filter_: Filter | None
    epoch_of_path: int


@dataclass(frozen=True, slots=True)
class FlowEnd:
    """No notification of ``epoch`` with at most ``crossings`` crossings between clusters follows on this link."""

    epoch: int
    crossings: int


ScotMessage = VectorBit | VectorAck | PublisherComes | FlowEnd
