"""How many commands there are, and that all that is named exists."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.main import get_command
from typer.testing import CliRunner

from regraft.cli import app
from regraft.commands.stage_command import StageName

RUNNER = CliRunner()
ROOT = Path(__file__).parents[2]
PACKAGES = ("regraft", "controller", "producers", "schemas", "streaming")
READ = {".": "*", **dict.fromkeys(("docs", "lab", "infra", "benchmarks", "tests", *PACKAGES), "**/*")}
TEXTS = {".md", ".py", ".js", ".toml", ".yml", ".yaml", ".service", ".conf"}
COMMANDS_MAX = 37  # It only shrinks.


def shown_commands(group: object, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """Yield the words of each command that help lists."""
    for name, command in group.commands.items():  # type: ignore[attr-defined]
        if hasattr(command, "commands"):
            yield from shown_commands(command, (*path, name))
        elif not command.hidden:
            yield *path, name


def test_there_are_few_commands() -> None:
    """An operator can know them: what another command can do with an option needs no further one."""
    found = list(shown_commands(get_command(app)))
    assert len(found) <= COMMANDS_MAX, found


@pytest.mark.parametrize(
    "words", [["control"], ["node", "--broker", "b01"], ["plans", "refuse", "plan-1"], ["reproduce", "psoop"]]
)
def test_a_former_name_is_an_unknown_command(words: list[str]) -> None:
    """Nothing runs, and the answer names the command that does not exist."""
    answer = RUNNER.invoke(app, words)
    name = next(word for word in words if word != "plans")
    assert (answer.exit_code, answer.stdout) == (2, "")
    assert f"No such command '{name}'" in answer.stderr


def test_every_command_that_this_repository_names_exists() -> None:
    """Also in messages, docstrings, manifests and rules, not only in documents."""
    groups = {path[:length] for path in shown_commands(get_command(app)) for length in range(1, len(path) + 1)}
    called = re.compile(r"`regraft ([a-z]+)(?: ([a-z]+))?")
    paths = [path for folder in READ for path in (ROOT / folder).glob(READ[folder]) if path.suffix in TEXTS]
    named = {
        (f"{path.relative_to(ROOT)}: {match[0]}", (match[1], match[2]))
        for path in paths
        if path.is_file() and path.name != "CHANGELOG.md"
        for match in called.finditer(path.read_text(encoding="utf-8"))
    }
    has_inner = {path[:1] for path in groups if len(path) > 1}
    wrong = [
        text
        for text, words in named
        if words[:1] not in groups or (words[1] and words[:1] in has_inner and words not in groups)
    ]
    assert len(paths) > 1_000
    assert len(named) > 100
    assert not wrong


@pytest.mark.parametrize(
    ("words", "of"),
    [
        (["stream", "--act"], "--dry-run/--act is of the stage control, not of stream"),
        (["alerts", "--emulate"], "--emulate is of the stage stream and control, not of alerts"),
        (["control", "--broker", "b01"], "--broker is of the stage node, not of control"),
        (["node", "--shadow", "swap_links_ci"], "--shadow is of the stage control, not of node"),
    ],
)
def test_an_option_of_another_stage_is_refused(words: list[str], of: str) -> None:
    """It would change nothing, which nobody would notice."""
    answer = RUNNER.invoke(app, ["stage", *words], env={"COLUMNS": "200", "TERMINAL_WIDTH": "200"})
    assert answer.exit_code == 2
    assert of in answer.stderr


@pytest.mark.parametrize("name", StageName)
def test_the_help_says_what_each_stage_does(name: StageName) -> None:
    """There is one page for all of them."""
    assert f"• {name}" in RUNNER.invoke(app, ["stage", "--help"]).stdout
