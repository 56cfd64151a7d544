"""The settings of planners: a table ``[planners.NAME]`` for each, made from the dataclass in the planner's own file."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from functools import cache
from typing import Any

from regraft.controller.planners.planner_registry import PLANNERS, PlannerError, planner_names, planner_spec
from regraft.controller.settings.planner_settings import PlannerSettings
from regraft.controller.state.planner_interface import AnyPlannerSpec
from regraft.settings.named_tables import read_named_tables
from regraft.settings.settings_model import SettingsModel, settings_model, to_dataclass

SECTION = "planners"


@cache
def _model_of(spec: AnyPlannerSpec) -> type[SettingsModel]:
    heading = f"{spec.summary[:1].upper()}{spec.summary[1:]}. Source: {spec.source}."
    return settings_model(spec.settings, f"{SECTION}.{spec.name}", heading=heading)


def planner_models(named: Iterable[str] = ()) -> dict[str, type[SettingsModel]]:
    """Return the generated model of each built-in planner, and of each named planner of other installed packages."""
    specs = dict(PLANNERS)
    for name in sorted(set(named) - specs.keys()):
        with suppress(PlannerError):
            specs[name] = planner_spec(name)
    return {name: _model_of(spec) for name, spec in specs.items()}


def read_planners(given: Mapping[str, Any], chains: Iterable[str], errors: list[str]) -> dict[str, SettingsModel]:
    """Return the settings of built-in planners, and of others that have settings or are in the chains.

    Appends to ``errors``; wrong values are collected by the surrounding ``collect_errors``. Unknown planners in the
    chains are reported elsewhere.
    """
    acting = {name for chain in chains for name in planner_names(chain)}
    models = planner_models(acting | given.keys())
    for name in sorted(given.keys() - models.keys() - acting):
        try:
            planner_spec(name)
        except PlannerError as error:
            errors.append(f"{SECTION}.{name}: planner {error}")
    return read_named_tables(SECTION, given, models, errors)


def to_planner_settings(models: Mapping[str, SettingsModel]) -> dict[str, PlannerSettings]:
    """Return the planners' own dataclasses with the models' values."""
    specs = {name: PLANNERS[name] if name in PLANNERS else planner_spec(name) for name in models}
    return {name: to_dataclass(model, specs[name].settings) for name, model in models.items()}
