"""LeaderTerm: one controller has taken over the lead, with a number higher than any before."""

from msgspec import Struct


class LeaderTerm(Struct, frozen=True):
    """Who leads from ``time_ms`` on, until the record with the next higher ``term``; ``leader`` is for people."""

    term: int
    leader: str
    time_ms: int
