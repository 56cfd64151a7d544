"""What is wrong with the parameters of a rule: numbers out of bounds, unknown fields in texts.

In: values. Out: sentences. Which parameters a rule has belongs to :mod:`alerts.rule_kinds`.
"""

from __future__ import annotations

import math
import string
from collections.abc import Mapping

SAMPLE: Mapping[str, object] = {
    "subject": "b01", "value": 1.0, "limit": 1.0, "detail": "why", "duration_s": 1.0, "windows": 1, "span_min": 1.0,
    "clear_min": 1.0,
}  # fmt: skip
TEXT_FIELDS = tuple(SAMPLE)
COUNT_MAX = 1_000_000  # Two months of windows of 5 s; the memory of a rule grows with it.


def template_error(template: str) -> str:
    """Return what is wrong with the text of a rule, "" if nothing is."""
    try:
        fields = [name for _, name, _, _ in string.Formatter().parse(template) if name is not None]
    except ValueError as error:
        return f"is {template!r}: {error}"
    unknown = [name for name in fields if name not in TEXT_FIELDS]
    if unknown:
        usable = ", ".join(f"{{{name}}}" for name in TEXT_FIELDS)
        return f"is {template!r}: {{{unknown[0]}}} is unknown: use one of {usable}"
    try:
        template.format(**SAMPLE)
    except (ValueError, KeyError, IndexError) as error:
        return f"is {template!r}: {error}"
    return "" if template.strip() else "is empty: write what an operator should know"


def at_least_one(rule: object, *names: str) -> list[str]:
    """Return a sentence for each of these parameters that is below 1, or so large that nothing could reach it."""
    values = {name: getattr(rule, name) for name in names}
    errors = [f"{name} is {value}: must be at least 1" for name, value in values.items() if value < 1]
    return errors + [
        f"{name} is {value}: must be at most {COUNT_MAX}" for name, value in values.items() if value > COUNT_MAX
    ]


def above_0(rule: object, *names: str) -> list[str]:
    """Return a sentence for each of these parameters that is not a finite number above 0."""
    values = {name: getattr(rule, name) for name in names}
    return [f"{name} is {value:g}: must be above 0" for name, value in values.items() if not 0 < value < math.inf]


def finite(rule: object, *names: str) -> list[str]:
    """Return a sentence for each of these parameters that is not a finite number."""
    values = {name: getattr(rule, name) for name in names}
    return [f"{name} is {value}: write a number" for name, value in values.items() if not math.isfinite(value)]
