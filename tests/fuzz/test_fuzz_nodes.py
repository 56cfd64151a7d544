"""Hostile frames, lines, packets, logs and properties: no node ends, no door fails, every input is accounted for."""

import random

import pytest

from tests.fuzz.nodes_under_fuzz import PARTS


@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.parametrize("part", PARTS)
def test_no_input_ends_a_node_or_a_reader(part: str, seed: int) -> None:
    """Used and refused together are what was sent, and something was used; the long run is ``tests.fuzz.run``."""
    counts = PARTS[part](random.Random(seed), 1_500)
    assert counts.total() >= 1_500
    assert min(counts.values()) >= 0
    assert counts["used"] + counts["passed_on"] > 0
