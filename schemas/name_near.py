"""Suggest the known name that an unknown one is most likely a mistake for."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


def name_near(name: str, known: Iterable[str], otherwise: str) -> str:
    """Return "did you mean ...?" with the nearest known name, or ``otherwise`` if none is near."""
    near = difflib.get_close_matches(name, list(known), n=1)
    return f"did you mean {near[0]}?" if near else otherwise
