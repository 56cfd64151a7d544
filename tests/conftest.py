"""What all tests share: no settings from the developer's own environment, no log left over from another test."""

import os
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import structlog
from hypothesis import settings

from tests.list_skips import list_skips

# A busy machine is not a fault: no example fails by how long it takes.
settings.register_profile("regraft", deadline=None)
settings.load_profile("regraft")

SPELT = re.compile(r"mark\.(stack|spark)")  # What the Makefile searches for.

# Child processes import this checkout, whatever is installed and whatever the directory that they run in holds.
CHECKOUT = str(Path(__file__).parents[1])
os.environ["PYTHONPATH"] = os.pathsep.join([CHECKOUT, *filter(None, [os.environ.get("PYTHONPATH")])])
os.environ["PYTHONSAFEPATH"] = "1"


def pytest_configure(config: pytest.Config) -> None:
    """Let every run say what it skipped."""
    list_skips(config)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Refuse marks that `make test` would overlook: it looks for tests with servers in files that spell their mark."""
    marked = {item.path for item in items if any(item.get_closest_marker(mark) for mark in ("stack", "spark"))}
    hidden = sorted(str(path) for path in marked if not SPELT.search(path.read_text(encoding="utf-8")))
    if hidden:
        raise pytest.UsageError(f"{', '.join(hidden)}: write pytest.mark.stack or pytest.mark.spark in the file itself")


@pytest.fixture(autouse=True)
def no_settings_from_outside(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tests see the defaults, whatever REGRAFT_... variables are set outside; caches stay where they are."""
    kept = {"REGRAFT_CACHE", "REGRAFT_IVY_SETTINGS"}
    for name in os.environ:
        if name.startswith("REGRAFT_") and name not in kept:
            monkeypatch.delenv(name)


@pytest.fixture(autouse=True)
def logs_as_at_the_start() -> Iterator[None]:
    """A test that lets the program configure its logs does not leave the next one with a closed standard error."""
    yield
    structlog.reset_defaults()
