"""Several fields of a dataclass in one text, such as ``every 30 for 5 by 6``: words, each followed by its value. Pure.

In: a text from the settings. Out: the fields, or a ValueError of one sentence; and the text of fields as recorded.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, TypeVar, cast

Settings = TypeVar("Settings")


def names_of(text: str) -> tuple[str, ...]:
    """Return the names in a text without spaces, separated by commas."""
    return tuple(text.split(","))


@dataclass(frozen=True)
class TextForm:
    """Which fields a text gives.

    ``words`` has the field after each word, and how to read it. ``first`` is the field of the text's first word, empty
    if that is one of the words. One of ``needed`` is in every text; ``example`` is one with all words.
    """

    words: Mapping[str, tuple[str, Callable[[str], Any]]]
    needed: tuple[str, ...]
    example: str
    first: str = ""

    def fields(self, text: str) -> dict[str, Any]:
        """Return the fields that a text gives; raise ValueError if it is invalid."""
        parts, values = text.split(), dict[str, Any]()
        if self.first and parts:
            values[self.first] = parts.pop(0)
        pairs = list(zip(parts[::2], parts[1::2], strict=False))
        given = dict(pairs)
        is_known = len(parts) == 2 * len(given) and given.keys() <= self.words.keys()
        if not is_known or not given.keys() & {*self.needed}:
            raise ValueError(f"it is written like {self.example}, with {' or '.join(self.needed)} at least")
        for word, value in pairs:
            field, read = self.words[word]
            try:
                values[field] = read(value)
            except ValueError:
                raise ValueError(f"{value} after {word} is not a number, as in {self.example}") from None
        return values

    def field_names(self) -> list[str]:
        """Return the fields that a text may give."""
        return [*([self.first] if self.first else []), *(field for field, _ in self.words.values())]

    def text(self, values: Mapping[str, Any]) -> str | None:
        """Return the text of fields, None if they need none."""
        if all(values.get(self.words[word][0]) is None for word in self.needed):
            return None
        parts = [str(values[self.first])] if values.get(self.first) else []
        for word, (field, _) in self.words.items():
            value = values.get(field)
            if value is not None:
                parts += [word, ",".join(value) if isinstance(value, list | tuple) else f"{value:.10g}"]
        return " ".join(parts)


WORKLOAD_TEXTS = {
    "regime_change": TextForm(
        {
            "at": ("regime_change_s", float),
            "over": ("regime_change_spread_s", float),
            "every": ("regime_change_every_s", float),
        },
        ("at", "every"),
        "interests at 90 over 3 every 300",
        first="regime_change_kind",
    ),
    "bursts": TextForm(
        {
            "every": ("burst_every_s", float),
            "for": ("burst_s", float),
            "by": ("burst_factor", float),
            "times": ("burst_count", int),
            "last": ("burst_s_last", float),
        },
        ("every",),
        "every 30 for 5 by 6 times 3 last 45",
    ),
}


EMULATOR_TEXTS = {
    "random_outages": TextForm(
        {
            "every": ("chaos_every_s", float),
            "for": ("chaos_for_s", float),
            "until": ("chaos_until_s", float),
            "kinds": ("chaos_kinds", names_of),
        },
        ("every",),
        "every 20 for 20 until 600 kinds death,slow",
    )
}


def with_texts(settings: Settings, forms: Mapping[str, TextForm]) -> Settings:
    """Return settings with the fields that their texts give; invalid texts give none."""
    for name, form in forms.items():
        if not _error(settings, name, form) and getattr(settings, name) is not None:
            settings = cast(Any, replace)(settings, **form.fields(getattr(settings, name)))
    return settings


def text_errors(settings: object, forms: Mapping[str, TextForm]) -> list[str]:
    """Return what is wrong with the texts, one sentence each."""
    return [error for name, form in forms.items() if (error := _error(settings, name, form))]


def _error(settings: object, name: str, form: TextForm) -> str:
    text = getattr(settings, name)
    try:
        form.fields(text) if text is not None else None
    except ValueError as error:
        return f"{name} is {text!r}: {error}"
    return ""
