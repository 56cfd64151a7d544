"""Names use one word for each thing; ``names.toml`` lists the words that are settled, and what may still differ."""

from __future__ import annotations

import ast
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PRODUCT = ("benchmarks", "controller", "infra", "producers", "regraft", "schemas", "streaming")
FOLDERS = (*PRODUCT, "lab/benchmarks", "lab/regraft_lab")
LISTED = tomllib.loads((ROOT / "tests" / "house" / "names.toml").read_text(encoding="utf-8"))
WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")


def _files(folders: tuple[str, ...]) -> Iterator[Path]:
    for folder in folders:
        for path in sorted((ROOT / folder).rglob("*.py")):
            if not any((ROOT / part).is_symlink() for part in path.relative_to(ROOT).parents if str(part) != "."):
                yield path


def _names(tree: ast.AST) -> Iterator[str]:
    """Yield the names that a module gives: of classes, functions, arguments, variables and attributes."""
    for node in ast.walk(tree):
        match node:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                yield name
            case ast.arg(arg=name) | ast.Name(id=name, ctx=ast.Store()) | ast.Attribute(attr=name, ctx=ast.Store()):
                yield name


def _words(name: str) -> set[str]:
    return {word.lower() for word in WORD.findall(name)}


def test_retired_words_are_in_no_name() -> None:
    """A word that gave way to another is only in the files listed with it, and in each of these."""
    used: dict[str, set[str]] = {word: set() for word in LISTED["retired"]}
    for path in _files(FOLDERS):
        names = {path.stem, *_names(ast.parse(path.read_text(encoding="utf-8")))}
        for word in set().union(*map(_words, names)) & used.keys():
            used[word].add(path.relative_to(ROOT).as_posix())
    assert used == {word: set(entry["files"]) for word, entry in LISTED["retired"].items()}


def test_no_variable_is_called_found() -> None:
    """The name of a result says what it is."""
    using = [
        path.relative_to(ROOT).as_posix()
        for path in _files(FOLDERS)
        for function in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef)
        if any(isinstance(node, ast.Name) and node.id == "found" for node in ast.walk(function))
    ]
    assert not using


@pytest.mark.parametrize("word", LISTED["modules"])
def test_a_word_has_one_meaning_in_names_of_modules(word: str) -> None:
    """Every module of the product that has the word in its name is listed with the one meaning that it has there."""
    named = {
        path.relative_to(ROOT).as_posix() for path in _files(PRODUCT) if {word, f"{word}s"} & set(path.stem.split("_"))
    }
    entry = LISTED["modules"][word]
    assert named == set(entry["files"]), f"{word} means: {entry['meaning']}"
