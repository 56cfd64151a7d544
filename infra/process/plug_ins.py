"""Entry points by which other packages offer parts, such as planners and connectors.

A package is imported only if one of its parts is named, so a broken one does not affect others.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from typing import Any, get_type_hints

NAME = re.compile(r"[a-z][a-z0-9]*(_[a-z0-9]+)*")  # Valid in a chain, in TOML and in an environment variable.


class PlugInError(ValueError):
    """A package's part cannot be used; the message begins with its name and says why."""


@cache
def offered_parts(group: str, path: tuple[str, ...]) -> dict[str, tuple[EntryPoint, ...]]:
    """Return the entry points of all packages on the path, by name; imports none of them."""
    by_name: dict[str, tuple[EntryPoint, ...]] = {}
    for entry in entry_points(group=group):
        by_name[entry.name] = (*by_name.get(entry.name, ()), entry)
    return by_name


def place_of(entry: EntryPoint) -> str:
    """Return which package offers a part, and where in it."""
    package = "a package without a name" if entry.dist is None else entry.dist.name
    return f"{package} ({entry.value})"


def the_only_one(name: str, is_built_in: bool, offered: tuple[EntryPoint, ...]) -> EntryPoint:
    """Return the one entry point of this name; raise PlugInError if it is offered twice."""
    places = [*(["Regraft itself"] if is_built_in else []), *map(place_of, offered)]
    if len(places) > 1:
        raise PlugInError(f"{name!r} is installed more than once, in {' and in '.join(places)}: uninstall all but one")
    return offered[0]


@cache
def load_part(entry: EntryPoint, what: str, base: type[Any], error_of: Callable[[Any], str]) -> Any:
    """Import what an entry point names; raise PlugInError if that fails, or if it is not ``what``.

    It must be a ``base`` with the entry point's name; ``error_of`` returns what else is wrong, or an empty string.
    """
    try:
        part = entry.load()
    # A foreign package may raise anything while it is imported.
    except Exception as error:
        raise PlugInError(
            f"{entry.name!r} cannot be imported from {place_of(entry)}, {type(error).__name__}: {error}: install what "
            "it needs, or a different version of it"
        ) from error
    reason = _identity_error(entry.name, part, base) or error_of(part)
    if reason:
        raise PlugInError(f"{entry.name!r} of {place_of(entry)} is not a {what}: {reason}")
    return part


def _identity_error(name: str, part: Any, base: type[Any]) -> str:
    if not isinstance(part, base):
        return f"it is a {type(part).__name__}, not a {base.__name__}"
    if part.name != name:
        return f"it calls itself {part.name!r}, its entry point must have the same name"
    return "" if NAME.fullmatch(name) else "its name must be lower-case words joined by single underscores"


def settings_error(settings: Any, base: type[Any]) -> str:
    """Return what is wrong with the settings class of a part, or an empty string."""
    if not isinstance(settings, type) or not issubclass(settings, base):
        return f"its settings are {settings!r}, not a subclass of {base.__name__}"
    try:
        get_type_hints(settings)
    except NameError as error:
        return f"the types of its settings cannot be read at run time, {error}"
    without = [field.name for field in dataclasses.fields(settings) if _has_no_default(field)]
    return f"its settings {', '.join(without)} have no default" if without else ""


def _has_no_default(field: dataclasses.Field[object]) -> bool:
    return field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING
