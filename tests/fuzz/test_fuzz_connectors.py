"""Connectors next to real brokers under hostile clients: they stay open, and each message is passed on or counted."""

import random
from pathlib import Path

import pytest

from tests.fuzz.connectors_under_fuzz import KINDS, feed_connectors
from tests.producers.nodes.connector_kit import needs

pytestmark = pytest.mark.stack


@pytest.mark.parametrize("kind", KINDS)
def test_what_a_client_publishes_is_passed_on_or_counted_at_each_kind_of_broker(kind: str, tmp_path: Path) -> None:
    """A second client of the same broker receives as many; the long run is ``tests.fuzz.run --boundary``."""
    needs(kind)
    counts = feed_connectors(random.Random(1), 600, tmp_path, kind)
    assert min(counts["passed_on"], counts["refused"]) > 50
