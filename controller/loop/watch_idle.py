"""Watch for brokers that serve no clients and could be removed from the overlay, and report when there are new ones.

Removing one takes an operator's order (`regraft members drain`).
"""

from __future__ import annotations

from regraft.controller.control_ports import EventSink
from regraft.controller.decide.loop_state import LoopState
from regraft.controller.kinds.overlay_kind import AnyKind
from regraft.controller.settings.controller_settings import ControllerSettings
from regraft.controller.state.closed_window import ClosedWindow
from regraft.schemas.event import AdaptationEvent, EventKind, Severity
from regraft.schemas.texts import name_some

SUBJECT = "brokers"
IDLE_S_MIN = 120.0  # Subscribers come and go: a broker that is empty for some windows often has clients again soon.
NAMED_MAX = 3  # In an event; `regraft status` lists more.


class WatchIdle:
    """Finds the brokers of the overlay that have had neither subscriber nor publisher for IDLE_S_MIN."""

    def __init__(self, settings: ControllerSettings, kind: AnyKind, events: EventSink) -> None:
        self._window_age_ms_max = settings.decision.window_age_ms_max
        self._kind = kind
        self._events = events
        self._idle_since_ms: dict[str, int] = {}
        self._counted_end_ms = 0

    def __call__(self, state: LoopState, now_ms: int) -> None:
        """Process the windows taken in this step; incomplete ones do not count."""
        if self._kind.inventory.clients_stay:
            return  # Clients of real brokers are in no register.
        for window in state.taken:
            if window.is_complete and window.subscribers_at is not None:
                self._count(window, state)
        least_ms = self._counted_end_ms - int(IDLE_S_MIN * 1000)
        closable = tuple(sorted(broker for broker, since_ms in self._idle_since_ms.items() if since_ms <= least_ms))
        if closable == state.closable:
            return
        newest = state.newest
        is_new = newest is not None and now_ms - newest.end_ms <= self._window_age_ms_max
        added = set(closable) - set(state.closable)
        state.closable, state.is_changed = closable, True
        if is_new and added:
            self._events.emit(_event(closable, now_ms))

    def _count(self, window: ClosedWindow, state: LoopState) -> None:
        present = state.plan_log.present
        at_home = self._kind.with_homes(present, [window.over(present.brokers)]).home_of
        homes = {home for client, home in at_home.items() if client in window.homes}
        serving = {broker for broker, count in (window.subscribers_at or {}).items() if count} | homes
        serving |= {broker for _, broker in window.local_deliveries}  # Even without subscribers in the register.
        self._counted_end_ms = window.end_ms
        self._idle_since_ms = {
            broker: self._idle_since_ms.get(broker, window.start_ms)
            for broker in present.brokers
            if broker not in serving
        }


def _event(closable: tuple[str, ...], now_ms: int) -> AdaptationEvent:
    named = name_some(closable, NAMED_MAX)
    text = (
        f"{len(closable)} broker{'s serve' if len(closable) > 1 else ' serves'} no clients and could be removed: "
        f"{named} (`regraft members drain {closable[0]}`)"
    )
    details = {"closable": ",".join(closable[:NAMED_MAX]), "count": str(len(closable))}
    return AdaptationEvent(SUBJECT, EventKind.BROKERS_CLOSABLE, Severity.INFO, now_ms, text, details=details)
