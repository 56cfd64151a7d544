"""What readers follow is valid: links between documents, and the commands that documents show."""

from __future__ import annotations

import re
import shlex
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest
import typer
from typer.exceptions import TyperException

from regraft.cli import app

ROOT = Path(__file__).parents[2]
PAGES = ("*.md", "docs/*.md", "lab/README.md", "lab/regraft_lab/*/*.md")
DOCUMENTS = sorted(path for pattern in PAGES for path in ROOT.glob(pattern))
FENCED = re.compile(r"^```[a-z]*\n(.*?)^```", re.DOTALL | re.MULTILINE)
COUNTED = (*(path for path in ROOT.glob("*.md") if path.name != "CODE_OF_CONDUCT.md"), *sorted(ROOT.glob("docs/*.md")))
LINK = re.compile(r"\]\(([^)\s]+)\)")
README_LINES_MAX = 120
WORDS_MAX = 35_000
WORDS = tomllib.loads((ROOT / "tests" / "house" / "words.toml").read_text(encoding="utf-8"))["words"]


def _id(path: Path) -> str:
    return str(path.relative_to(ROOT))


def _anchors(text: str) -> set[str]:
    """Return the anchors of the headings, as GitHub generates them."""
    headings = re.findall(r"^#+ (.*)$", FENCED.sub("", text), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def _commands(text: str) -> Iterator[str]:
    """Yield the calls of regraft in fenced blocks, continued lines joined, without comments."""
    for block in FENCED.findall(text):
        for line in block.replace("\\\n", " ").splitlines():
            call = re.match(r"(?:\S*/)?regraft (?!-->)(.*)", line.strip())
            if call and "$" not in call[1]:
                yield call[1]


def _parse(arguments: list[str]) -> None:
    """Parse a call as the command line does, without running it."""
    command = typer.main.get_command(app)
    while isinstance(command, typer.core.TyperGroup) and arguments and not arguments[0].startswith("-"):
        named = command.commands.get(arguments[0])
        if named is None:
            raise typer.BadParameter(f"there is no command {arguments[0]}")
        command, arguments = named, arguments[1:]
    command.make_context("regraft", arguments)


@pytest.mark.parametrize("path", DOCUMENTS, ids=_id)
def test_links_lead_to_existing_files_and_headings(path: Path) -> None:
    broken = []
    for target in LINK.findall(path.read_text(encoding="utf-8")):
        if re.match(r"[a-z]+:", target):
            continue
        name, _, anchor = target.partition("#")
        file = (path.parent / name).resolve() if name else path
        if not file.exists() or (anchor and anchor not in _anchors(file.read_text(encoding="utf-8"))):
            broken.append(target)
    assert not broken


@pytest.mark.parametrize("path", DOCUMENTS, ids=_id)
def test_commands_in_documents_exist(path: Path) -> None:
    wrong = []
    for call in _commands(path.read_text(encoding="utf-8")):
        try:
            _parse(shlex.split(call, comments=True))
        except typer.Exit:
            pass
        except TyperException as error:
            wrong.append(f"regraft {call}: {error}")
    assert not wrong


@pytest.mark.parametrize("call", ["no-such-command", "demo --no-such-flag", "plans approve"])
def test_a_wrong_command_would_be_found(call: str) -> None:
    with pytest.raises(TyperException):
        _parse(shlex.split(call))


@pytest.mark.parametrize("path", DOCUMENTS, ids=_id)
def test_documents_use_the_words_of_the_field(path: Path) -> None:
    """A reader from the field knows the words; quotations and code, between backticks or fences, keep theirs."""
    text = re.sub(r"`[^`\n]*`", "", FENCED.sub("", path.read_text(encoding="utf-8")))
    found = [
        f"{match[0]!r} ({better}): ...{text[max(0, match.start() - 30) : match.end() + 30]}..."
        for word, better in WORDS.items()
        for match in re.finditer(word, text, re.IGNORECASE)
    ]
    assert not found


def test_the_readme_stays_a_front_page() -> None:
    assert len((ROOT / "README.md").read_text(encoding="utf-8").splitlines()) <= README_LINES_MAX


def test_the_documents_stay_short() -> None:
    """A reader needs three hours for 35,000 words: what is new replaces something old."""
    counts = {_id(path): len(path.read_text(encoding="utf-8").split()) for path in COUNTED}
    largest = sorted(counts.items(), key=lambda item: -item[1])[:5]
    assert sum(counts.values()) <= WORDS_MAX, f"cut {sum(counts.values()) - WORDS_MAX} words; the longest: {largest}"
