"""The settings of connectors: a table ``[connectors.NAME]`` for each, made from the dataclass in the connector's file.

In: tables as given. Out: a checked model for each connector. What the settings mean belongs to the connectors.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from functools import cache
from typing import Any

from regraft.producers.connector_settings import ConnectorSettings
from regraft.producers.nodes.connectors.connector import ConnectorError
from regraft.producers.nodes.connectors.connector_spec import AnyConnectorSpec
from regraft.producers.nodes.connectors.find_connectors import CONNECTORS, connector_spec, spec_of
from regraft.settings.named_tables import read_named_tables
from regraft.settings.settings_model import SettingsModel, settings_model, to_dataclass

SECTION = "connectors"


@cache
def _model_of(spec: AnyConnectorSpec) -> type[SettingsModel]:
    return settings_model(spec.settings, f"{SECTION}.{spec.name}")


def connector_models(named: Iterable[str] = ()) -> dict[str, type[SettingsModel]]:
    """Return the generated model of each built-in connector, and of each named one of other installed packages."""
    specs = dict(CONNECTORS)
    for name in sorted(set(named) - specs.keys()):
        with suppress(ConnectorError):
            specs[name] = connector_spec(name)
    return {name: _model_of(spec) for name, spec in specs.items()}


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
            errors.append(f"{SECTION}.{name}: connector {error}")
    return read_named_tables(SECTION, given, models, errors)


def to_connector_settings(models: Mapping[str, SettingsModel]) -> dict[str, ConnectorSettings]:
    """Return the connectors' own dataclasses with the models' values."""
    specs = {name: CONNECTORS[name] if name in CONNECTORS else connector_spec(name) for name in models}
    return {name: to_dataclass(model, specs[name].settings) for name, model in models.items()}
