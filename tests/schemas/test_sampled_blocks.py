"""All brokers draw the same sample without communicating, and smaller samples are part of larger ones."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from regraft.schemas.bounds import BLOCK_MAX
from regraft.schemas.sampled_blocks import (
    COUNTS_BLOCK_MIN,
    POWER_MAX,
    RUNS,
    SampleRule,
    Sampling,
    rule_of_counts,
    sample_masks,
    share_error,
)

NAMES = st.text(min_size=1, max_size=8)
BLOCKS = st.integers(0, COUNTS_BLOCK_MIN - 1)


@given(NAMES, BLOCKS, st.integers(0, POWER_MAX), st.sampled_from(RUNS), st.integers(0, 1000))
def test_reader_and_broker_agree_and_samples_are_nested(
    publisher: str, block: int, power: int, run: int, seed: int
) -> None:
    """The reader computes by columns what the broker sampled, and a sampled run is in every larger sample."""
    sampling, wider = Sampling(power, 1, seed, run), Sampling(max(power - 1, 0), 1, seed, run)
    found = int(sample_masks(publisher, np.array([block], dtype=np.int64), SampleRule(power, run), seed)[0])
    numbers = range(block * 64, block * 64 + 64)
    assert [bool(found >> place & 1) for place in range(64)] == [sampling.includes(publisher, one) for one in numbers]
    assert all(wider.includes(publisher, one) for one in numbers if sampling.includes(publisher, one))


@pytest.mark.parametrize(("power", "run"), [(1, 64), (3, 64), (3, 4), (5, 16)])
def test_the_share_of_sampled_runs_is_the_configured_one(power: int, run: int) -> None:
    """Of a publisher's first runs that share is in the sample, within five standard deviations."""
    blocks, share = 10_000, 1 / (1 << power)
    count = blocks * 64 // run
    found = int(np.bitwise_count(sample_masks("p", np.arange(blocks), SampleRule(power, run))).sum()) / run
    assert abs(found - count * share) < 5 * (count * share * (1 - share)) ** 0.5


def test_blocks_of_counts_encode_their_rule() -> None:
    """Each block beyond any sequence number encodes a share and a length of runs; other blocks encode none."""
    rules = [SampleRule(power, run) for run in RUNS for power in range(POWER_MAX + 1)]
    blocks = [rule.counts_block for rule in rules]
    assert [rule_of_counts(block) for block in blocks] == rules
    assert sorted(blocks) == list(range(COUNTS_BLOCK_MIN, BLOCK_MAX + 1))
    assert rule_of_counts(COUNTS_BLOCK_MIN - 1) is None


def test_a_share_that_is_not_a_power_of_two_is_refused() -> None:
    """The message names the value and the allowed ones."""
    assert share_error(1.0) == share_error(0.125) == ""
    assert "0.3: 1 for all, or 0.5, 0.25, 0.125" in share_error(0.3)
    assert share_error(0.0)
    with pytest.raises(ValueError, match="halved at most 10 times"):
        Sampling.of(1 / 4096, 5)
