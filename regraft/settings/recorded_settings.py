"""The settings of a recorded run, overridden by those of the command line."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

import numpy as np

from regraft.controller.planners.planner_registry import kind_errors
from regraft.overlay.inventory.inventory import Inventory
from regraft.producers.recordings.read_recording import RecordingInfo
from regraft.producers.workloads.field_texts import EMULATOR_TEXTS, WORKLOAD_TEXTS
from regraft.settings.fixed_settings import with_recorded
from regraft.settings.named_tables import planner_models
from regraft.settings.place_demo import ensure_inventory
from regraft.settings.read_sources import Flags, merged
from regraft.settings.run_settings import Settings, SettingsError, load_settings, section_models
from regraft.settings.settings_model import SettingsModel

SECTIONS = ("run", "demo", "emulator", "streaming", "controller")


def settings_of(info: RecordingInfo, flags: Flags, planners: Sequence[str]) -> Settings:
    """Return the recorded settings, overridden by the flags, with the first planner acting and the others as shadows.

    Recorded settings that this version does not know are left out. Raises SettingsError, also if a planner does not
    suit the overlay.
    """
    tables = dict(info.settings)
    if "emulator" in tables:
        tables["emulator"] = _with_texts(tables["emulator"])
    recorded, _ = present_settings(tables, SECTIONS)
    ours = {"planner": planners[0], "shadow_planners": list(planners[1:]), "dry_run": False}
    chosen = merged(merged(recorded, flags), {"controller": ours})
    settings = with_recorded(load_settings(chosen), tables)
    errors = kind_errors(settings.controller, info.inventory.bootstrap.KIND)
    if errors:
        raise SettingsError([f"controller: {error}" for error in errors])
    return settings


def present_settings(
    recorded: Mapping[str, Mapping[str, Any]], sections: Sequence[str]
) -> tuple[dict[str, dict[str, Any]], list[str]]:
    """Return the recorded settings of sections and planners that still are settings, and the names of all others."""
    unknown: list[str] = []
    models = section_models()
    tables = {name: _present(recorded[name], models[name], name, unknown) for name in sections if name in recorded}
    planners = recorded.get("planners", {})
    own = planner_models(planners)
    for name, values in planners.items():
        if name in own:
            tables.setdefault("planners", {})[name] = _present(values, own[name], f"planners.{name}", unknown)
        else:
            unknown.append(f"planners.{name}")
    return tables, unknown


def why_not_emulated(info: RecordingInfo, settings: Settings) -> str:
    """Return why the run cannot be emulated again, empty if the emulator made it.

    The emulator places its brokers by the seed, so it made the run if the brokers are as it would place them.
    """
    if "emulator" not in info.settings or "run" not in info.settings:
        return "the recording does not hold the settings of an emulator"
    with tempfile.TemporaryDirectory() as folder:
        flags = merged(dict(settings.given), {"run": {"directory": folder}})
        placed = ensure_inventory(load_settings({name: flags[name] for name in (*SECTIONS, "planners")}))
    if _is_alike(placed, info.inventory):
        return ""
    return (
        f"its brokers are not those that the emulator places with seed {settings.run.seed}, so they may be real brokers"
    )


def _is_alike(placed: Inventory, recorded: Inventory) -> bool:
    return (
        placed.brokers == recorded.brokers
        and placed.bootstrap == recorded.bootstrap
        and np.allclose(placed.link_cost, recorded.link_cost)
        and np.allclose(placed.processing_cost, recorded.processing_cost)
    )


def _with_texts(emulator: Mapping[str, Any]) -> dict[str, Any]:
    """Return the emulator's settings, as recorded by 0.2.0, with texts in place of the fields that they give now."""
    workload = emulator.get("workload", {})
    if not isinstance(workload, Mapping):
        return dict(emulator)
    changed = {**emulator, "workload": dict(workload)}
    for table, forms in ((changed, EMULATOR_TEXTS), (changed["workload"], WORKLOAD_TEXTS)):
        for name, form in forms.items():
            former = {field: table.pop(field) for field in form.field_names() if field in table}
            with suppress(TypeError, ValueError):  # Values that are none of a text are left out.
                if former and (text := form.text(former)):
                    table[name] = text
    return changed


def _present(recorded: Any, model: type[SettingsModel], path: str, unknown: list[str]) -> Any:
    """Return a table without what the model does not know; anything else unchanged, for the model to refuse."""
    if not isinstance(recorded, Mapping):
        return recorded
    values: dict[str, Any] = {}
    for name, value in recorded.items():
        field = model.model_fields.get(name)
        if field is None:
            unknown.append(f"{path}.{name}")
        elif isinstance(field.annotation, type) and issubclass(field.annotation, SettingsModel):
            values[name] = _present(value, field.annotation, f"{path}.{name}", unknown)
        else:
            values[name] = value
    return values
