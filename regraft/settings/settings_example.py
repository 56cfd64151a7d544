"""Write settings as TOML: all defaults with their meaning, or the settings of one run."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Mapping
from enum import Enum
from typing import Any

from regraft.schemas.bounds import UNCLEAN_ANYWHERE
from regraft.settings.fixed_settings import RECORDED
from regraft.settings.named_tables import connector_models, planner_models
from regraft.settings.run_settings import Settings, section_models
from regraft.settings.settings_model import NONE_WORD, SettingsModel

HEAD = """\
# Every setting of Regraft at its default. Printed by `regraft settings --example`.
# Copy what you want to change into your own file and name it with --settings FILE or REGRAFT_SETTINGS.
# A flag (--set section.name=value) wins over the environment (REGRAFT_SECTION__NAME), that over the file.
# The word "none" means: no value.
"""
COMMENT_WIDTH = 116


def example_text() -> str:
    """Return the example file."""
    parts = [HEAD]
    for name, model in section_models().items():
        parts.append(_table(name, model()))
    for name, model in named_models().items():
        parts.append(_table(name, model()))
    return "\n".join(parts)


def named_models() -> dict[str, type[SettingsModel]]:
    """Return the models of the built-in connectors and planners, by the names of their tables."""
    connectors = {f"connectors.{name}": model for name, model in connector_models().items()}
    return {**connectors, **{f"planners.{name}": model for name, model in planner_models().items()}}


def settings_text(settings: Settings) -> str:
    """Return the settings of a run, without the password of the live view."""
    record = settings.to_record()
    return "\n".join(plain_table(name, values) for name, values in record.items() if name != RECORDED)


def servers_text(settings: Settings) -> str:
    """Return a settings file with which commands reach the servers of a run; secrets stay in their files."""
    return "\n".join(plain_table(name, settings.given[name]) for name in ("kafka", "redis"))


def _table(path: str, model: SettingsModel) -> str:
    lines = [*_comment(_first_paragraph(type(model))), f"[{path}]"]
    nested: list[str] = []
    for name, field in type(model).model_fields.items():
        value = getattr(model, name)
        if isinstance(value, SettingsModel):
            nested.append(_table(f"{path}.{name}", value))
            continue
        lines += [*_comment(f"{name}: {field.description}"), f"{name} = {toml_text(value)}"]
    return "\n".join(["\n".join(lines) + "\n", *nested])


def plain_table(path: str, values: Mapping[str, Any]) -> str:
    """Return a table of a settings file, with the tables in it and without comments."""
    lines = [f"[{path}]"]
    nested: list[str] = []
    for name, value in values.items():
        if isinstance(value, Mapping):
            nested.append(plain_table(f"{path}.{name}", value))
        else:
            lines.append(f"{name} = {toml_text(value)}")
    return "\n".join(["\n".join(lines) + "\n", *nested])


def _first_paragraph(model: type[SettingsModel]) -> str:
    paragraph = (model.__doc__ or "").strip().split("\n\n")[0]
    return " ".join(paragraph.split()).replace("``", "")


def _comment(text: str) -> list[str]:
    return [f"# {line}" for line in textwrap.wrap(text, COMMENT_WIDTH)]


def toml_text(value: object) -> str:
    """Return a value in TOML; None becomes NONE_WORD."""
    if value is None:
        return f'"{NONE_WORD}"'
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, Enum):
        return json.dumps(value.value)
    if isinstance(value, (int, float)):
        return repr(value)
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(toml_text(each) for each in value)}]"
    text = json.dumps(str(value), ensure_ascii=False)  # Escapes some control characters, but not all.
    return UNCLEAN_ANYWHERE.sub(lambda sign: f"\\u{ord(sign[0]):04x}", text)
