"""Numbers and tables as HTML, for sections of the report; colours in light and dark, and drawings that follow them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

INK = "#000000"
SOFT = "#555555"
LINE = "#dddddd"
PAPER = "#ffffff"
LOAD = "#0b4f8a"
_VARIABLES = {INK: "var(--ink)", SOFT: "var(--soft)", LINE: "var(--line)", PAPER: "var(--page)", LOAD: "var(--load)"}

THEME_CSS = """:root { color-scheme: light dark; --ink: #1b1b1b; --soft: #555; --page: #fff; --line: #ddd;
  --good: #e8f4f1; --bad: #fdecea; --load: #0b4f8a; }
@media (prefers-color-scheme: dark) { :root { --ink: #e6e6e6; --soft: #a8a8a8; --page: #16181b; --line: #3a3d42;
  --good: #12302b; --bad: #3d1a18; --load: #8cc8ff; } }
body { color: var(--ink); background: var(--page); }
svg { width: 100%; height: auto; } svg text { fill: var(--ink); }"""


class Markup(str):
    """Text that is already HTML."""

    __slots__ = ()


def html_table(heads: Sequence[str], rows: Iterable[Sequence[str]], *, text: int = 1, numbers: int = 0) -> str:
    """Return a table whose first ``text`` columns hold text and the others numbers.

    If ``numbers`` is given, only the first ``numbers`` columns hold numbers.
    """

    def css(column: int) -> str:
        is_number = column < numbers if numbers else column >= text
        return ' class="number"' if is_number else ""

    head = "".join(f'<th scope="col"{css(column)}>{escape(name)}</th>' for column, name in enumerate(heads))
    body = "".join(
        "<tr>" + "".join(f"<td{css(column)}>{_html(cell)}</td>" for column, cell in enumerate(row)) + "</tr>"
        for row in rows
    )
    return f'<div class="scroll"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>'


def known_text(cost_per_s: float | None) -> str:
    """Return a cost with one decimal, empty if unknown."""
    return "" if cost_per_s is None else number_text(cost_per_s, 1)


def number_text(value: float, digits: int = 0) -> str:
    """Return a number with ``digits`` decimals and commas between thousands."""
    return f"{value:,.{digits}f}"


def times_text(count: int) -> str:
    """Return how often something happened, in words."""
    return "once" if count == 1 else f"{count} times"


def _html(cell: str) -> str:
    return cell if isinstance(cell, Markup) else escape(cell)


def follow_theme(svg: str) -> str:
    """Return a drawing that takes its ink and paper colours from the page; other colours stay."""
    for colour, variable in _VARIABLES.items():
        svg = svg.replace(colour, variable)
    return svg
