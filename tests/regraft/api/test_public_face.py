"""What others build on: the names on the pages of ``regraft.api``, and that lab and documents need no other."""

import ast
import re
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
PAGES = sorted(path.stem for path in (ROOT / "regraft" / "api").glob("*.py") if path.stem != "__init__")
LISTED = Path(__file__).with_name("public_names.txt").read_text(encoding="utf-8").splitlines()
DOCUMENTS = ("docs/tutorial.md", "docs/recordings.md", "docs/kinds.md", "CONTRIBUTING.md")
OTHERS = [path for path in sorted((ROOT / "lab").rglob("*.py")) if path.is_relative_to(ROOT / "lab" / "regraft_lab")]
IMPORTED = re.compile(r"^\s*(?:from|import) (regraft\.\w+)", re.MULTILINE)


def test_no_public_name_goes_without_notice() -> None:
    """A name that goes or comes is a change to ``public_names.txt`` and a line in the changelog."""
    assert [f"{page}.{name}" for page in PAGES for name in import_module(f"regraft.api.{page}").__all__] == LISTED


@pytest.mark.parametrize("page", PAGES)
def test_a_page_lists_all_that_it_imports(page: str) -> None:
    """Nothing is public by accident."""
    tree = ast.parse((ROOT / "regraft" / "api" / f"{page}.py").read_text(encoding="utf-8"))
    names = {each.asname or each.name for node in tree.body if isinstance(node, ast.ImportFrom) for each in node.names}
    assert names == set(import_module(f"regraft.api.{page}").__all__)


@pytest.mark.parametrize("path", OTHERS, ids=lambda path: str(path.relative_to(ROOT)))
def test_the_lab_builds_on_the_public_face(path: Path) -> None:
    """It is a package of others, as far as imports go."""
    assert set(IMPORTED.findall(path.read_text(encoding="utf-8"))) <= {"regraft.api"}


@pytest.mark.parametrize("name", DOCUMENTS)
def test_examples_build_on_the_public_face(name: str) -> None:
    """What a reader copies keeps working."""
    blocks = re.findall(r"^```python\n(.*?)^```", (ROOT / name).read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)
    assert {found for block in blocks for found in IMPORTED.findall(block)} <= {"regraft.api"}


def test_no_page_loads_a_client_of_a_server() -> None:
    """A planner's author needs neither Spark nor Kafka nor Valkey."""
    pages = ", ".join(f"regraft.api.{page}" for page in PAGES)
    loaded = (
        f"import sys, {pages}; print([name for name in ('pyspark', 'confluent_kafka', 'redis') if name in sys.modules])"
    )
    answer = subprocess.run([sys.executable, "-c", loaded], cwd=ROOT, capture_output=True, text=True, check=True)
    assert answer.stdout.strip() == "[]"
