"""Generate checked settings models from the stages' frozen dataclasses, so that each default is defined once.

In: a dataclass. Out: a pydantic model of its described fields, those with a text as in ``Annotated[int, "text"]``; all
others are constants or filled by the composition. Errors are collected instead of raised one at a time. Also, which
values and files of settings are secret. The list of sections does not belong here.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from pathlib import Path
from typing import Annotated, Any, ClassVar, TypeVar, cast, get_args, get_origin, get_type_hints

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    ModelWrapValidatorHandler,
    ValidationError,
    create_model,
    field_validator,
)
from pydantic import model_validator as validated_by
from pydantic_core import PydanticCustomError

from regraft.infra.process.connection_security import variable_of
from regraft.schemas.texts import name_near

NONE_WORD = "none"  # Stands for None in TOML and in the environment, which have no null.

SECRET_NAMES = ("url", "targets", "webhooks", "secret")  # Their values may hold passwords and are never printed.

NOT_A_TABLE = ("model_type", "dict_type")  # Pydantic's names of these errors.

_CONTROL = re.compile(r"[\x00-\x1f\x7f]")

_collected: ContextVar[list[str] | None] = ContextVar("collected_errors", default=None)

Value = TypeVar("Value")
ENDS = ("password_file", "key_file", "secret_file")  # Of the names of settings; `trusted_keys_file` is public.


@contextmanager
def collect_errors() -> Iterator[list[str]]:
    """Yield a list to which every model validated in this block adds its errors."""
    errors: list[str] = []
    token = _collected.set(errors)
    try:
        yield errors
    finally:
        _collected.reset(token)


class SettingsModel(BaseModel):
    """A model that reports a wrong or unknown field as a sentence, and continues with the field's default.

    Inside ``collect_errors`` nothing is raised, so that one check shows all errors; outside, pydantic raises.
    """

    # No setting is infinite or not a number: such a value would pass most comparisons.
    model_config = ConfigDict(extra="forbid", frozen=True, validate_default=True, allow_inf_nan=False)

    setting_path: ClassVar[str] = ""

    @field_validator("*")
    @classmethod
    def _check_text(cls, value: Any) -> Any:
        """Refuse control characters: no file or host has them, and the environment of a stage cannot hold a null."""
        if isinstance(value, str | Path) and _CONTROL.search(str(value)):
            raise PydanticCustomError("control_character", "it has a control character")
        if isinstance(value, tuple | list):
            for each in value:
                cls._check_text(each)
        return value

    @validated_by(mode="wrap")
    @classmethod
    def _drop_invalid(cls, data: Any, handler: ModelWrapValidatorHandler[Any]) -> Any:
        errors = _collected.get()
        if errors is None or not isinstance(data, Mapping):
            return handler(data)
        given = {name: _without_none_word(cls, name, value) for name, value in data.items()}
        try:
            return handler(given)
        except ValidationError as error:
            wrong = {str(entry["loc"][0]) for entry in error.errors() if entry["loc"]}
            sentences = {
                str(entry["loc"][0]): _sentence(cls, entry) for entry in reversed(error.errors()) if entry["loc"]
            }
            errors += [sentences[name] for name in sorted(sentences)]
            return handler({name: value for name, value in given.items() if name not in wrong})


def _without_none_word(model: type[BaseModel], name: str, value: object) -> object:
    field = model.model_fields.get(name)
    allows_none = field is not None and type(None) in get_args(field.annotation)
    return None if allows_none and value == NONE_WORD else value


def _sentence(model: type[SettingsModel], entry: Any) -> str:
    name = str(entry["loc"][0])
    full_name = f"{model.setting_path}.{name}" if model.setting_path else name
    if entry["type"] == "extra_forbidden":
        way_out = name_near(name, model.model_fields, f"known here are {', '.join(sorted(model.model_fields))}")
        return f"{full_name} is not a setting: {way_out}"
    if entry["type"] in NOT_A_TABLE:  # The value may be a URL with a password.
        return f"{full_name} is given as a value: write a table, as in [{full_name}]"
    reason = entry["msg"][0].lower() + entry["msg"][1:]
    shown = "not usable" if name in SECRET_NAMES else repr(entry["input"])
    return f"{full_name} is {shown}: {reason} (the default is {_default_text(model, name)})"


def _default_text(model: type[BaseModel], name: str) -> str:
    default = model.model_fields[name].get_default(call_default_factory=True, validated_data={})
    return NONE_WORD if default is None else str(default)


def settings_model(shape: type[Any], path: str, heading: str | None = None) -> type[SettingsModel]:
    """Return the model of a dataclass's settings: its fields with a text, tables included.

    ``heading`` replaces the docstring above its table. Raises TypeError for a setting without default, because new
    users must be able to start without it.
    """
    return _settings_model(shape, path, {}, heading)


def _settings_model(
    shape: type[Any], path: str, defaults: Mapping[str, object], heading: str | None = None
) -> type[SettingsModel]:
    hints, texts = _hints_of(cast(Any, shape)), field_texts(cast(Any, shape))
    fields: dict[str, Any] = {}
    for field in dataclasses.fields(shape):
        if field.name not in texts:
            continue
        hint = hints[field.name]
        default = defaults.get(field.name, _default_of(shape, field))
        if dataclasses.is_dataclass(hint) and isinstance(hint, type):
            nested = _settings_model(hint, f"{path}.{field.name}", _values_of(default))
            fields[field.name] = (nested, Field(default_factory=nested))
            continue
        fields[field.name] = (hint, Field(default=default, description=texts[field.name]))
    model = create_model(f"{shape.__name__}Model", __base__=SettingsModel, __doc__=heading or shape.__doc__, **fields)
    model.setting_path = path
    return model


def _default_of(shape: type[Any], field: dataclasses.Field[Any]) -> object:
    if field.default is not dataclasses.MISSING:
        return field.default
    if field.default_factory is not dataclasses.MISSING:
        return field.default_factory()
    raise TypeError(
        f"{shape.__name__}.{field.name} has a text, so it is a setting, but no default: give it one, or leave the text "
        "out for a field that the composition fills"
    )


def _values_of(value: Any) -> dict[str, object]:
    """Return the values of a nested default, which may differ from its class's own defaults."""
    return {inner.name: getattr(value, inner.name) for inner in dataclasses.fields(value)}


