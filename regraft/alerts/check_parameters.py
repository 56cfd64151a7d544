"""What is wrong with the parameters of a rule: numbers out of bounds, unknown fields in texts.

In: values, and the bounds in their types. Out: sentences. Which parameters a rule has belongs to
:mod:`alerts.rule_kinds`.
"""

from __future__ import annotations

import math
import string
from collections.abc import Mapping
from typing import Annotated, get_type_hints

from msgspec import Meta

SAMPLE: Mapping[str, object] = {
    "subject": "b01", "value": 1.0, "limit": 1.0, "detail": "why", "duration_s": 1.0, "windows": 1, "span_min": 1.0,
    "clear_min": 1.0,
}  # fmt: skip
TEXT_FIELDS = tuple(SAMPLE)
COUNT_MAX = 1_000_000  # Two months of windows of 5 s; the memory of a rule grows with it.

Count = Annotated[int, Meta(ge=1, le=COUNT_MAX)]
Seconds = Annotated[float, Meta(gt=0)]
Share = Annotated[float, Meta(gt=0, le=1)]


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


def bound_errors(rule: object) -> list[str]:
    """Return a sentence for each parameter that is not a finite number within the bounds of its type."""
    hints = get_type_hints(type(rule), include_extras=True)
    bounds = ((name, meta) for name, hint in hints.items() for meta in getattr(hint, "__metadata__", ()))
    return [error for name, meta in bounds if (error := _bound_error(name, getattr(rule, name), meta))]


def _bound_error(name: str, value: float, bound: Meta) -> str:
    shown = f"{value:g}" if isinstance(value, float) else f"{value}"
    if not math.isfinite(value):
        return f"{name} is {shown}: write a number"
    if bound.ge is not None and value < bound.ge:
        return f"{name} is {shown}: must be at least {bound.ge}"
    if bound.gt is not None and value <= bound.gt:
        return f"{name} is {shown}: must be above {bound.gt}"
    if bound.le is not None and value > bound.le:
        return f"{name} is {shown}: must be at most {bound.le}"
    return ""
