"""The parts of a broker's core, for tests that inspect them."""

from __future__ import annotations

from typing import Any


def parts_of(core: Any) -> list[Any]:
    """Return a core, its state, its routing, and the parts of that recursively, each once."""
    found = {id(part): part for part in (core, core.state, core.routing, *_owned(core.routing))}
    for part in _owned(core.routing):
        found |= {id(inner): inner for inner in _owned(part)}
    return list(found.values())


def _owned(owner: Any) -> list[Any]:
    return [part for name, part in vars(owner).items() if _is_part(name, part)]


def _is_part(name: str, value: Any) -> bool:
    """Return True for what the routing owns; a name with an underscore is a reference to another part, or data."""
    return not name.startswith("_") and hasattr(value, "__dict__")
