"""The documented order of upgrades is the one that the table of topics requires."""

import re
from pathlib import Path

from regraft.schemas.topics import DEAD_LETTERS, TOPICS, Role

TEXT = (Path(__file__).parents[2] / "docs" / "upgrades.md").read_text(encoding="utf-8")
PART = TEXT.split("## The order\n")[1].split("\n## ")[0]
STEPS = [re.findall(r"`([a-z]+)`", line) for line in re.findall(r"^\d\. (.*)$", PART, re.MULTILINE)]
STEP_OF = {role: step for step, roles in enumerate(STEPS) for role in roles}


def older_readers() -> set[tuple[str, str]]:
    """Return each topic and reader that the document allows to be older than the writers."""
    found = set()
    for topics, reader in re.findall(r"^- (.*?) to `([a-z]+)`:", PART, re.MULTILINE):
        found |= {(topic, reader) for topic in re.split(r", | and ", topics)}
    return found


def test_every_role_has_one_step() -> None:
    """Every role in the table of topics is upgraded exactly once."""
    assert sorted(role for step in STEPS for role in step) == sorted(role.value for role in Role)


def test_readers_are_upgraded_before_writers_except_those_documented() -> None:
    """A reader may be older than a writer only if the document says what happens."""
    late = {
        (topic.suffix, reader.value)
        for topic in TOPICS
        for reader in topic.readers
        for writer in topic.writers
        if STEP_OF[reader.value] > STEP_OF[writer.value]
    }
    assert late == older_readers()


def test_the_reader_of_dead_letters_is_upgraded_first() -> None:
    """It must be able to read the dead letters of all to report a wrong order."""
    assert Role.ALERTS in DEAD_LETTERS.readers
    assert STEP_OF[Role.ALERTS.value] == 0
