"""The controller's limits as its live view has them, so that readers judge the view without its settings."""

from msgspec import Struct


class ShownLimits(Struct, frozen=True):
    """How old a window may be that decisions rest on, and how long each phase that involves brokers may take.

    A phase that is missing has no limit.
    """

    window_age_ms_max: int = 60_000
    phase_ms_max: dict[str, int] = {}
