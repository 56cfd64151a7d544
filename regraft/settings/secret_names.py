"""Which files hold secrets: those that settings name, and the file of settings itself. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from regraft.infra.process.connection_security import variable_of
from regraft.settings.settings_model import SECRET_NAMES

ENDS = ("password_file", "key_file", "secret_file")  # Of the names of settings; `trusted_keys_file` is public.


def named_secret_files(values: Mapping[str, Any]) -> Iterator[Path]:
    """Yield the files with secrets that settings name, in any table."""
    for name, value in values.items():
        if isinstance(value, Mapping):
            yield from named_secret_files(value)
        elif name.endswith(ENDS) and isinstance(value, Path) and variable_of(value) is None:
            yield value


def has_secret(tables: Mapping[str, Any]) -> bool:
    """Return True if the tables of a file hold a value that may be a secret."""
    return any(
        has_secret(value) if isinstance(value, Mapping) else name in SECRET_NAMES and bool(value)
        for name, value in tables.items()
    )
