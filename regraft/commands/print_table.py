"""Print texts with names that others chose, and tables.

A table has one line a row where it is piped or stored, as many columns as fit on a terminal.
"""

from __future__ import annotations

from collections.abc import Sequence

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from regraft.schemas.texts import clean_lines, one_line

GAP = 2
PIPED_WIDTH = 1_000
WRAPPED_WIDTH_MIN = 24  # A column of sentences that is narrower than this is unreadable.


def print_text(text: str, *, err: bool = False) -> None:
    """Print a text in which names from files and servers do not control the terminal."""
    typer.echo(clean_lines(text), err=err)


def table_console() -> Console:
    """Return a console for tables: where it is piped or stored, no row takes several lines."""
    console = Console()
    return console if console.is_terminal else Console(width=PIPED_WIDTH)


def print_table(
    heads: Sequence[str],
    rows: Sequence[Sequence[str]],
    *,
    wraps: Sequence[str] = (),
    drops: Sequence[str] = (),
    console: Console | None = None,
) -> None:
    """Print the rows below their heads.

    On a terminal the columns in ``wraps`` may take several lines, and those in ``drops`` are left out, the first one
    first, as long as the others do not fit. Elsewhere each row is one line with all columns, for grep and awk.
    """
    out = console or Console()
    cells = [[" ".join(one_line(text).split()) for text in row] for row in rows]
    if not out.is_terminal:
        for line in plain_lines(heads, cells):
            out.print(line, markup=False, highlight=False, soft_wrap=True)
        return
    left_out: list[str] = []
    while len(left_out) < len(drops) and _width(heads, cells, wraps, left_out) > out.width:
        left_out.append(drops[len(left_out)])
    kept = [place for place, head in enumerate(heads) if head not in left_out]
    table = Table(box=None, pad_edge=False)
    for place in kept:
        table.add_column(heads[place], no_wrap=heads[place] not in wraps, overflow="fold")
    for row in cells:
        table.add_row(*(Text(row[place]) for place in kept))
    out.print(table)


def plain_lines(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Return heads and rows as aligned lines; an empty cell is ``-``, so that columns can be counted."""
    lines = [list(heads), *([text or "-" for text in row] for row in rows)]
    widths = [max(len(line[place]) for line in lines) for place in range(len(heads))]
    padded = ((text.ljust(width) for text, width in zip(line, widths, strict=True)) for line in lines)
    return [(" " * GAP).join(line).rstrip() for line in padded]


def _width(heads: Sequence[str], rows: Sequence[Sequence[str]], wraps: Sequence[str], left_out: Sequence[str]) -> int:
    """Return the least width at which the columns can be read."""
    total = 0
    for place, head in enumerate(heads):
        if head not in left_out:
            longest = max(len(head), *(len(row[place]) for row in rows), 0)
            total += GAP + (min(longest, WRAPPED_WIDTH_MIN) if head in wraps else longest)
    return total - GAP
