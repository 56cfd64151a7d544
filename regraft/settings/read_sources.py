"""Read what is set: flags over the environment over the tables of one TOML file, checked against the tables' models.

Building the stages' own values from these belongs to :mod:`regraft.settings.run_settings`.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextvars import ContextVar
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Any

from pydantic import Field, create_model
from pydantic_settings import (
    BaseSettings,
    InitSettingsSource,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
)
from pydantic_settings.exceptions import SettingsError as SourceError

from regraft.schemas.parse_text import parse_toml
from regraft.settings.settings_environment import ENVIRONMENT_PREFIX, SHORT_NAMES
from regraft.settings.settings_model import SettingsModel

FILE_VARIABLE = "REGRAFT_SETTINGS"
NAMED = ("planners", "connectors")  # Sections with a table for each name, which other packages may add to.

Flags = Mapping[str, Mapping[str, Any]]
Models = tuple[tuple[str, type[SettingsModel]], ...]  # By the names of their tables.
_tables: ContextVar[Mapping[str, Any]] = ContextVar("tables_of_the_file", default=MappingProxyType({}))


def named_file() -> Path | None:
    """Return the settings file that the environment names, if any."""
    named = os.environ.get(FILE_VARIABLE)
    return Path(named) if named else None


def read_toml(file: Path | None, errors: list[str]) -> dict[str, Any]:
    """Return the tables of a file, none if there is no file or it cannot be read; append to ``errors``."""
    if file is None:
        return {}
    try:
        return parse_toml(file.read_text(encoding="utf-8-sig"))
    except OSError as error:
        errors.append(f"settings file {file} cannot be read ({error.strerror}): check its name and permissions")
    except ValueError as error:
        errors.append(f"settings file {file} is not TOML ({error}): `regraft settings --example` shows its form")
    return {}


def read_sources(models: Models, flags: Flags, tables: Mapping[str, Any], errors: list[str]) -> Any:
    """Return a value with the checked model of each table, and ``NAMED`` ones as given; append to ``errors``."""
    model, token = _sources_model(models), _tables.set(tables)
    try:
        return model(**flags)
    except SourceError as error:
        errors.append(f"the environment cannot be read ({error}): values of lists must be JSON")
        defaults: dict[str, Any] = {name: each() for name, each in models}
        return model.model_construct(**(defaults | {name: {} for name in NAMED}))
    finally:
        _tables.reset(token)


@cache
def _sources_model(models: Models) -> type[SettingsModel]:
    """Return the model of all tables; building it takes longer than a check of all settings."""

    class Sources(SettingsModel, BaseSettings):
        model_config = SettingsConfigDict(
            env_prefix=ENVIRONMENT_PREFIX,
            env_nested_delimiter="__",
            env_ignore_empty=True,
            extra="forbid",
            frozen=True,
        )

        @classmethod
        def settings_customise_sources(
            cls,
            settings_cls: type[BaseSettings],
            init_settings: PydanticBaseSettingsSource,
            env_settings: PydanticBaseSettingsSource,
            dotenv_settings: PydanticBaseSettingsSource,
            file_secret_settings: PydanticBaseSettingsSource,
        ) -> tuple[PydanticBaseSettingsSource, ...]:
            short = InitSettingsSource(settings_cls, init_kwargs=_short_named())
            from_file = InitSettingsSource(settings_cls, init_kwargs=dict(_tables.get()))
            return init_settings, env_settings, short, from_file

    fields: dict[str, Any] = {name: (model, Field(default_factory=model)) for name, model in models}
    for name in NAMED:  # Their fields depend on the planners and connectors named.
        fields[name] = (dict[str, Any], Field(default_factory=dict))
    return create_model("Sources", __base__=Sources, **fields)


def _short_named() -> dict[str, dict[str, str]]:
    by_table: dict[str, dict[str, str]] = {}
    for variable, (section, name) in SHORT_NAMES.items():
        if os.environ.get(variable):
            by_table.setdefault(section, {})[name] = os.environ[variable]
    return by_table


def merged(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    """Return nested tables, in which the values of those above replace those below."""
    tables = dict(below)
    for name, value in above.items():
        under = tables.get(name)
        tables[name] = merged(under, value) if isinstance(under, Mapping) and isinstance(value, Mapping) else value
    return tables
