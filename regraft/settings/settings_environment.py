"""The names and the form of settings in environment variables.

In: settings as plain values. Out: variables that hold exactly these. Reading them belongs to ``run_settings``.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
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
