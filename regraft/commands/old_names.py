"""The former names of commands, accepted for one release with a line on standard error that gives the new name.

No help or reference lists the former ones, and the commands themselves know only the present ones.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import typer
from typer.core import TyperGroup

if TYPE_CHECKING:
    from typer._click.core import Context

# The first words of a call, and those that take their place; what follows stays.
NEW_NAMES: dict[tuple[str, ...], tuple[str, ...]] = {
    ("emulate",): ("stage", "emulate"),
    ("stream",): ("stage", "stream"),
    ("control",): ("stage", "control"),
    ("alerts", "run"): ("stage", "alerts"),
    ("dashboard", "run"): ("stage", "dashboard"),
    ("node",): ("stage", "node"),
    ("maintain",): ("members", "maintain"),
    ("return",): ("members", "maintain", "--end"),
    ("resume",): ("pause", "--end"),
    ("plans", "show"): ("plans", "list"),
    ("plans", "refuse"): ("plans", "cancel"),
    ("alerts", "test"): ("alerts", "rules"),
    ("dashboard", "revoke"): ("dashboard", "token", "--revoke"),
    ("metrics",): ("list", "metrics"),
}


def with_new_names(words: Sequence[str]) -> list[str]:
    """Return the words of a call by present names; a former name is answered with the present one."""
    for old, new in NEW_NAMES.items():
        if tuple(words[: len(old)]) == old:
            hint = f"`regraft {' '.join(old)}` is now `regraft {' '.join(new)}`"
            typer.echo(f"Warning: {hint}; the old name will be removed in the next release.", err=True)
            return [*new, *words[len(old) :]]
    return list(words)


class RootGroup(TyperGroup):
    """The command line, which accepts former names of commands."""

    def parse_args(self, ctx: Context, args: list[str]) -> list[str]:
        """Parse the words of a call by present names."""
        return super().parse_args(ctx, with_new_names(args))
