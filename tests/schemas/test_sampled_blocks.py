"""All brokers have the same sample without asking each other, smaller samples lie within larger ones."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from regraft.schemas.bounds import BLOCK_MAX
from regraft.schemas.sampled_blocks import COUNTS_BLOCK_MIN, Sampling, power_of_counts, sampling_faults, taken

NAMES = st.text(min_size=1, max_size=8)
BLOCKS = st.integers(0, COUNTS_BLOCK_MIN - 1)


@given(NAMES, BLOCKS, st.integers(0, 10), st.integers(0, 1000))
def test_reader_and_broker_agree_and_samples_are_nested(publisher: str, block: int, power: int, seed: int) -> None:
    """What the reader finds by columns is what the broker took, and a block of a share is in every larger one."""
    found = Sampling(power, 1, seed).takes(publisher, block)
    assert bool(taken(publisher, np.array([block], dtype=np.int64), power, seed)[0]) == found
    if found and power:
        assert Sampling(power - 1, 1, seed).takes(publisher, block)


@pytest.mark.parametrize("power", [1, 3, 5])
def test_share_of_blocks_is_as_told(power: int) -> None:
    """Of the first 100,000 blocks of a publisher that share is in the sample, to within five standard deviations."""
    count, share = 100_000, 1 / (1 << power)
    found = int(taken("p", np.arange(count), power).sum())
    assert abs(found - count * share) < 5 * (count * share * (1 - share)) ** 0.5


def test_counts_cells_tell_their_share() -> None:
    """The blocks beyond any sequence number stand for shares, the others for none."""
    assert [power_of_counts(BLOCK_MAX - power) for power in range(11)] == list(range(11))
    assert power_of_counts(COUNTS_BLOCK_MIN - 1) is None


def test_share_that_is_no_power_of_two_is_refused() -> None:
    """The sentence names the value and what may be set."""
    assert sampling_faults(1.0, 5) == sampling_faults(0.125, 1) == []
    assert "0.3: 1 for all, or 0.5, 0.25, 0.125" in sampling_faults(0.3, 5)[0]
    assert len(sampling_faults(0.0, 0)) == 2
    with pytest.raises(ValueError, match="halved at most 10 times"):
        Sampling.of(1 / 4096, 5)
