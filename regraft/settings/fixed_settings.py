"""The constants among a run's settings: read them, and replace them where a run needs others.

A constant is a plain field without a text. Only recordings of earlier versions and runs on a faster clock have others;
a file, the environment or a flag cannot change one.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields, is_dataclass, replace
from typing import Any, TypeVar, cast

from regraft.producers.workloads.field_texts import EMULATOR_TEXTS, WORKLOAD_TEXTS
from regraft.settings.settings_model import field_texts

RECORDED = "fixed"  # The table of a record that holds the constants, by full name.
# Waits for other processes, which take wall time whatever the clock of the run does.
WALL_TIMES = (
    "emulator.command_poll_ms",
    "emulator.drain_s_max",
    "controller.stop_ms_max",
    "controller.tick_ms",
    "controller.status_ms",
    "controller.decision.mute_ms",
    "controller.assembly.future_ms_max",
    "controller.assembly.rows_wait_ms",
    "controller.transition.prepare_ms",
    "controller.transition.activate_ms",
    "controller.transition.drain_ms",
    "controller.transition.retire_ms",
    "controller.transition.resend_ms",
)
# Those that follow the clock less, because they are times of the model as well.
SPEED_TIMES: Mapping[str, Callable[[float], float]] = {
    "emulator.flush_ms": lambda speed: min(250.0 * speed, 1_000.0),
    "emulator.settle_s": lambda speed: max(30.0 * speed, 300.0),
}
# Times that span a number of windows, which grow with windows longer than the default.
WINDOW_TIMES = ("controller.verify_ms_max", "controller.lookback_ms", "controller.decision.window_age_ms_max")
COUNTS = ("emulator.sample_counts_s", "node.sample_counts_s")  # Divisors of a window, or counts would span several.
WINDOW_MS = 5_000  # The default of streaming.window_ms.
# Fields without a text that are no constants, as the composition or a text of the settings fills them.
COMPOSED = {
    *("clock", "seed", "bootstrap", "namespace", "redis_url", "metrics_host", "window_ms", "grace_ms"),
    *("sample_share", "connectors"),
    *(name for forms in (EMULATOR_TEXTS, WORKLOAD_TEXTS) for form in forms.values() for name in form.field_names()),
}
PLAIN = (bool, int, float, str, type(None))  # As JSON keeps them.
_MISSING = object()

Value = TypeVar("Value")


def fixed_values(settings: object) -> dict[str, Any]:
    """Return the constants of a run by full name."""
    return dict(_constants({name: table for name, table in vars(settings).items() if is_dataclass(table)}, ""))


def with_recorded(settings: Value, recorded: Mapping[str, Any]) -> Value:
    """Return settings with the constants of a recorded run, so that it is decided as it was.

    Values of another type than the constant are left out.
    """
    written = recorded.get(RECORDED, {})
    for name, value in fixed_values(settings).items():
        kept = written.get(name, _recorded_at(recorded, name))
        if kept != value and _may_replace(value, kept):
            settings = _replaced(settings, _path(name), kept)
    return settings


def _may_replace(value: Any, kept: Any) -> bool:
    """Return True if a recorded value can stand for a constant; one without a value may have had any plain one."""
    if type(kept) is float and not math.isfinite(kept):
        return False
    return type(kept) in (PLAIN if value is None else (int, float) if type(value) is float else (type(value),))


def at_speed(settings: Value, speed: float) -> Value:
    """Return settings for a clock of the run that passes ``speed`` times as fast as the wall clock."""
    for name in WALL_TIMES if speed > 1 else ():
        value = _value_at(settings, _path(name))
        settings = _replaced(settings, _path(name), type(value)(value * speed))
    for name, at in SPEED_TIMES.items() if speed > 1 else ():
        settings = _replaced(settings, _path(name), at(speed))
    return settings


def at_windows(settings: Value, window_ms: int) -> Value:
    """Return settings for windows of this length."""
    for name in WINDOW_TIMES if window_ms > WINDOW_MS else ():
        value = _value_at(settings, _path(name))
        settings = _replaced(settings, _path(name), value * window_ms // WINDOW_MS)
    for name in COUNTS:
        most = _value_at(settings, _path(name))
        divisors = [seconds for seconds in range(1, most + 1) if window_ms % (seconds * 1_000) == 0]
        settings = _replaced(settings, _path(name), max(divisors, default=most))
    return settings


def _constants(value: Any, path: str) -> Iterator[tuple[str, Any]]:
    """Yield full names and values of the constants in a dataclass, or in a mapping of them such as the planners'."""
    if isinstance(value, Mapping):
        for name, inner in value.items():
            yield from _constants(inner, f"{path}{name}.")
    elif is_dataclass(value):
        texts = field_texts(cast(Any, type(value)))
        for field in fields(value):
            inner = getattr(value, field.name)
            if field.name in COMPOSED:
                continue
            if isinstance(inner, Mapping) or is_dataclass(inner):
                yield from _constants(inner, "planners." if field.name == "planners" else f"{path}{field.name}.")
            elif field.name not in texts and type(inner) in PLAIN:
                yield f"{path}{field.name}", inner


def _path(full_name: str) -> list[str]:
    parts = full_name.split(".")
    return ["controller", *parts] if parts[0] == "planners" else parts


def _value_at(value: Any, path: list[str]) -> Any:
    for part in path:
        value = value[part] if isinstance(value, Mapping) else getattr(value, part)
    return value


def _recorded_at(recorded: Mapping[str, Any], full_name: str) -> Any:
    table: Any = recorded
    for part in full_name.split("."):
        if not isinstance(table, Mapping) or part not in table:
            return _MISSING
        table = table[part]
    return table


def _replaced(value: Any, path: list[str], kept: Any) -> Any:
    """Return a dataclass or a mapping of them with one inner value replaced."""
    name, *rest = path
    if isinstance(value, Mapping):
        return {**value, name: _replaced(value[name], rest, kept)} if name in value else value
    return cast(Any, replace)(value, **{name: _replaced(getattr(value, name), rest, kept) if rest else kept})
