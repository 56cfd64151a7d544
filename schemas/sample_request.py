"""SampleRequest: the share of deliveries that all brokers are asked to report in full (compacted topic).

The newest record counts. A broker that has not read it yet reports more, which readers discard.
"""

from typing import Annotated

from msgspec import Meta, Struct

from regraft.schemas.bounds import Epoch, Length, Text, TimeMs
from regraft.schemas.sampled_blocks import POWER_MAX

SAMPLING_KEY = "sampling"  # One key: the compacted topic keeps the newest request forever.
Power = Annotated[int, Meta(ge=0, le=POWER_MAX)]


class SampleRequest(Struct, frozen=True):
    """Report at most 1 / 2^``power`` of the notifications in full, since ``since_ms``; ``reason`` is for people.

    A broker whose own settings specify less reports less. ``is_raised`` means that the previous request asked for less.
    ``calm_windows`` is how many quiet windows must pass before more is requested. ``term`` is that of the requesting
    leader.
    """

    power: Power
    since_ms: TimeMs
    reason: Text
    is_raised: bool = False
    calm_windows: Length = 0
    term: Epoch = 0

    @property
    def share(self) -> float:
        """The largest share to report."""
        return 1 / (1 << self.power)
