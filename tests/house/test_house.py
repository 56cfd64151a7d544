"""House rules that no linter knows, each with its reason. `make lint` runs them; CONTRIBUTING.md lists them.

Functions and files that exceeded the limits when the rule was introduced are listed in ``sizes.toml``. The list is a
ratchet: an entry may only shrink, and is removed once it meets the limit.
"""

from __future__ import annotations

import ast
import re
import tomllib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PRODUCT = ("controller", "infra", "producers", "regraft", "schemas", "streaming")
CODE = (*PRODUCT, "benchmarks", "lab", "tests")
FUNCTION_LINES_MAX, FILE_LINES_MAX = 40, 400

UNITS = {"ns", "us", "ms", "s", "hz", "bytes", "kb", "mb", "gb"}
AFTER_UNIT = {"from", "to", "min", "max", "mean", "sum", "total", "first", "last", "share", "by", "p50", "p95", "p99"}
AHEAD = {"max", "min", "num", "nr", "avg", "mean"}
NUMBERS = {"int", "float"}
# names chosen by others: a library's keyword, or a paper's symbol
NAMES_OF_OTHERS = {"max_workers", "max_examples"}


def _files(*folders: str) -> Iterator[Path]:
    for folder in folders:
        yield from sorted(path for path in (ROOT / folder).rglob("*.py") if "__pycache__" not in path.parts)


def _tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def test_no_two_files_have_one_name() -> None:
    """A name identifies the file, in a stack trace and in a search."""
    names = Counter(path.name for path in _files(*CODE))
    twice = {name for name, count in names.items() if count > 1}
    assert twice <= {"__init__.py", "__main__.py", "conftest.py"}


@pytest.mark.parametrize("folder", CODE)
def test_packages_are_imported_as_parts_of_regraft(folder: str) -> None:
    """In a checkout ``schemas`` would be found, too, as a copy with its own classes; from the wheel it is not."""
    short = {*PRODUCT, "overlay", "alerts", "dashboard", "experiments"} - {"regraft"}
    found = {
        f"{path.relative_to(ROOT)}: {name}"
        for path in _files(folder)
        for node in ast.walk(_tree(path))
        for name in _imported(node)
        if name.split(".")[0] in short
    }
    assert not found


def _imported(node: ast.AST) -> list[str]:
    if isinstance(node, ast.ImportFrom):
        return [node.module or ""]
    return [each.name for each in node.names] if isinstance(node, ast.Import) else []


def _numbers(tree: ast.Module) -> Iterator[str]:
    """Yield the names of parameters and fields that are annotated as numbers."""
    for node in ast.walk(tree):
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name | ast.Attribute):
            name = node.target.id if isinstance(node.target, ast.Name) else node.target.attr
            annotation: ast.expr | None = node.annotation
        elif isinstance(node, ast.arg):
            name, annotation = node.arg, node.annotation
        else:
            continue
        if annotation is not None and set(re.split(r"[ |]+", ast.unparse(annotation))) & NUMBERS:
            yield name


def _has_unit_last(name: str) -> bool:
    words = name.strip("_").lower().split("_")
    if words[0] in AHEAD:
        return set(words[1:]) <= UNITS | {"per"}  # in a record about a single time: its mean and its largest
    places = [at for at, word in enumerate(words) if word in UNITS and at]
    return not places or all(word in UNITS | AFTER_UNIT | {"per"} for word in words[places[0] :])


@pytest.mark.parametrize("folder", PRODUCT)
def test_units_and_bounds_come_last_in_the_names_of_numbers(folder: str) -> None:
    """``wait_ms_max``, not ``max_wait``: the end of the name shows the reader what is compared."""
    wrong = {
        f"{path.relative_to(ROOT)}: {name}"
        for path in _files(folder)
        for name in _numbers(_tree(path))
        if name not in NAMES_OF_OTHERS and not _has_unit_last(name)
    }
    assert not wrong


@pytest.mark.parametrize(
    ("name", "is_good"),
    [
        ("wait_ms", True),
        ("wait_ms_max", True),
        ("rate_per_s", True),
        ("bytes_per_ms_max", True),
        ("mean_ms", True),
        ("count", True),
        ("max_wait", False),
        ("max_wait_ms", False),
        ("wait_ms_of_all", False),
    ],
)
def test_the_rule_of_units_knows_good_names(name: str, is_good: bool) -> None:
    """The rule itself, by example."""
    assert _has_unit_last(name) is is_good


def test_nothing_is_left_to_do() -> None:
    """Work to do belongs in an issue: nobody finds it in the code."""
    marks = re.compile(r"\b(TO" + r"DO|FIX" + r"ME|XX" + r"X)\b")
    found = [
        f"{path.relative_to(ROOT)}:{number}"
        for path in _files(*CODE)
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1)
        if marks.search(line)
    ]
    assert not found


