"""Set-up shared by all tests: no settings from the developer's environment, no logging left over from another test."""

import gc
import os
import re
from collections.abc import Generator, Iterator
from pathlib import Path

import pytest
import structlog
from hypothesis import settings

from regraft.infra.local.kafka_server import RunningKafka, start_kafka
from tests.list_skips import list_skips

# A busy machine is not an error: no example fails because it is slow.
settings.register_profile("regraft", deadline=None)
settings.load_profile("regraft")

SPELT = re.compile(r"mark\.(stack|spark)")  # The Makefile searches for this.
SERVERS = {"kafka", "valkey"}  # Fixtures that start one.

# Child processes import this checkout, no matter what is installed or what their working directory contains.
CHECKOUT = str(Path(__file__).parents[1])
os.environ["PYTHONPATH"] = os.pathsep.join([CHECKOUT, *filter(None, [os.environ.get("PYTHONPATH")])])
os.environ["PYTHONSAFEPATH"] = "1"


def pytest_configure(config: pytest.Config) -> None:
    """Make every run list the tests that it skipped."""
    list_skips(config)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Leave modules and tests out of all searches for garbage: they stay, and searching them took a tenth of a run."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


@pytest.fixture(scope="session")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningKafka]:
    """One broker for all tests of a process that have a namespace; no two of them have the same, in whatever file."""
    with start_kafka(tmp_path_factory.mktemp("kafka")) as running:
        yield running


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Refuse marks that `make test` would overlook, as it searches files for them, and servers without a mark."""
    marked = {item.path for item in items if _is_marked(item)}
    hidden = sorted(str(path) for path in marked if not SPELT.search(path.read_text(encoding="utf-8")))
    if hidden:
        raise pytest.UsageError(f"{', '.join(hidden)}: write pytest.mark.stack or pytest.mark.spark in the file itself")
    if unmarked := sorted(item.nodeid for item in items if _starts_server(item) and not _is_marked(item)):
        raise pytest.UsageError(f"{', '.join(unmarked)}: mark it with pytest.mark.stack, as it starts a server")


def _is_marked(item: pytest.Item) -> bool:
    return any(item.get_closest_marker(mark) for mark in ("stack", "spark"))


def _starts_server(item: pytest.Item) -> bool:
    """Return True if a test uses a fixture that starts a server, and not a parameter of that name."""
    parameters = item.callspec.params if hasattr(item, "callspec") else {}
    return not SERVERS.isdisjoint(set(getattr(item, "fixturenames", ())) - set(parameters))


@pytest.fixture(autouse=True)
def no_settings_from_outside(monkeypatch: pytest.MonkeyPatch) -> None:
    """Give every test the default settings: unset all REGRAFT_... variables except those of caches."""
    kept = {"REGRAFT_CACHE", "REGRAFT_IVY_SETTINGS"}
    for name in os.environ:
        if name.startswith("REGRAFT_") and name not in kept:
            monkeypatch.delenv(name)


@pytest.fixture(autouse=True)
def logs_as_at_the_start() -> Iterator[None]:
    """Reset structlog after each test, or a test that configures logging leaves a closed standard error to the next."""
    yield
    structlog.reset_defaults()
