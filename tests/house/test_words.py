"""Docstrings, comments and strings of the code use the words of the field, as documents do; ``words.toml`` lists them.

A quick search of the whole file comes first; only if it finds something are docstrings, comments and strings searched
one by one. Text between backticks or braces does not count: names keep their words.
"""

from __future__ import annotations

import io
import re
import tokenize
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FOLDERS = ("benchmarks", "controller", "infra", "lab", "producers", "regraft", "schemas", "streaming", "tests")
LISTED = tomllib.loads((ROOT / "tests" / "house" / "words.toml").read_text(encoding="utf-8"))
WORDS = {**LISTED["words"], **LISTED["code"]}
# Between two words the line may end, and with it a comment or a string that continues on the next line.
GAP = r"[\s\"'#]+(?:f\")?"
ANY = re.compile("|".join(word.replace(" ", GAP) for word in WORDS), re.IGNORECASE)
NAMES = re.compile(r"`+[^`]*`+|\{[^{}]*\}")
PROSE = {tokenize.STRING, tokenize.COMMENT, getattr(tokenize, "FSTRING_MIDDLE", tokenize.STRING)}


def _sentences(text: str) -> Iterator[str]:
    """Yield docstrings, strings and comments, adjacent ones as one; a string without a space is a name."""
    block: list[str] = []
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type in PROSE:
            if " " in token.string.strip():
                block.append(token.string.lstrip("#rfb").strip("\"'"))
        elif token.type not in (tokenize.NL, tokenize.NEWLINE) and block:
            yield " ".join(block)
            block = []
    yield " ".join(block)


def _found(text: str) -> list[str]:
    if not ANY.search(text):
        return []
    return [
        f"{match[0]!r} ({better}): ...{prose[max(0, match.start() - 30) : match.end() + 30]}..."
        for prose in (re.sub(r"\s+", " ", NAMES.sub("", each)) for each in _sentences(text))
        for word, better in WORDS.items()
        for match in re.finditer(word, prose, re.IGNORECASE)
    ]


@pytest.mark.parametrize("folder", FOLDERS)
def test_code_uses_the_words_of_the_field(folder: str) -> None:
    """Messages, help and docstrings have the same readers as the documents."""
    found = {
        str(path.relative_to(ROOT)): errors
        for path in sorted((ROOT / folder).rglob("*.py"))
        if not path.is_symlink() and path != Path(__file__) and (errors := _found(path.read_text(encoding="utf-8")))
    }
    assert not found


@pytest.mark.parametrize(
    "text",
    [
        '"""Return what the broker tells."""',
        "x = 1  # The loop goes\n# on without it.\n",
        'raise ValueError("the rest is carried "\n    "out later")',
    ],
)
def test_a_listed_word_is_found_across_lines(text: str) -> None:
    assert _found(text)


@pytest.mark.parametrize("text", ['f"plan {told}"', '"""``tells`` is a name."""', "tells = told\n"])
def test_names_may_use_listed_words(text: str) -> None:
    assert not _found(text)
