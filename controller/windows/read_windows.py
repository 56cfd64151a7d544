"""Read state records that have arrived, and turn them into closed windows, with data from the register of clients.

In: the ports of state and clients, the plans so far. Out: closed windows in the order of time, and the horizon that a
decision looks back on. Deciding and showing belong to the control loop.
"""

from __future__ import annotations

from collections import Counter, deque
from dataclasses import replace
from functools import partial

from regraft.controller.control_ports import ControlPorts
from regraft.controller.kinds.overlay_kind import AnyKind
from regraft.controller.settings.controller_settings import ControllerSettings
from regraft.controller.state.closed_window import ClosedWindow
from regraft.controller.state.plan_log import PlanLog
from regraft.controller.windows.assemble_state import WindowAssembler
from regraft.infra.process.handle_each import handle_each
from regraft.overlay.inventory.members import FleetView
from regraft.schemas.live_view import Horizon
from regraft.schemas.state import WindowClosed

POLLS_MAX = 8  # In one step; a poll of Kafka is bounded, too, and with 1,000 brokers returns little more than a window.
REGISTER_WAIT_MS = 15_000  # How long windows of a ring wait for the first read of the register of clients.


ENDS_MIN = 10  # Fewer say too little: the standard error is 1 / sqrt(ends), here 32 %.


BEHIND_MS_MAX = 10_000  # As for the times of records: ages may be off by some seconds.
MARKERS_MIN = 3  # In a row, each soon after the one before: a single marker may be wrong itself.


class ProvenTime:
    """How far the clock is behind the ends of the windows that have closed; 0 while they do not prove it."""

    def __init__(self) -> None:
        self.behind_ms = 0
        self._ends_ms: deque[int] = deque(maxlen=MARKERS_MIN)

    def note(self, marker: WindowClosed, clock_ms: int) -> None:
        """Note the next marker, at a time by the uncorrected clock."""
        end_ms, length_ms = marker.window_end_ms, marker.window_end_ms - marker.window_start_ms
        if end_ms <= clock_ms:
            self.behind_ms = 0  # It is right again, or this window is old.
        is_future = end_ms > clock_ms + self.behind_ms + BEHIND_MS_MAX
        follows = not self._ends_ms or 0 < end_ms - self._ends_ms[-1] <= 2 * length_ms
        if not (is_future and follows):
            self._ends_ms.clear()
        if is_future:
            self._ends_ms.append(end_ms)
        if len(self._ends_ms) == MARKERS_MIN:
            self.behind_ms = end_ms - clock_ms
            self._ends_ms.clear()


class LifetimeMeter:
    """The mean lifetime of subscriptions, over the last ``windows_max`` complete windows.

    Source: Little's law. In a steady state the number of subscriptions is the rate at which they end times their mean
    lifetime, whatever its distribution; so the mean is the total time that they spent in the windows over the number
    that ended there. A window reports changes of clients: each arrival is one, each departure is one. Arrivals less
    departures is the growth of their number, so ends = (changes - growth) / 2, and a start with thousands of newcomers
    does not look like thousands of short lives. Bias and bounds: the relative standard error is 1 / sqrt(ends) for
    independent lives, and there is no estimate below ENDS_MIN ends. A client that changes its interest in place counts
    as half an end, so if clients do only that, the result is up to twice too long. A client that moves counts as ended.
    Publishers that come and leave count as subscriptions, few as they are. Cost O(1) a window; memory two numbers a
    window. On a ring a user has many subscriptions, and one change may end any number of them; there the register of
    clients counts exactly which topics users gave up, and changes are ignored.
    """

    def __init__(self, windows_max: int) -> None:
        self._lived_s: deque[float] = deque(maxlen=windows_max)
        self._ends: deque[float] = deque(maxlen=windows_max)
        self._subscriptions_before: int | None = None
        self._ended_before = 0

    def add_window(self, window: ClosedWindow, subscriptions: int | None, ended_count: int | None = None) -> None:
        """Add a window; ``subscriptions`` is their present number, None if unknown.

        ``ended_count`` is how many have ever ended, if that is counted; else it follows from the changes. An incomplete
        window does not count, because changes may be missing, nor does one after an unknown number.
        """
        before, self._subscriptions_before = self._subscriptions_before, subscriptions
        ended_before, self._ended_before = self._ended_before, ended_count or 0
        if before is None or subscriptions is None or not window.is_complete:
            return
        self._lived_s.append((before + subscriptions) / 2 * (window.end_ms - window.start_ms) / 1000)
        if ended_count is None:
            self._ends.append((window.client_changes - (subscriptions - before)) / 2)
        else:
            self._ends.append(ended_count - ended_before)

    @property
    def mean_s(self) -> float | None:
        """The mean lifetime in seconds; None while too few subscriptions have ended."""
        ends = sum(self._ends)
        return sum(self._lived_s) / ends if ends >= ENDS_MIN else None


