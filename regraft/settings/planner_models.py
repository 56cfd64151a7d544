"""The settings of planners: a table ``[planners.NAME]`` for each, made from the dataclass in the planner's own file.

In: tables as they were given. Out: a checked model for each planner. What the settings mean belongs to the planners.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from functools import cache
from typing import Any

from controller.decide.find_planners import PLANNERS
from controller.state.planner_interface import AnyPlannerSpec, PlannerSettings
from regraft.settings.settings_model import SettingsModel, settings_model, to_dataclass

SECTION = "planners"


@cache
def _model_of(spec: AnyPlannerSpec) -> type[SettingsModel]:
    heading = f"{spec.summary[0].upper()}{spec.summary[1:]}. Source: {spec.source}."
    return settings_model(spec.settings, f"{SECTION}.{spec.name}", heading=heading)


def planner_models() -> dict[str, type[SettingsModel]]:
    """Return the generated model of each planner by its name, in the order in which they are listed."""
    return {name: _model_of(spec) for name, spec in PLANNERS.items()}


def read_planners(given: Mapping[str, Any], faults: list[str]) -> dict[str, SettingsModel]:
    """Return the settings of each planner. Values that are wrong become faults of the ``collect_faults`` around it."""
    models = planner_models()
    for name in given.keys() - models.keys():
        near = difflib.get_close_matches(name, models, n=1)
        way_out = f"did you mean {near[0]}?" if near else f"known are {', '.join(sorted(models))}"
        faults.append(f"{SECTION}.{name} is no planner: {way_out}")
    found = {}
    for name, model in models.items():
        told = given.get(name, {})
        if not isinstance(told, Mapping):
            faults.append(f"{SECTION}.{name} is {told!r}: a table is wanted, as in [{SECTION}.{name}]")
            told = {}
        found[name] = model.model_validate(dict(told))
    return found


def to_planner_settings(models: Mapping[str, SettingsModel]) -> dict[str, PlannerSettings]:
    """Return the planners' own dataclasses with the models' values."""
    return {name: to_dataclass(model, PLANNERS[name].settings) for name, model in models.items()}
