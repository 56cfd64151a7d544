"""When the controller asks brokers to report a smaller share of their deliveries, as a frozen value. Pure."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated

from regraft.controller.settings.decision_settings import values_below
from regraft.schemas.sampled_blocks import power_of, share_error


@dataclass(frozen=True, kw_only=True)
class SamplingSettings:
    """Adaptation to load of the share of notifications that brokers report in full (docs/sampling.md)."""

    share_min: Annotated[
        float,
        "the lowest share that is requested, 1, 0.5, 0.25 and so on. Default 1: no share is requested, and all "
        "brokers report according to their own settings",
    ] = 1.0
    # The share is halved if windows arrive more than this many window lengths after their end and do not catch up.
    # Default 3: 15 s of windows of 5 s.
    delay_windows_max: float = 3.0
    deliveries_max: Annotated[
        int,
        "the share is lowered until windows list at most this many deliveries one by one, each of a notification at "
        "a broker. Default 0: no such limit",
    ] = 0
    # The share is doubled after this many windows without either, and after twice as many each time that this proved
    # too much. Default 12, a minute; at most 64 times that.
    calm_windows: int = 12

    @property
    def power_max(self) -> int:
        """The power of the smallest share, 2 ** -power."""
        return power_of(self.share_min)

    def errors(self) -> list[str]:
        """Return what is wrong with the settings, one sentence each."""
        errors = values_below(self, {"deliveries_max": 0, "calm_windows": 3})
        if error := share_error(self.share_min):
            errors.append(f"share_min {error}")
        if not 0 < self.delay_windows_max < math.inf:
            errors.append(
                f"delay_windows_max is {self.delay_windows_max}: must be above 0, because windows cannot arrive "
                "before they end"
            )
        if self.share_min == 1.0:
            errors += [
                f"{name} is {getattr(self, name):g}, but share_min is 1, which asks for everything: lower that, or "
                f"leave {name} out"
                for name in ("delay_windows_max", "deliveries_max", "calm_windows")
                if getattr(self, name) != getattr(SamplingSettings, name)
            ]
        return errors