def horizon_window_count(
    lifetimes: float, lifetime_s: float | None, window_ms: int, windows_min: int, windows_max: int
) -> int:
    """Return how many windows hold ``lifetimes`` mean lifetimes, within the bounds.

    Without a known lifetime it is ``windows_max``: if hardly anything ends, it is right to look far back.
    """
    if lifetime_s is None:
        return windows_max
    return min(max(round(lifetimes * lifetime_s * 1000 / window_ms), windows_min), windows_max)


class WindowReader:
    """Returns each window once, and keeps the complete ones of the longest horizon.

    ``complete`` holds these, oldest first. On a ring only the newest of them, on which a plan is verified, keep their
    interests: with 50,000 users those of one window take some MB. ``subscription_count`` is as of the last read.
    """

    def __init__(self, settings: ControllerSettings, kind: AnyKind, ports: ControlPorts) -> None:
        self._settings = settings
        self._kind = kind
        self._ports = ports
        self._fleet = FleetView(kind.inventory)
        self._assembler = WindowAssembler(kind.inventory.brokers, settings.assembly)
        self._lifetimes = LifetimeMeter(settings.horizon_windows_max)
        self._starts_ms: deque[int] = deque(maxlen=max(settings.decision.cool_down_windows, 1))
        self._first_read_ms: int | None = None
        self._unknown: Counter[str] = Counter()
        self.subscription_count: int | None = None
        self._proven = ProvenTime()
        self.complete: deque[ClosedWindow] = deque(maxlen=max(settings.horizon_windows_max, settings.verify_windows))

    @property
    def errors(self) -> dict[str, int]:
        """The number of records that could not be used, by reason."""
        errors = self._assembler.refused + self._unknown
        if unplaced := self._ports.clients.registered.unplaced:
            errors["user at an unknown broker"] = unplaced
        return {f"state: {why}": count for why, count in errors.items()}

    @property
    def behind_ms(self) -> int:
        """How far the clock is behind, by the windows that have closed; 0 while these do not prove it."""
        return self._proven.behind_ms

    @property
    def lifetime_s(self) -> float | None:
        """The mean lifetime of a subscription, given or measured; None while unknown."""
        return self._settings.subscription_lifetime_s or self._lifetimes.mean_s

    def read(self, plan_log: PlanLog, fleet: FleetView, now_ms: int) -> list[ClosedWindow]:
        """Read all new records, and return the windows that close now, oldest first.

        They are over all brokers of the fleet, and complete over those that serve in the overlay in force.
        """
        self._fleet = fleet
        self._assembler.know(fleet.inventory.brokers, set(fleet.serving).intersection(plan_log.present.brokers))
        subscriptions = self.subscription_count = self._ports.clients.count()
        if self._waits_for_register(now_ms):
            return []
        clock_ms = now_ms - self.behind_ms  # The loop's time is corrected by what was known before this read.
        windows: list[ClosedWindow] = []
        for _ in range(POLLS_MAX):  # Read everything: unread windows mean decisions on ever older ones.
            records = self._ports.state.poll()
            for marker in (one for one in records if isinstance(one, WindowClosed)):
                self._proven.note(marker, clock_ms)
            at_ms = max(now_ms, clock_ms + self.behind_ms)
            handle_each(records, partial(self._assembler.add, now_ms=at_ms), self._unknown, "record that failed")
            handle_each(
                self._assembler.closed(at_ms),
                lambda window: windows.append(self._take(window, plan_log, subscriptions)),
                self._unknown,
                "window that failed",
            )
            if not records:
                break
        return windows

    def _take(self, window: ClosedWindow, plan_log: PlanLog, subscriptions: int | None) -> ClosedWindow:
        """Process a window that has closed, and return it with data from the register of clients."""
        counted = self._with_clients(window, plan_log) if self._kind.NEEDS_REGISTER else self._counted(window)
        ended = self._ports.clients.registered.ended_count if self._kind.NEEDS_REGISTER else None
        self._lifetimes.add_window(counted, subscriptions, ended)
        self._starts_ms.append(counted.start_ms)
        if counted.is_complete:
            self._keep(counted)
        return counted

    def windows_since(self, time_ms: int) -> int:
        """Return how many windows lay entirely after a time, at most as many as the cool-down requires."""
        return sum(start_ms >= time_ms for start_ms in self._starts_ms)

    def horizon(
        self, newest: ClosedWindow, changed_since_ms: int | None = None
    ) -> tuple[tuple[ClosedWindow, ...], Horizon | None]:
        """Return the complete windows up to the newest, without those before a long gap or a change, and the horizon.

        Windows delayed by congestion are left out, except the newest. An incomplete newest window is returned alone,
        with None for the horizon.
        """
        if not newest.is_complete:
            return (newest,), None
        settings, window_ms = self._settings, newest.end_ms - newest.start_ms
        lifetime_s = self.lifetime_s
        count = horizon_window_count(
            settings.horizon_lifetimes,
            lifetime_s,
            window_ms,
            settings.horizon_windows_min,
            settings.horizon_windows_max,
        )
        earliest_ms = max(newest.end_ms - 2 * count * window_ms, changed_since_ms or 0)
        wait_ms_max = settings.decision.queue_wait_ms_max
        windows = tuple(
            window
            for window in self.complete
            if window.end_ms > earliest_ms and (window.end_ms == newest.end_ms or not window.is_delayed(wait_ms_max))
        )[-count:]
        return windows, Horizon(len(windows), count, lifetime_s, settings.subscription_lifetime_s is None)

    def contiguous(self, newest: ClosedWindow) -> tuple[ClosedWindow, ...]:
        """Return the complete windows up to the newest, delayed ones included, without those before a gap."""
        window_ms = newest.end_ms - newest.start_ms
        windows: list[ClosedWindow] = [newest]
        for window in reversed(self.complete):
            if window.end_ms < newest.end_ms and window.end_ms > windows[-1].start_ms - 2 * window_ms:
                windows.append(window)
        return tuple(reversed(windows))

    def recent_count(self, newest: ClosedWindow) -> int | None:
        """Return how many of the newest windows a decision considers first; None if it considers all at once."""
        settings, window_ms = self._settings, newest.end_ms - newest.start_ms
        if not settings.recent_lifetimes or self.lifetime_s is None:
            return None
        bounds = settings.horizon_windows_min, settings.horizon_windows_max
        return horizon_window_count(settings.recent_lifetimes, self.lifetime_s, window_ms, *bounds)

    def verifying(self, epochs: range) -> list[ClosedWindow]:
        """Return the complete windows that can be costed and lay entirely within these epochs.

        Deliveries do not depend on the overlay, so a plan can be verified on windows after later plans.
        """
        return [
            window
            for window in self.complete
            if window.epoch_min in epochs and window.epoch_max in epochs and self._kind.can_be_costed(window)
        ]

    def _waits_for_register(self, now_ms: int) -> bool:
        """Return True if state stays unread for now: windows assembled before the register is known say little."""
        self._first_read_ms = now_ms if self._first_read_ms is None else self._first_read_ms
        is_patient = now_ms - self._first_read_ms < REGISTER_WAIT_MS
        return self._kind.NEEDS_REGISTER and self._ports.clients.is_loading and is_patient

    def _with_clients(self, window: ClosedWindow, plan_log: PlanLog) -> ClosedWindow:
        epochs = dict.fromkeys((window.epoch_min, window.epoch_max))
        overlays = [plan_log.configuration_of(epoch) or plan_log.present for epoch in epochs]
        error, clients = self._ports.clients.error, self._ports.clients.registered
        interests = None if error else clients.interests(self._fleet.inventory.brokers)
        share_max = 1 - self._settings.assembly.completeness_share_min
        attached, unknown = self._kind.attach_clients(window, interests, clients.topic_of, overlays, share_max, error)
        if unknown:
            self._unknown["publisher without a topic in a window"] += len(unknown)
        return attached

    def _counted(self, window: ClosedWindow) -> ClosedWindow:
        if self._ports.clients.error:
            return window
        clients = self._ports.clients.registered
        return replace(
            window,
            subscribers_at=dict(clients.subscribers_at),
            single=clients.named(window.parts.received),
            movable=clients.movable,
            staying=clients.staying,
            nearest=clients.nearest,
            reaches=clients.reaches,
        )

    def _keep(self, window: ClosedWindow) -> None:
        self.complete.append(window)
        old = -1 - self._settings.verify_windows
        if len(self.complete) >= -old:
            self.complete[old] = self._kind.without_register(self.complete[old])
