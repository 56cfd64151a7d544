"""Shorten texts that are composed of others to what readers accept: a reason may repeat one that is as long as allowed.

In: a text. Out: the text, or its beginning with a visible end.
"""

from __future__ import annotations

from regraft.schemas.bounds import TEXT_LENGTH_MAX

CUT = " ..."


def shortened(text: str, length_max: int = TEXT_LENGTH_MAX) -> str:
    """Return the text if it is short enough, else as much of its beginning as fits in front of CUT."""
    return text if len(text) <= length_max else text[: length_max - len(CUT)] + CUT
