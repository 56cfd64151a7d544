"""Turn the texts of the live view into what pages show: decoded, checked for their form, without what no page needs.

In: the JSON texts of the keys. Out: values by part, and a sentence for each text that cannot be read. Asking the server
belongs to ``poll_view``.
"""

from __future__ import annotations

import json
from collections.abc import Hashable, Mapping, Sequence
from typing import Any

from dashboard.live_board import Key
from dashboard.window_series import WindowSeries

VIEW_PARTS = (
    "configuration",
    "window",
    "cost",
    "plans",
    "refusals",
    "events",
    "last_decision",
    "faults",
    "shadows",
    "counts",
    "network",
    "orders",
    "alerts",
)
# What pages get of each link and broker, as rows in this order: at 1,000 brokers names of fields would be most of it.
NETWORK_FIELDS = {
    "links": ("a", "b", "notifications_per_s", "bytes_per_s", "rtt_ms", "queue_length_max", "congestion"),
    "brokers": (
        "broker",
        "notifications_per_s",
        "busy_share",
        "queue_length_last",
        "queue_length_max",
        "congestion",
        "publishers",
    ),
}
DIGITS_SHOWN = 4
SHADOW_FIELDS_UNSHOWN = ("links", "ring", "homes")  # Whole overlays, which no page draws.


def _event_key(event: Any) -> Hashable:
    return (event["time_ms"], event["kind"], event["subject"], event["text"])


SERIES: dict[str, Key] = {
    "cost": lambda point: point["window_end_ms"],
    "windows": lambda point: point["window_end_ms"],
    "plans": lambda plan: plan["plan"],
    "events": _event_key,
}
# Which parts are lists; all others are objects. The rest of their form is the writer's affair.
LISTS = frozenset({"cost", "plans", "events"})


class ViewReader:
    """Decodes what changed since the last look; a text that cannot be read leaves the part as it was.

    ``faults`` has a sentence for each part whose newest text cannot be read. ``news_ms`` is the controller's own time
    of its newest document.
    """

    def __init__(self, windows_max: int) -> None:
        self._texts: dict[str, bytes] = {}
        self._values: dict[str, Any] = {}
        self._windows = WindowSeries(windows_max)
        self.faults: dict[str, str] = {}
        self.news_ms: int | None = None

    def read(self, texts: Mapping[str, bytes | None]) -> dict[str, Any]:
        """Return the parts whose text is another one than at the last look, as pages show them."""
        fresh: dict[str, Any] = {}
        for part, text in texts.items():
            if text is None or text == self._texts.get(part):
                continue
            self._texts[part] = text
            try:
                fresh[part] = self._checked(part, json.loads(text))
            except (ValueError, KeyError, TypeError, AttributeError) as error:
                self.faults[part] = f"{part} of the live view cannot be read ({error}): what is shown of it is older"
            else:
                self.faults.pop(part, None)
        self._values |= fresh
        shown = {part: self._shown(part, value) for part, value in fresh.items()}
        if fresh.keys() & {"window", "cost"}:
            self._add_window()
            shown["windows"] = self._windows.points()
        return shown

    def _add_window(self) -> None:
        counts = self._values.get("counts") or {}
        latencies_ms: Sequence[int] = counts.get("window_end_to_state_ms", ())
        try:
            self._windows.add(self._values.get("window"), self._values.get("cost") or (), latencies_ms)
        except (ValueError, KeyError, TypeError) as error:
            self.faults["windows"] = f"windows of the live view cannot be read ({error}): the newest is not shown"
        else:
            self.faults.pop("windows", None)

    def _checked(self, part: str, value: Any) -> Any:
        form: type[Any] = list if part in LISTS else dict
        if value is not None and not isinstance(value, form):
            raise TypeError(f"it is a {type(value).__name__}, expected a {form.__name__}")
        if part in SERIES:
            for entry in value or ():
                SERIES[part](entry)
        if part == "network" and value is not None:
            value = packed_network(value)
        if part == "counts" and value is not None:
            self.news_ms = int(value["time_ms"])
        return value

    def _shown(self, part: str, value: Any) -> Any:
        if part in SERIES:
            return value or []
        if part == "counts" and value:
            unshown = ("time_ms", "window_end_to_state_ms")
            return {name: number for name, number in value.items() if name not in unshown}
        if part == "shadows" and value:
            return {
                name: {field: figure for field, figure in shadow.items() if field not in SHADOW_FIELDS_UNSHOWN}
                for name, shadow in value.items()
            }
        return value


def packed_network(network: Mapping[str, Any]) -> dict[str, Any]:
    """Return the network with links and brokers as rows under their fields, numbers cut to what a page shows."""
    packed: dict[str, Any] = {"window_end_ms": network["window_end_ms"]}
    for kind, fields in NETWORK_FIELDS.items():
        rows = [[_cut(entry.get(field)) for field in fields] for entry in network[kind]]
        packed[kind] = {"fields": fields, "rows": rows}
    return packed


def _cut(value: Any) -> Any:
    return float(f"{value:.{DIGITS_SHOWN}g}") if isinstance(value, float) else value
