"""SampleRequest: how much of what is delivered the controller asks all brokers to report in full (compacted topic).

The newest record counts. A broker that has not read it reports more, which readers leave out.
"""

from typing import Annotated

from msgspec import Meta, Struct

from regraft.schemas.bounds import Epoch, Length, Text, TimeMs
from regraft.schemas.sampled_blocks import POWER_MAX

SAMPLING_KEY = "sampling"  # One key: the compacted topic keeps the newest request forever.
Power = Annotated[int, Meta(ge=0, le=POWER_MAX)]


class SampleRequest(Struct, frozen=True):
    """At most 1 / 2^``power`` of the notifications is wanted in full since ``since_ms``, and why, for people.

    A broker whose own settings say less reports that. ``is_raised``: before, less was asked for. ``calm_windows``: how
    many quiet windows are waited for before more is asked for. ``term`` is that of the leader who asks.
    """

    power: Power
    since_ms: TimeMs
    reason: Text
    is_raised: bool = False
    calm_windows: Length = 0
    term: Epoch = 0

    @property
    def share(self) -> float:
        """The share that is wanted at most."""
        return 1 / (1 << self.power)
