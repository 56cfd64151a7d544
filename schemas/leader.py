"""LeaderTerm: one controller has taken over the lead, with a number higher than any before."""

from msgspec import Struct

from regraft.schemas.bounds import Epoch, Name, TimeMs


class LeaderTerm(Struct, frozen=True):
    """Who leads from ``time_ms`` on, until the record with the next higher ``term``; ``leader`` is for people."""

    term: Epoch
    leader: Name
    time_ms: TimeMs
