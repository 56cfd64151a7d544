"""The reference pages match the code."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from regraft.cli import app
from regraft.schemas.event import EventKind
from regraft.schemas.plan import Verdict
from regraft.settings.named_tables import planner_models
from regraft.settings.run_settings import section_models
from regraft.settings.settings_environment import OTHER_NAMES, SHORT_NAMES
from regraft.settings.settings_model import SettingsModel
from tests.house.write_reference import EVENTS, EXAMPLES, PAGES, ROOT, VARIABLES, VERDICTS

OFFLINE = (
    "regraft recording tests/regraft/recordings/small.avro",
    "regraft alerts rules regraft/alerts/default_rules.toml tests/regraft/recordings/small.avro",
)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_a_page_is_what_would_be_written(page: Path) -> None:
    """After a change of commands, topics, records, metrics or settings: `python -m tests.house.write_reference`."""
    assert page.read_text(encoding="utf-8") == PAGES[page]()


def test_each_event_and_verdict_is_explained() -> None:
    """In the order in which they are declared."""
    assert list(EVENTS) == list(EventKind)
    assert list(VERDICTS) == list(Verdict)


def test_each_setting_is_explained() -> None:
    """By a sentence of its dataclass with its name in double backticks: otherwise its row only repeats the name."""
    models = {**section_models(), **{f"planners.{name}": model for name, model in planner_models().items()}}
    assert [name for path, model in models.items() for name in _unexplained(path, model())] == []


def _unexplained(path: str, model: SettingsModel) -> Iterator[str]:
    for name, field in type(model).model_fields.items():
        value = getattr(model, name)
        if isinstance(value, SettingsModel):
            yield from _unexplained(f"{path}.{name}", value)
        elif not (field.description or "").strip():
            yield f"{path}.{name}"


def test_each_variable_is_listed() -> None:
    """Those whose names the settings know."""
    assert {*SHORT_NAMES, *OTHER_NAMES} <= VARIABLES.keys()


@pytest.mark.parametrize("call", OFFLINE)
def test_an_example_output_is_that_of_the_command(call: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the commands that need no server; three dots stand for what is left out."""
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.chdir(ROOT)
    text = EXAMPLES.read_text(encoding="utf-8").split(f"$ {call}\n")[1].split("\n$ ")[0]
    printed = [line.rstrip() for line in CliRunner().invoke(app, call.split()[1:]).stdout.splitlines()]
    assert [line for line in text.splitlines() if line != "..." and line not in printed] == []
