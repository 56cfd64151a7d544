"""The parts of a broker's core, for tests that look inside."""

from __future__ import annotations

from typing import Any


def parts_of(core: Any) -> list[Any]:
    """Return a core, its routing and the parts of that, each once."""
    return [core, core.routing, *(part for name, part in vars(core.routing).items() if _is_part(name, part))]


def _is_part(name: str, value: Any) -> bool:
    """Return True for what the routing owns; with an underscore it has a way to others, or data."""
    return not name.startswith("_") and hasattr(value, "__dict__")
