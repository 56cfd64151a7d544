"""Read tables that operators write: CSV with a line of names, of which some are required."""

from __future__ import annotations

import csv
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from regraft.inventories.source_error import SourceError
from regraft.overlay.inventory.inventory_schema import unknown_fields


def read_text(file: Path) -> str:
    """Return a file's text. Raises SourceError."""
    try:
        return file.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise SourceError([f"{file} cannot be read ({error.strerror})"]) from error
    except UnicodeDecodeError as error:
        raise SourceError([f"{file} is not text in UTF-8"]) from error


@dataclass
class Row:
    """One line of a table; a value that cannot be used is added to the table's errors."""

    place: str
    values: dict[str, str]
    errors: list[str]

    def text(self, name: str) -> str:
        """Return a value without spaces around it, empty if it is missing."""
        return self.values.get(name, "").strip()

    def name(self, column: str) -> str:
        """Return a value that must not be empty."""
        if not (text := self.text(column)):
            self.errors.append(f"{self.place}: {column} is empty")
        return text

    def number(self, name: str, least: float = 0.0) -> float | None:
        """Return a finite number of at least ``least``, None if it is missing or wrong."""
        if not (text := self.text(name)):
            return None
        try:
            value = float(text)
        except ValueError:
            value = math.nan
        if math.isfinite(value) and value >= least:
            return value
        limit = "" if least == -math.inf else f" of at least {least:g}"
        self.errors.append(f"{self.place}: {name} is {text!r}: it must be a number{limit}")
        return None


def read_table(file: Path, required: Sequence[str], optional: Sequence[str], take: Callable[[Row], None]) -> None:
    """Hand each row to ``take``. Raises SourceError with all errors, those that ``take`` adds included."""
    reader = csv.reader(read_text(file).splitlines())
    head = [name.strip() for name in next(reader, [])]
    errors = [f"{file}: {error}" for error in unknown_fields(head, (*required, *optional), what="column")]
    errors += [f"{file} has no column {name}: its first line must name it" for name in required if name not in head]
    if errors:
        raise SourceError(errors)
    try:
        for line in reader:
            place = f"{file}, line {reader.line_num}"
            if len(line) > len(head):
                errors.append(f"{place} has {len(line)} values, but there are {len(head)} columns")
            elif any(value.strip() for value in line):
                take(Row(place, dict(zip(head, line, strict=False)), errors))
    except csv.Error as error:
        errors.append(f"{file}, line {reader.line_num} cannot be read ({error})")
    if errors:
        raise SourceError(errors)
