"""Turn the texts of the live view into what pages show: decoded, without fields that no page needs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from regraft.dashboard.live_board import Key
from regraft.dashboard.window_series import WindowSeries
from regraft.schemas.left_behind import Subscribers, subscribers_of
from regraft.schemas.live_view import (
    COUNTS,
    VIEW_KEYS,
    LiveViewError,
    NewerViewError,
    ShownBroker,
    ShownLink,
    ShownNetwork,
    check_version,
    decode_key,
    view_of_parts,
)
from regraft.schemas.loop_verdict import LoopVerdict, judge_loop
from regraft.schemas.shown_state import CostPoint

ALERTS, VERSION = "alerts", "version"
KEYS = (*VIEW_KEYS, ALERTS)  # The alert stage writes a plain JSON object.
DIGITS_SHOWN = 4
COUNTS_UNSHOWN = ("time_ms", "window_end_to_state_ms")
SHADOW_FIELDS_UNSHOWN = ("links", "ring", "homes")  # Whole overlays, which no page draws for shadow planners.

SERIES: dict[str, Key] = {
    "cost": lambda point: point.window_end_ms,
    "windows": lambda point: point.window_end_ms,
    "plans": lambda plan: plan.plan,
    "events": lambda event: (event.time_ms, event.kind, event.subject, event.text),
}


class ViewReader:
    """Decodes what changed since the last poll; a text that cannot be read leaves the part as it was.

    ``errors`` has a sentence for each part whose newest text cannot be read, and one if the view is of a newer version,
    which is not read at all. ``news_ms`` is the time of the newest view by the controller's clock.
    """

    def __init__(self, windows_max: int) -> None:
        self._texts: dict[str, bytes] = {}
        self._values: dict[str, Any] = {}
        self._windows = WindowSeries(windows_max)
        self._windows_max = windows_max
        self._costs: list[CostPoint] = []  # Also those of earlier controllers.
        self.errors: dict[str, str] = {}
        self.news_ms: int | None = None

    def read(self, texts: Mapping[str, bytes | None]) -> dict[str, Any]:
        """Return the parts whose text has changed since the last poll, as pages show them."""
        if self._is_newer(texts.get(COUNTS)):
            return {}
        fresh: dict[str, Any] = {}
        shown: dict[str, Any] = {}
        for part, text in texts.items():
            if text is None or text == self._texts.get(part):
                continue
            self._texts[part] = text
            try:
                fresh[part] = _alerts(text) if part == ALERTS else decode_key(part, text)
                shown[part] = _shown(part, fresh[part])
            except Exception as error:  # Whatever a text causes, such as too deep JSON: the others are shown.
                fresh.pop(part, None)
                self.errors[part] = f"{part} of the live view cannot be read ({error}): an older state of it is shown"
            else:
                self.errors.pop(part, None)
        self._values |= fresh
        if COUNTS in fresh:
            self.news_ms = fresh[COUNTS].time_ms
        if "cost" in fresh:
            shown["cost"] = self._costs_with(fresh["cost"])
        if fresh.keys() & {"window", "cost"}:
            shown["windows"] = self._windows_until_now()
        return shown

    def verdict(self, silent_s: float, now_ms: int) -> LoopVerdict:
        """Judge the newest state that was read; ``now_ms`` by the controller's clock."""
        is_whole = all(key in self._values for key in VIEW_KEYS)
        view = view_of_parts(self._values) if is_whole else None
        return judge_loop(view, self._values.get(ALERTS) or {}, silent_s, now_ms)

    def _is_newer(self, counts: bytes | None) -> bool:
        self.errors.pop(VERSION, None)
        try:
            check_version(counts or b"{}")
        except NewerViewError as error:
            self.errors[VERSION] = f"the live view cannot be read: {error}"
        except LiveViewError:
            return False  # Not JSON; reported when the part is read.
        return VERSION in self.errors

    def _costs_with(self, points: Sequence[CostPoint]) -> list[CostPoint]:
        """Add points to those of earlier controllers: a new leader begins without any, but charts share a time axis.

        Only what was before them stays: clocks may have been set back, or recorded telemetry be replayed.
        """
        if points:
            earlier = [point for point in self._costs if point.window_end_ms < points[0].window_end_ms]
            self._costs = [*earlier, *points][-self._windows_max :]
        return self._costs

    def _windows_until_now(self) -> Sequence[Any]:
        counts = self._values.get(COUNTS)
        latencies_ms = () if counts is None else counts.window_end_to_state_ms
        self._windows.add(self._values.get("window"), self._values.get("cost", ()), latencies_ms)
        return self._windows.points()


def _alerts(text: bytes) -> Any:
    return msgspec.json.decode(text, type=dict[str, Any] | None)


def _shown(part: str, value: Any) -> Any:
    """Return a part as pages show it, JSON-ready or as records."""
    if part == COUNTS:
        return _without(value, COUNTS_UNSHOWN)
    if part == "shadows":
        return {name: _without(shadow, SHADOW_FIELDS_UNSHOWN) for name, shadow in value.items()}
    if part == "network" and value is not None:
        return packed_network(value)
    return value


def _without(record: msgspec.Struct, fields: tuple[str, ...]) -> dict[str, Any]:
    return {name: value for name, value in msgspec.structs.asdict(record).items() if name not in fields}


def packed_network(network: ShownNetwork) -> dict[str, Any]:
    """Return the network with links and brokers as rows below the fields' names, numbers rounded as shown on pages.

    At 1,000 brokers, repeated field names would be most of the size.
    """
    return {
        "window_end_ms": network.window_end_ms,
        "links": _packed(ShownLink, network.links),
        "brokers": _packed(ShownBroker, network.brokers),
    }


def subscribers_shown(network: Mapping[str, Any]) -> dict[str, Subscribers]:
    """Return the subscribers of each broker of a packed network; empty unless clients stay."""
    packed = network["brokers"]
    return subscribers_of(ShownBroker(**dict(zip(packed["fields"], row, strict=True))) for row in packed["rows"])


def _packed(form: type[msgspec.Struct], records: Sequence[msgspec.Struct]) -> dict[str, Any]:
    rows = [[_cut(value) for value in msgspec.structs.astuple(record)] for record in records]
    return {"fields": form.__struct_fields__, "rows": rows}


def _cut(value: Any) -> Any:
    return float(f"{value:.{DIGITS_SHOWN}g}") if isinstance(value, float) else value
