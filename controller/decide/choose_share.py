"""Choose which share of their deliveries brokers should report in full, from how late and how large windows are. Pure.

Sending it belongs to :mod:`controller.loop.set_share`.

The share goes down by the measured overload, and up one step at a time after a calm spell. The calm spell doubles with
each step up that proves too much, so that a load just below a step does not make the share oscillate (exponential
back-off).
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from regraft.controller.settings.controller_settings import SamplingSettings
from regraft.schemas.sample_request import SampleRequest

LOADED_WINDOWS = 3  # This many must be overloaded: a single one may be due to a pause.
CALM_FACTOR_MAX = 64
CATCH_UP_FACTOR = 1.25
# If an overload returns within this many calm spells, the step up was too much: a slight one shows only slowly.
RELAPSE_SPELLS = 4
CALM_DELAY_SHARE = 0.5  # As a share of the delay that counts as overload; above it, the share is not raised.


@dataclass(frozen=True, slots=True)
class WindowLoad:
    """How long after its end a window was assembled, and its number of deliveries; ``power`` is that of its share."""

    start_ms: int
    end_ms: int
    delay_ms: int
    deliveries: int
    power: int


def choose_share(
    asked: SampleRequest, loads: Sequence[WindowLoad], settings: SamplingSettings, now_ms: int
) -> SampleRequest | None:
    """Return the request to send next, or None to keep ``asked``. ``loads`` are of windows as they were assembled.

    Only windows that began after the last request show its effect. A window whose marker lay in the future may have
    been assembled before earlier ones: only what follows it counts.
    """
    if asked.power > settings.power_max:
        reason = f"controller.sampling.share_min is {settings.share_min:g}"
        return SampleRequest(settings.power_max, now_ms, reason, is_raised=True, calm_windows=settings.calm_windows)
    since = _in_order([load for load in loads if load.start_ms >= asked.since_ms])
    return _lowered(asked, since, settings, now_ms) or _raised(asked, since, settings, now_ms)


def _in_order(loads: Sequence[WindowLoad]) -> Sequence[WindowLoad]:
    """Return the newest loads, as far back as each ends after the one before it."""
    begin = max((place for place in range(1, len(loads)) if loads[place].end_ms <= loads[place - 1].end_ms), default=0)
    return loads[begin:]


def _lowered(
    asked: SampleRequest, since: Sequence[WindowLoad], settings: SamplingSettings, now_ms: int
) -> SampleRequest | None:
    """Return a request for a smaller share if windows are too late or list too many deliveries, else None."""
    last = since[-LOADED_WINDOWS:]
    if len(last) < LOADED_WINDOWS:
        return None
    steps, reason = _steps_down(last, settings)
    power = min(max(asked.power, last[-1].power) + steps, settings.power_max)
    if not steps or power <= asked.power:
        return None
    calm_windows = settings.calm_windows
    if asked.is_raised and len(since) <= RELAPSE_SPELLS * asked.calm_windows:
        calm_windows = min(2 * asked.calm_windows, CALM_FACTOR_MAX * settings.calm_windows)
    return SampleRequest(power, now_ms, reason, calm_windows=calm_windows)


def _steps_down(last: Sequence[WindowLoad], settings: SamplingSettings) -> tuple[int, str]:
    """Return how often to halve the share, and why; (0, "") without overload."""
    deliveries = statistics.median(load.deliveries for load in last)
    if 0 < settings.deliveries_max < deliveries:
        reason = (
            f"windows list {deliveries:,.0f} deliveries one by one, but at most {settings.deliveries_max:,} are allowed"
        )
        return math.ceil(math.log2(deliveries / settings.deliveries_max)), reason
    delay_ms_max, later_ms = _delay_ms_max(last[-1], settings), last[-1].delay_ms - last[0].delay_ms
    if min(load.delay_ms for load in last) > delay_ms_max and later_ms >= 0:
        late_s, limit_s = last[-1].delay_ms / 1000, delay_ms_max / 1000
        # Seconds it takes to process one second's input, with a reserve of a quarter, so that a backlog shrinks, too.
        busy = CATCH_UP_FACTOR * (1 + later_ms / (last[-1].end_ms - last[0].end_ms))
        return math.ceil(
            math.log2(busy)
        ), f"windows arrive {late_s:.1f} s after their end and do not catch up; at most {limit_s:g} s are allowed"
    return 0, ""


def _raised(
    asked: SampleRequest, since: Sequence[WindowLoad], settings: SamplingSettings, now_ms: int
) -> SampleRequest | None:
    """Return a request for twice the share after a calm spell, else None."""
    calm = since[-asked.calm_windows :] if asked.calm_windows else since
    if not asked.power or len(calm) < max(asked.calm_windows, 1):
        return None
    deliveries_most = 2 * max(load.deliveries for load in calm)
    if any(load.delay_ms > CALM_DELAY_SHARE * _delay_ms_max(load, settings) for load in calm):
        return None
    if 0 < settings.deliveries_max < deliveries_most:
        return None
    calm_windows = settings.calm_windows if asked.is_raised else asked.calm_windows
    reason = f"windows have been on time for {len(calm)} windows"
    return SampleRequest(asked.power - 1, now_ms, reason, is_raised=True, calm_windows=calm_windows)


def _delay_ms_max(load: WindowLoad, settings: SamplingSettings) -> float:
    return settings.delay_windows_max * (load.end_ms - load.start_ms)
