"""Write a list of names for operators: the first ones, and how many more there are."""

from __future__ import annotations

from collections.abc import Sequence


def name_some(names: Sequence[str], most: int) -> str:
    """Return at most ``most`` names separated by commas, and the number of the others."""
    more = len(names) - most
    return ", ".join(names[:most]) + (f" and {more} more" if more > 0 else "")
