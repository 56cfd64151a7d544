"""The reference pages match the code."""

from pathlib import Path

import pytest

from regraft.schemas.event import EventKind
from regraft.schemas.plan import Verdict
from tests.house.write_reference import EVENTS, PAGES, VERDICTS


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_a_page_is_what_would_be_written(page: Path) -> None:
    """After a change of commands, topics, records, metrics or settings: `python -m tests.house.write_reference`."""
    assert page.read_text(encoding="utf-8") == PAGES[page]()


def test_each_event_and_verdict_is_explained() -> None:
    """In the order in which they are declared."""
    assert list(EVENTS) == list(EventKind)
    assert list(VERDICTS) == list(Verdict)
