"""How many commands there are, and that former names of commands lead to the present ones."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.main import get_command
from typer.testing import CliRunner

from regraft.cli import app
from regraft.commands.old_names import NEW_NAMES, with_new_names
from regraft.commands.stage_command import StageName

RUNNER = CliRunner()
ROOT = Path(__file__).parents[2]
PACKAGES = ("regraft", "controller", "producers", "schemas", "streaming")
READ = {".": "*", **dict.fromkeys(("docs", "lab", "infra", "benchmarks", "tests", *PACKAGES), "**/*")}
TEXTS = {".md", ".py", ".js", ".toml", ".yml", ".yaml", ".service", ".conf"}
EXEMPT = {"CHANGELOG.md", "test_old_names.py"}
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


@pytest.mark.parametrize("old", list(NEW_NAMES), ids=" ".join)
def test_a_former_name_leads_to_a_present_command(old: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    """All that follows stays; one line on standard error gives the new name."""
    called = with_new_names([*old, "--settings", "a.toml"])
    assert called == [*NEW_NAMES[old], "--settings", "a.toml"]
    assert old not in list(shown_commands(get_command(app)))
    assert RUNNER.invoke(app, [*NEW_NAMES[old], "--help"]).exit_code == 0
    (line,) = capsys.readouterr().err.splitlines()
    assert f"`regraft {' '.join(old)}` is now `regraft {' '.join(NEW_NAMES[old])}`" in line


def test_a_call_by_a_former_name_does_the_same(tmp_path: Path) -> None:
    """The warning is not in the output that scripts read."""
    where = ["--set", f"run.directory={tmp_path}"]
    former, present = (RUNNER.invoke(app, [*words, *where]) for words in (["control"], ["stage", "control"]))
    assert str(former.exception) == str(present.exception)
    assert (former.stdout, former.exit_code) == (present.stdout, present.exit_code)
    assert former.stderr.startswith("Warning: `regraft control` is now `regraft stage control`; ")
    assert present.stderr == ""


def test_nothing_of_this_repository_uses_a_former_name() -> None:
    """Who follows a document, a message or a manifest gets no warning."""
    between = r"[\s\"',]+"  # Also in a list of words, and over the end of a line.
    names = "|".join(between.join(old) for old in NEW_NAMES)
    former = re.compile(rf"\bregraft{between}(?:{names})\b(?![.-])")
    paths = [path for folder in READ for path in (ROOT / folder).glob(READ[folder]) if path.suffix in TEXTS]
    found = {
        f"{path.relative_to(ROOT)}: {match[0]}"
        for path in paths
        if path.is_file() and path.name not in EXEMPT
        for match in former.finditer(path.read_text(encoding="utf-8"))
    }
    assert len(paths) > 1_000
    assert not found


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
