"""The names and the form of settings in environment variables."""

from __future__ import annotations

import difflib
import json
from collections.abc import Collection, Mapping
from enum import Enum
from typing import Any

from regraft.settings.settings_model import NONE_WORD

ENVIRONMENT_PREFIX = "REGRAFT_"
# Names that operators expect, in addition to REGRAFT_KAFKA__BOOTSTRAP and REGRAFT_REDIS__URL.
SHORT_NAMES = {
    "REGRAFT_KAFKA_BOOTSTRAP": ("kafka", "bootstrap"),
    "REGRAFT_KAFKA_NAMESPACE": ("kafka", "namespace"),
    "REGRAFT_REDIS_URL": ("redis", "url"),
}


# Variables that are read elsewhere.
OTHER_NAMES = (
    "REGRAFT_SETTINGS",
    "REGRAFT_CACHE",
    "REGRAFT_IVY_SETTINGS",
    "REGRAFT_SCHEMA_REGISTRY_URL",
    "REGRAFT_SCHEMA_REGISTRY_USERNAME",
    "REGRAFT_SCHEMA_REGISTRY_PASSWORD_VARIABLE",
    "REGRAFT_SCHEMA_REGISTRY_PASSWORD_FILE",
)
NEAR_SHARE = 0.9  # Of equal letters; a variable that holds a password may have any name.


def variable_errors(environ: Mapping[str, str], sections: Collection[str]) -> list[str]:
    """Return a sentence for each variable that looks like a setting but is not read: a misspelt name or table."""
    names, errors = (*SHORT_NAMES, *OTHER_NAMES), []
    for name in sorted(environ):
        if not name.startswith(ENVIRONMENT_PREFIX) or name in names:
            continue
        table, is_nested, rest = name.removeprefix(ENVIRONMENT_PREFIX).partition("__")
        if not is_nested:
            near = difflib.get_close_matches(name, names, n=1, cutoff=NEAR_SHARE)
            errors += [f"the variable {name} is not read: did you mean {each}?" for each in near]
        elif table.lower() not in sections:
            near = difflib.get_close_matches(table.lower(), sections, n=1)
            hint = f"did you mean {ENVIRONMENT_PREFIX}{near[0].upper()}__{rest}?" if near else "there is no such table"
            errors.append(f"the variable {name} is not read: {hint}")
    return errors


def settings_environment(given: Mapping[str, Any]) -> dict[str, str]:
    """Return nested settings as environment variables."""
    return dict(_environment_lines(given, ENVIRONMENT_PREFIX))


def _environment_lines(values: Mapping[str, Any], prefix: str) -> list[tuple[str, str]]:
    lines: list[tuple[str, str]] = []
    for name, value in values.items():
        variable = f"{prefix}{name.upper()}"
        if isinstance(value, Mapping):
            lines += _environment_lines(value, variable + "__")
        else:
            lines.append((variable, setting_text(value)))
    return lines


def setting_text(value: object) -> str:
    """Return a setting's value as text for an environment variable."""
    if value is None:
        return NONE_WORD
    if isinstance(value, Enum):
        return str(value.value)
    if isinstance(value, (list, tuple, bool)):
        return json.dumps(value, default=str)
    return str(value)