@cache
def field_texts(shape: type[Any]) -> dict[str, str]:
    """Return the text of each setting of a dataclass, by its name."""
    return {
        name: next(each for each in hint.__metadata__ if isinstance(each, str))
        for name, hint in get_type_hints(shape, include_extras=True).items()
        if get_origin(hint) is Annotated and any(isinstance(each, str) for each in hint.__metadata__)
    }


def chosen_names(model: SettingsModel) -> Iterator[str]:
    """Yield the full names of the settings that were given, including nested ones."""
    for name in sorted(model.model_fields_set):
        value = getattr(model, name)
        if isinstance(value, SettingsModel):
            yield from chosen_names(value)
        else:
            yield f"{type(model).setting_path}.{name}"


@cache
def _hints_of(shape: type[Any]) -> dict[str, Any]:
    """Return the types of a dataclass's fields; finding them takes longer than a check of all settings."""
    return get_type_hints(shape)


def to_dataclass(model: SettingsModel, shape: type[Value], **composed: Any) -> Value:
    """Return the dataclass with the model's values and those of the composition."""
    return shape(**_given_values(model, shape), **composed)


def _given_values(model: SettingsModel, shape: type[Any]) -> dict[str, Any]:
    defaults = {field.name: field for field in dataclasses.fields(shape)}
    values: dict[str, Any] = {}
    for name in type(model).model_fields:
        value = getattr(model, name)
        if isinstance(value, SettingsModel):
            nested: Any = _default_of(shape, defaults[name])
            value = dataclasses.replace(nested, **_given_values(value, type(nested)))
        values[name] = value
    return values


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