def test_no_result_is_called_after_nothing() -> None:
    """A result has the name of what it is: a reader of ``known`` or ``found`` has to look up what was."""
    empty, pairs = {"found", "known", "one"}, {"other", "two"}
    named = []
    for path in _files(*PRODUCT):
        functions = [node for node in ast.walk(_tree(path)) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
        for node in {inner for function in functions for inner in ast.walk(function)}:
            if isinstance(node, ast.Assign | ast.AnnAssign | ast.NamedExpr):
                target = node.targets[0] if isinstance(node, ast.Assign) else node.target
                names = {
                    one.id for one in ast.walk(target) if isinstance(one, ast.Name) and isinstance(one.ctx, ast.Store)
                }
                if names & empty and not names & pairs:
                    named.append(f"{path.relative_to(ROOT)}:{node.lineno}")
    assert not named


def _only_passes_on(tree: ast.Module) -> bool:
    body = [node for node in tree.body if not (isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant))]
    names = {"__all__"}
    return bool(body) and all(
        isinstance(node, ast.Import | ast.ImportFrom)
        or (isinstance(node, ast.Assign) and {getattr(target, "id", "") for target in node.targets} <= names)
        for node in body
    )


def test_no_module_only_reexports_names() -> None:
    """There is one way to import a name: from where it is defined."""
    found = [str(path.relative_to(ROOT)) for path in _files(*PRODUCT) if _only_passes_on(_tree(path))]
    found = [path for path in found if not path.startswith("regraft/api/")]  # The public face: names for others.
    assert not found


def test_programs_start_behind_all_that_they_define() -> None:
    """A module that runs as a program has not yet defined what follows its start; imported, it has."""
    found = [
        str(path.relative_to(ROOT))
        for path in _files(*CODE)
        for node in _tree(path).body[:-1]
        if isinstance(node, ast.If) and "__name__" in ast.unparse(node.test)
    ]
    assert not found


def _code_lines(node: ast.AST, lines: list[str]) -> int:
    """Return the number of lines of code: not docstring, comment or blank."""
    first, last = node.lineno, node.end_lineno or node.lineno  # type: ignore[attr-defined]
    skipped: set[int] = set()
    for inner in ast.walk(node):
        if isinstance(inner, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) and ast.get_docstring(inner):
            text = inner.body[0]
            skipped |= set(range(text.lineno, (text.end_lineno or text.lineno) + 1))
    shown = range(first, last + 1)
    return sum(
        at not in skipped and bool(lines[at - 1].strip()) and not lines[at - 1].lstrip().startswith("#") for at in shown
    )


def _long_ones() -> dict[str, int]:
    found: dict[str, int] = {}
    for path in _files(*PRODUCT):
        text = path.read_text(encoding="utf-8")
        lines, name = text.splitlines(), str(path.relative_to(ROOT))
        if len(lines) > FILE_LINES_MAX:
            found[name] = len(lines)
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                count = _code_lines(node, lines)
                if count > FUNCTION_LINES_MAX:
                    found[f"{name}::{node.name}"] = count
    return found


def test_functions_and_files_stay_short() -> None:
    """At most 40 lines of code per function and 400 lines per file, or the length that ``sizes.toml`` still allows."""
    allowed = tomllib.loads((ROOT / "tests" / "house" / "sizes.toml").read_text(encoding="utf-8"))["sizes"]
    found = _long_ones()
    longer = {name: count for name, count in found.items() if count > allowed.get(name, 0)}
    assert not longer, f"longer than the aim, or than before: {longer}"
    shorter = {name: (count, found.get(name)) for name, count in allowed.items() if found.get(name, 0) < count}
    assert not shorter, f"shorter than sizes.toml allows, note the smaller size or take the line out: {shorter}"


LOG_CALLS = {"debug", "info", "warning", "error", "exception", "critical"}


def _log_events(tree: ast.Module) -> Iterator[ast.expr]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in LOG_CALLS:
            of = node.func.value
            if isinstance(of, ast.Name) and of.id == "log" and node.args:
                yield node.args[0]


def test_log_events_have_names_not_sentences() -> None:
    """``plan_started`` with values next to it can be searched, counted and alerted on; a sentence cannot."""
    found = [
        f"{path.relative_to(ROOT)}: {event.value}"
        for path in _files(*PRODUCT, "lab")
        for event in _log_events(_tree(path))
        if isinstance(event, ast.Constant) and not re.fullmatch(r"[a-z][a-z0-9_]*", str(event.value))
    ]
    assert not found


REACHES_IN = "regraft/overlay/derived_values.py"  # The one module that writes into an object's __dict__.


def _reached(node: ast.AST) -> str:
    """Return how a node reads or writes attributes by their names as strings, empty if it does not."""
    if not isinstance(node, ast.Attribute):
        return ""
    if node.attr == "__dict__":
        return "__dict__"
    is_of_object = isinstance(node.value, ast.Name) and node.value.id == "object"
    return "object.__setattr__" if is_of_object and node.attr == "__setattr__" else ""


def test_no_cache_is_filled_by_name() -> None:
    """A name in a string outlives the attribute: the cache stays empty, and no test sees it. See derived_values."""
    found = {
        f"{path.relative_to(ROOT)}: {way}"
        for path in _files(*PRODUCT, "lab/regraft_lab")
        if str(path.relative_to(ROOT)) != REACHES_IN
        for node in ast.walk(_tree(path))
        if (way := _reached(node))
    }
    assert not found
