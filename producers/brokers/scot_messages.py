"""What brokers of one region of a structured cyclic overlay tell each other about the vectors of publishers."""

from __future__ import annotations

from dataclasses import dataclass


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


ScotMessage = VectorBit | VectorAck
