"""Messages between brokers of a structured cyclic overlay that a tree does not have."""

from __future__ import annotations

from dataclasses import dataclass

from regraft.producers.brokers.match_content import Filter


@dataclass(frozen=True, slots=True)
class VectorBit:
    """The sender's cluster wants, or wants no longer, what a publisher at the receiver publishes (CIB_SET)."""

    epoch: int
    publisher: str
    connection: int
    is_on: bool


@dataclass(frozen=True, slots=True)
class VectorAck:
    """The bit is as asked: what is published from now on heeds it."""

    epoch: int
    publisher: str
    connection: int


@dataclass(frozen=True, slots=True)
class PublisherComes:
    """A publisher will be at home at ``home`` in ``epoch``; without a filter it will not, or has ended.

    From its home in the epoch before, by the overlay of ``epoch_of_way``, broker by broker.
    """

    epoch: int
    publisher: str
    connection: int
    home: str
    filter_: Filter | None
    epoch_of_way: int


@dataclass(frozen=True, slots=True)
class FlowEnd:
    """No notification of ``epoch`` that has been between clusters ``crossings`` times or less follows on this link."""

    epoch: int
    crossings: int


ScotMessage = VectorBit | VectorAck | PublisherComes | FlowEnd
