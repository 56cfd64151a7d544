"""Read ``--set section.name=value`` assignments from the command line."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from regraft.schemas.parse_text import parse_toml
from regraft.settings.run_settings import SettingsError


def parse_flag(text: str) -> tuple[str, str, Any]:
    """Split ``section.name=value`` into its section, the rest of the name and the value.

    Raises SettingsError if the form is wrong. The value is parsed as TOML if it is valid TOML, else taken as text.
    """
    path, separator, value = text.partition("=")
    section, dot, name = path.strip().partition(".")
    if not separator or not dot or not name:
        raise SettingsError([f"--set {text}: write section.name=value, for example --set run.seed=3"])
    try:
        return section, name, parse_toml(f"value = {value}")["value"]
    except ValueError:
        return section, name, value.strip()


def parse_assignments(assignments: Sequence[str]) -> dict[str, dict[str, Any]]:
    """Return ``--set`` assignments as nested tables. Raises SettingsError that names every malformed one."""
    tables: dict[str, dict[str, Any]] = {}
    errors: list[str] = []
    for text in assignments:
        try:
            section, name, value = parse_flag(text)
        except SettingsError as error:
            errors += error.errors
            continue
        table = tables.setdefault(section, {})
        *parents, leaf = name.split(".")
        for parent in parents:
            if not isinstance(table.setdefault(parent, {}), dict):
                errors.append(f"--set {text}: {parent} already has a value: remove one of the two")
                break
            table = table[parent]
        else:
            table[leaf] = value
    if errors:
        raise SettingsError(errors)
    return tables
