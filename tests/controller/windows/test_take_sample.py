"""From a sample the controller computes unbiased costs and exact hand-overs, whatever share each broker reports."""

import random
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from regraft.controller.windows.take_sample import take_sample
from regraft.overlay.inventory.inventory import Inventory
from regraft.overlay.sets.delivery_sets import DeliverySets, MaskCells
from regraft.overlay.sets.time_slices import time_slices
from regraft.overlay.tree.overlay_cost import overlay_cost
from regraft.overlay.tree.tree_configuration import TreeConfiguration
from regraft.schemas.sampled_blocks import FULL, RUNS, SampleRule, Sampling
from tests.controller.windows.sampled_traffic import batches_of, draw_traffic, window_of_batches

SEEDS = st.integers(0, 1 << 30)


@settings(max_examples=40, deadline=None)
@given(SEEDS, st.integers(1, 4), st.integers(0, 2), st.sampled_from(RUNS), st.sampled_from(RUNS))
def test_window_has_the_least_sample_and_all_hand_overs(
    seed: int, power: int, wider_by: int, run: int, other: int
) -> None:
    """Brokers with different shares are cut to the smallest one's runs; those bits and all hand-overs are complete.

    Of samples with different runs, what is in both counts. Batches that are repeated or reordered change nothing.
    """
    rng = random.Random(seed)
    traffic = draw_traffic(rng, brokers=6, publishers=5, count_max=60, gain=7)
    full = window_of_batches(batches_of(traffic, lambda _: FULL), traffic.brokers)
    least = rng.choice([one.home for one, _ in traffic.notifications])
    rules = [SampleRule(power, run), SampleRule(max(power - wider_by, 0), other)]
    mine, others = (Sampling(rule.power, 5, run=rule.run) for rule in rules)
    batches = batches_of(traffic, lambda broker: mine if broker == least else others)
    mixed = batches + rng.sample(batches, len(batches) // 2)
    rng.shuffle(mixed)
    found = window_of_batches(mixed, traffic.brokers)
    effective = rules if any({one.home, *handed} - {least} for one, handed in traffic.notifications) else rules[:1]
    assert found.sets.share == 1 / (1 << sum(dict(sorted((rule.run, rule.power) for rule in effective)).values()))
    in_all = np.array([_in_all(effective, *column) for column in full.sets.columns], dtype=np.uint64)
    assert _cells(found.sets) == _cells(replace(full.sets, words=full.sets.words & in_all))
    assert found.local_deliveries == full.local_deliveries
    assert found.homes == full.homes
    assert found.homeless == frozenset()


def _cells(sets: DeliverySets) -> dict[tuple[str, str, int], int]:
    rows, places = np.nonzero(sets.words)
    return {
        (sets.brokers[row], *sets.columns[at]): int(sets.words[row, at]) for row, at in zip(rows, places, strict=True)
    }


def _in_all(rules: Sequence[SampleRule], publisher: str, block: int) -> int:
    samplings = [Sampling(rule.power, run=rule.run) for rule in rules]
    numbers = range(64)
    return sum(all(one.includes(publisher, block * 64 + place) for one in samplings) << place for place in numbers)


def test_the_share_is_reported_if_everything_is_in_the_sample() -> None:
    """A counts cell exists even if it counts nothing: otherwise a window of sampled blocks would look complete."""
    rng = random.Random(1)
    sampling = Sampling(1, 5)
    traffic = draw_traffic(rng, brokers=3, publishers=1, count_max=1)
    while not all(sampling.includes(one.publisher, one.sequence) for one, _ in traffic.notifications):
        traffic = draw_traffic(rng, brokers=3, publishers=1, count_max=1)
    assert window_of_batches(batches_of(traffic, lambda _: sampling), traffic.brokers).sets.share == 0.5


@settings(max_examples=2, deadline=None, phases=[Phase.generate])
@given(SEEDS)
def test_cost_is_unbiased_over_samples_and_a_gain_knows_its_error(seed: int) -> None:
    """The mean cost over many samples is the true one; random groups give the error of a gain's share of it."""
    rng = random.Random(seed)
    brokers, blocks, samples, power, groups = 8, 200, 100, 2, 16
    names = tuple(f"b{number}" for number in range(brokers))
    words = np.zeros((brokers, blocks), dtype=np.uint64)
    for publisher in range(10):
        wanting = rng.sample(range(brokers), 3)
        for column in range(publisher * 20, publisher * 20 + 20):
            words[wanting, column] = [rng.getrandbits(64) for _ in wanting]
    columns = tuple((f"p{column // 20:02d}", column % 20) for column in range(blocks))
    trees = [
        TreeConfiguration.of(0, names, [(names[rng.randrange(place)], names[place]) for place in range(1, brokers)])
        for _ in range(2)
    ]
    costs = np.array([[0.0 if i == j else 1.0 + (i * j) % 5 for j in range(brokers)] for i in range(brokers)])
    inventory = Inventory(names, np.ones(brokers), costs, brokers, trees[0])

    def cost_and_gain(sets: DeliverySets) -> tuple[float, float]:
        before, after = (overlay_cost(tree, inventory, sets).total_per_s for tree in trees)
        return before, 1 - after / before

    true, _ = cost_and_gain(DeliverySets(names, columns, words, 5.0, words))
    found, errors, share = [], [], 1 / (1 << power)
    for number in range(samples):
        sampling = Sampling(power, 1, number)
        kept = [place for place, (name, block) in enumerate(columns) if sampling.includes(name, 64 * block)]
        chosen = tuple(columns[place] for place in kept)
        part = DeliverySets(names, chosen, words[:, kept], 5.0 * share, words[:, kept], share)
        found.append(cost_and_gain(part))
        gains = [cost_and_gain(group)[1] for group in time_slices(part, groups)]
        errors.append(np.std(gains, ddof=1) / groups**0.5)
    spread = np.std(found, axis=0, ddof=1)
    assert abs(np.mean(found, axis=0)[0] - true) < 5 * spread[0] / samples**0.5
    assert 0 < spread[1] < 1.3 * float(np.mean(errors))


def test_without_counts_cells_everything_is_taken() -> None:
    """Full telemetry, as all earlier versions send it, is unchanged."""
    zero = np.zeros(1, dtype=np.int64)
    cells = MaskCells(zero, zero, np.ones(1, dtype=np.uint64), np.ones(1, dtype=np.uint64))
    sample = take_sample(cells, (("p", 3),))
    assert (sample.cells, sample.columns, sample.share) == (cells, (("p", 3),), 1.0)
