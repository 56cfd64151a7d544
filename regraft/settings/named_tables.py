"""The settings of planners and connectors: a table ``[planners.NAME]`` or ``[connectors.NAME]`` for each.

Each is made from the dataclass in the planner's or connector's own file; other packages may add to them. In: tables as
given. Out: a checked model for each. What the settings mean belongs to the planners and connectors.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from functools import cache
from typing import Any, TypeVar

from regraft.controller.planners.planner_registry import PLANNERS, PlannerError, planner_names, planner_spec
from regraft.controller.settings.planner_settings import PlannerSettings
from regraft.controller.state.planner_interface import AnyPlannerSpec
from regraft.producers.connector_settings import ConnectorSettings
from regraft.producers.nodes.connectors.connector import ConnectorError
from regraft.producers.nodes.connectors.connector_spec import AnyConnectorSpec
from regraft.producers.nodes.connectors.find_connectors import CONNECTORS, connector_spec, spec_of
from regraft.settings.settings_model import SettingsModel, settings_model, to_dataclass

SpecT = TypeVar("SpecT")


@cache
def _planner_model(spec: AnyPlannerSpec) -> type[SettingsModel]:
    heading = f"{spec.summary[:1].upper()}{spec.summary[1:]}. Source: {spec.source}."
    return settings_model(spec.settings, f"planners.{spec.name}", heading=heading)


@cache
def _connector_model(spec: AnyConnectorSpec) -> type[SettingsModel]:
    return settings_model(spec.settings, f"connectors.{spec.name}")


def planner_models(named: Iterable[str] = ()) -> dict[str, type[SettingsModel]]:
    """Return the generated model of each built-in planner, and of each named planner of other installed packages."""
    specs = _specs(PLANNERS, named, planner_spec, PlannerError)
    return {name: _planner_model(spec) for name, spec in specs.items()}


def connector_models(named: Iterable[str] = ()) -> dict[str, type[SettingsModel]]:
    """Return the generated model of each built-in connector, and of each named one of other installed packages."""
    specs = _specs(CONNECTORS, named, connector_spec, ConnectorError)
    return {name: _connector_model(spec) for name, spec in specs.items()}


def _specs(
    built_in: Mapping[str, SpecT], named: Iterable[str], spec_of_name: Callable[[str], SpecT], error: type[Exception]
) -> dict[str, SpecT]:
    specs = dict(built_in)
    for name in sorted(set(named) - specs.keys()):
        with suppress(error):
            specs[name] = spec_of_name(name)
    return specs


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
            errors.append(f"planners.{name}: planner {error}")
    return _read_tables("planners", given, models, errors)


def read_connectors(given: Mapping[str, Any], connector: str | None, errors: list[str]) -> dict[str, SettingsModel]:
    """Return the settings of built-in connectors, of the one in use, and of others that have settings.

    Appends to ``errors``; wrong values are collected by the surrounding ``collect_errors``. What is wrong with the
    connector in use is reported elsewhere.
    """
    used = None
    with suppress(ConnectorError, ValueError):
        used = spec_of(connector or "")
    models = connector_models(given.keys() | ({used.name} if used else set()))
    for name in sorted(given.keys() - models.keys()):
        try:
            connector_spec(name)
        except ConnectorError as error:
            errors.append(f"connectors.{name}: connector {error}")
    return _read_tables("connectors", given, models, errors)


def _read_tables(
    section: str, given: Mapping[str, Any], models: Mapping[str, type[SettingsModel]], errors: list[str]
) -> dict[str, SettingsModel]:
    """Return the model of each name with the values of its table, if one is given."""
    tables = {}
    for name, model in models.items():
        values = given.get(name, {})
        if not isinstance(values, Mapping):
            errors.append(f"{section}.{name} is {values!r}: write a table, as in [{section}.{name}]")
            values = {}
        tables[name] = model.model_validate(dict(values))
    return tables


def to_planner_settings(models: Mapping[str, SettingsModel]) -> dict[str, PlannerSettings]:
    """Return the planners' own dataclasses with the models' values."""
    specs = _specs(PLANNERS, models, planner_spec, PlannerError)
    return {name: to_dataclass(model, specs[name].settings) for name, model in models.items()}


def to_connector_settings(models: Mapping[str, SettingsModel]) -> dict[str, ConnectorSettings]:
    """Return the connectors' own dataclasses with the models' values."""
    specs = _specs(CONNECTORS, models, connector_spec, ConnectorError)
    return {name: to_dataclass(model, specs[name].settings) for name, model in models.items()}
