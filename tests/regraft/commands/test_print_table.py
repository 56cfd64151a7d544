"""Tables of commands, on terminals of any width and where they are piped."""

import io

import pytest
from rich.console import Console
from rich.table import Table

from regraft.commands.print_table import print_table, table_console

HEADS = ("principal", "order", "why", "from")
ROWS = [
    ("User:regraft-streaming", "not_answered", "a reason of more words than a terminal has room for", "ana@east"),
    ("User:[red]b", "", "short", ""),
]


def printed(width: int, *, is_terminal: bool) -> list[str]:
    out = io.StringIO()
    console = Console(file=out, width=width, force_terminal=is_terminal, color_system=None)
    print_table(HEADS, ROWS, wraps=["why"], drops=["from", "why"], console=console)
    return out.getvalue().splitlines()


def test_a_piped_table_has_one_line_a_row_at_any_width() -> None:
    """Each row is found whole by grep, and a column by its number: empty cells are a dash."""
    lines = printed(20, is_terminal=False)
    assert len(lines) == 3
    for line, row in zip(lines[1:], ROWS, strict=True):
        assert [part.strip() for part in line.split("  ") if part.strip()] == [text or "-" for text in row]


@pytest.mark.parametrize(("width", "heads"), [(120, HEADS), (66, HEADS[:3]), (44, HEADS[:2])])
def test_a_narrow_terminal_leaves_columns_out(width: int, heads: tuple[str, ...]) -> None:
    """Names are never broken: the columns that matter least go first."""
    lines = printed(width, is_terminal=True)
    assert lines[0].split() == list(heads)
    assert any("User:regraft-streaming  not_answered" in line for line in lines)
    assert any("User:[red]b" in line for line in lines)


def test_a_piped_table_of_figures_keeps_its_rows_whole(capsys: pytest.CaptureFixture[str]) -> None:
    """The names of joined planners are longer than the 80 columns that are assumed where there is no terminal."""
    table = Table(box=None, pad_edge=False, show_header=False)
    table.add_column(overflow="fold")
    table.add_row("swap_links_cost+" * 8)
    table_console().print(table)
    assert capsys.readouterr().out.split() == ["swap_links_cost+" * 8]


@pytest.mark.parametrize("is_terminal", [False, True])
def test_a_cell_controls_no_terminal(is_terminal: bool) -> None:
    out = io.StringIO()
    console = Console(file=out, width=80, force_terminal=is_terminal, color_system=None)
    print_table(["reason"], [["a\x1b[2Jb\u202e\x9b"]], console=console)
    assert "a [2Jb" in out.getvalue()
    assert not set(out.getvalue()) & set("\x1b\u202e\x9b")
