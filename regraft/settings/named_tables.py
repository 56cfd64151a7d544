"""Tables with a name each, ``[planners.NAME]`` and ``[connectors.NAME]``, which other packages may add to."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from regraft.settings.settings_model import SettingsModel


def read_named_tables(
    section: str, given: Mapping[str, Any], models: Mapping[str, type[SettingsModel]], errors: list[str]
) -> dict[str, SettingsModel]:
    """Return the model of each name with the values of its table, if one is given.

    Appends to ``errors``; wrong values are collected by the surrounding ``collect_errors``.
    """
    tables = {}
    for name, model in models.items():
        values = given.get(name, {})
        if not isinstance(values, Mapping):
            errors.append(f"{section}.{name} is {values!r}: write a table, as in [{section}.{name}]")
            values = {}
        tables[name] = model.model_validate(dict(values))
    return tables
