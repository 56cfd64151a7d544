"""When a broker counts as dead, and how soon it may come back, as a frozen value. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from regraft.controller.settings.decision_settings import values_below
from regraft.schemas.units import MINUTE_MS


@dataclass(frozen=True, kw_only=True)
class MemberSettings:
    """Death, return, joining and leaving of brokers."""

    silence_ms: Annotated[
        int,
        "after this time without telemetry, measured by closed windows, a broker is considered dead",
    ] = 10_000
    deaths_share_max: Annotated[
        float,
        "if more than this share of the brokers falls silent or restarts at once, none is declared dead",
    ] = 0.5
    # How long a broker that died stays out at least, doubled with each death within the last hour: a window of the
    # default length. `regraft members readmit` ends it.
    return_pause_ms: int = 5_000
    # Bound of that pause: an agent that flaps all day is tried again a few times an hour.
    return_pause_ms_max: int = 10 * MINUTE_MS
    # How long a broker that may join or leave waits for others, so that one plan includes them all. Default 2 s.
    batch_ms: int = 2_000
    # After this time a broker that is drained leaves without waiting for ordinary plans to move more of its clients.
    # Default 10 minutes.
    drain_ms_max: int = 10 * MINUTE_MS
    # Pause after a repair, join or leave that was aborted, doubled with each; a further death ends it.
    retry_ms: int = 5_000
    # Bound of that pause.
    retry_ms_max: int = 2 * MINUTE_MS
    admit_announced: Annotated[
        bool,
        "a broker that announces itself becomes a member without `regraft members add`",
    ] = False
    # How many brokers of one agent may wait for that, and how many may be joining before another one is admitted
    # automatically. Default 20.
    announced_max: int = 20
    # A broker that was admitted without an order and appears in no window for this long has left and loses its place.
    # Default 10 minutes.
    come_ms_max: int = 10 * MINUTE_MS

    def errors(self) -> list[str]:
        """Return what is wrong with the settings, one sentence each."""
        errors = values_below(self, {"silence_ms": 1})
        if not 0 < self.deaths_share_max <= 1:
            errors.append(
                f"deaths_share_max is {self.deaths_share_max}: must be above 0, or no broker could be declared dead, "
                "and at most 1"
            )
        return errors
