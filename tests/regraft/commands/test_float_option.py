"""That no option takes a number that is none."""

import inspect
import typing
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from regraft.cli import app
from tests.regraft.run_every_command import commands

RUNNER = CliRunner()


def float_options(command: Any) -> list[Any]:
    """Return the options of a command that take a float."""
    hints = typing.get_type_hints(inspect.unwrap(command.callback))
    return [each for each in command.params if float in (hints.get(each.name), *typing.get_args(hints.get(each.name)))]


FLOATS = {
    (*path, option.opts[0]): command
    for path, command in commands(typer.main.get_command(app))
    for option in float_options(command)
}


def test_some_options_take_floats() -> None:
    """Else the next test would check nothing."""
    assert {("record", "--duration"), ("plans", "approve", "--wait")} <= FLOATS.keys()


@pytest.mark.parametrize("number", ["nan", "inf", "-inf"])
@pytest.mark.parametrize("words", FLOATS, ids=" ".join)
def test_an_option_refuses_what_is_no_finite_number(words: tuple[str, ...], number: str) -> None:
    """`--duration nan` is neither above nor below the time that has passed: it ran until stopped."""
    needed = [each for each in FLOATS[words].params if each.required]
    given = [word for each in needed for word in ([each.opts[0]] if each.opts[0][0] == "-" else []) + ["a"]]
    answer = RUNNER.invoke(app, [*words[:-1], *given, words[-1], number])
    assert answer.exit_code == 2
    assert f"Invalid value for '{words[-1]}'" in answer.stderr
