"""What texts for operators are made of: figures, times, lists of names, suggestions, and a bound of their length."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta

from regraft.schemas.bounds import TEXT_LENGTH_MAX, TIME_MS_MAX, UNCLEAN_ANYWHERE

DIGITS = 4
CUT = " ..."
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def figure(value: float) -> str:
    """Return a figure with four digits, or all integer digits from 1,000, with commas and never an exponent.

    Below 1 it has four decimals, so values below 0.00005 read as 0.
    """
    if abs(value) >= 10 ** (DIGITS - 1) - 0.05:  # Also if it rounds up to it.
        return f"{value:,.0f}"
    if abs(value) >= 1:
        return f"{value:.{DIGITS}g}"
    return f"{value:.{DIGITS}f}".rstrip("0").rstrip(".").removesuffix("-0") or "0"


def ended(sentence: str) -> str:
    """Return a sentence with an end: a full stop, unless it has one or is a question."""
    return sentence if sentence.endswith((".", "?")) else f"{sentence}."


def one_line(text: str) -> str:
    """Return a text that others wrote so that it neither controls a terminal nor looks like several lines."""
    return UNCLEAN_ANYWHERE.sub(" ", text)


def clean_lines(text: str) -> str:
    """Return a text of several lines in which what others wrote does not control a terminal."""
    return "\n".join(one_line(line) for line in text.split("\n"))


def name_near(name: str, known: Iterable[str], otherwise: str) -> str:
    """Return "did you mean ...?" with the nearest known name, or ``otherwise`` if none is near."""
    near = difflib.get_close_matches(name, list(known), n=1)
    return f"did you mean {near[0]}?" if near else otherwise


def name_some(names: Sequence[str], most: int) -> str:
    """Return at most ``most`` names separated by commas, and the number of the others."""
    more = len(names) - most
    return ", ".join(names[:most]) + (f" and {more} more" if more > 0 else "")


def time_text(time_ms: int) -> str:
    """Return a time to the second, such as ``2026-11-25 19:06:15 UTC``."""
    return _moment(time_ms).strftime("%Y-%m-%d %H:%M:%S UTC")


def iso_text(time_ms: int) -> str:
    """Return a time to the millisecond, such as ``2026-11-25T19:06:15.250+00:00``."""
    return _moment(time_ms).isoformat(timespec="milliseconds")


def window_name(end_ms: int) -> str:
    """Return the subject of events and alerts about the window that ends then: ``window-2026-11-25T19:06:15Z``."""
    return _moment(end_ms).strftime("window-%Y-%m-%dT%H:%M:%SZ")


def shortened(text: str, length_max: int = TEXT_LENGTH_MAX) -> str:
    """Return the text if it is short enough, else as much of its beginning as fits in front of CUT."""
    return text if len(text) <= length_max else text[: length_max - len(CUT)] + CUT


def _moment(time_ms: int) -> datetime:
    """Return a time that others wrote, or the nearest one from 1970 to 9999, which is what calendars print."""
    return EPOCH + timedelta(milliseconds=min(max(time_ms, 0), TIME_MS_MAX))
