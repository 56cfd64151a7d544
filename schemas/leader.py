"""LeaderTerm: a controller has become the leader, with a number higher than any before."""

from msgspec import Struct

from regraft.schemas.bounds import Epoch, Name, TimeMs


class LeaderTerm(Struct, frozen=True):
    """The leader from ``time_ms`` until the record with the next higher ``term``; ``leader`` is for people."""

    term: Epoch
    leader: Name
    time_ms: TimeMs
