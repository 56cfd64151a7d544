"""From the parts of its subscribers that a broker reports, a window is restored as it was before a plan moved them."""

import random
from collections.abc import Mapping

import msgspec
import numpy as np
import pytest

from regraft.controller.state.closed_window import ClosedWindow
from regraft.controller.windows.gather_deliveries import gather_deliveries
from regraft.producers.brokers.broker_messages import Notification
from regraft.producers.emulator.delivery_cells import CHOOSE_MS, DeliveryCells
from regraft.schemas.part_blocks import (
    MOVED_SEPARATE_MS,
    REST,
    number_of_moved,
    number_of_subscriber,
    part_block,
    part_of_block,
)
from regraft.schemas.sampled_blocks import FULL, Sampling
from regraft.schemas.telemetry import TelemetryBatch
from regraft.streaming.reference_aggregator import ReferenceAggregator

BROKERS = ("b0", "b1", "b2", "b3")
WINDOW_S = 5
EPOCH = 7


def draw(rng: random.Random, first: int = 0) -> list[tuple[Notification, dict[str, list[str]]]]:
    """Return notifications with the subscribers that want each, by the broker where these were first."""
    found = []
    for number in range(6):
        home = BROKERS[number % len(BROKERS)]
        for sequence in range(first, first + rng.randint(50, 150)):
            one = Notification(f"p{number}", sequence, rng.uniform(0, WINDOW_S * 1_000 - 1), home, 0, {}, 10)
            wanting = {
                broker: [f"{broker}-{place}" for place in range(rng.randint(0, 7)) if rng.random() < 0.4]
                for broker in rng.sample(BROKERS, 2)
            }
            found.append((one, {broker: names for broker, names in wanting.items() if names}))
    return found


def window_of(
    traffic: list[tuple[Notification, dict[str, list[str]]]],
    moved: dict[str, str],
    sampling: Sampling,
    *,
    reports_parts: bool,
    single: Mapping[str, tuple[str, int]] | None = None,
) -> ClosedWindow:
    """Return the window after all subscribers of some brokers have moved, from batches that arrive twice."""
    cells = {broker: DeliveryCells(60, sampling) for broker in BROKERS}
    for first, home in moved.items() if reports_parts else ():
        for place in range(7):
            cells[home].report_separately(f"{first}-{place}", number_of_moved(EPOCH, first), 0.0)
    for name, (broker, number) in (single or {}).items():
        cells[broker].report_separately(name, number, 0.0)
    for one, wanting in traffic:
        cells[one.home].note_published(one)
        at: dict[str, list[str]] = {}
        for broker, names in wanting.items():
            at.setdefault(moved.get(broker, broker), []).extend(names)
        for broker, names in at.items():
            cells[broker].note_delivered(one, len(names))
            cells[broker].note_parts(one, names)
    aggregator = ReferenceAggregator(WINDOW_S * 1_000, 0)
    for _ in range(2):
        for number, (broker, own) in enumerate(cells.items()):
            batch = TelemetryBatch(broker, 1, number, WINDOW_S * 1_000 - 1, EPOCH, own.pop_changed())
            aggregator.take(msgspec.to_builtins(batch))
    (closed,) = aggregator.finish()
    found = gather_deliveries(closed.rows, BROKERS, WINDOW_S)
    return ClosedWindow(
        0, WINDOW_S * 1_000, found.sets, homes=found.homes, local_deliveries=found.local_deliveries, parts=found.parts
    )


@pytest.mark.parametrize("seed", range(4))
def test_moving_parts_back_restores_the_window_before_the_move(seed: int) -> None:
    """Masks and hand-overs, after two groups have moved to a broker with its own subscribers."""
    traffic, moved = draw(random.Random(seed)), {"b2": "b1", "b3": "b1"}
    before, after = (window_of(traffic, homes, FULL, reports_parts=True) for homes in ({}, moved))
    back = {("b1", number_of_moved(EPOCH, first)): first for first in moved}
    found = after.with_parts_moved(back)
    assert not before.parts.received
    assert found.sets.columns == before.sets.columns
    assert np.array_equal(found.sets.words, before.sets.words)
    assert np.array_equal(found.sets.delivered, before.sets.delivered)
    assert found.local_deliveries == before.local_deliveries != after.local_deliveries
    again = found.with_parts_moved({(first, number): home for (home, number), first in back.items()})
    assert np.array_equal(again.sets.words, after.sets.words)
    assert again.local_deliveries == after.local_deliveries


def test_reporting_parts_changes_nothing_else() -> None:
    """The window is the same as without parts, including its hand-overs."""
    traffic, moved = draw(random.Random(5)), {"b2": "b1"}
    with_parts, plain = (window_of(traffic, moved, FULL, reports_parts=reports) for reports in (True, False))
    assert with_parts.parts.are_reported_at("b1")
    assert np.array_equal(with_parts.sets.words, plain.sets.words)
    assert (with_parts.local_deliveries, with_parts.homes) == (plain.local_deliveries, plain.homes)


def test_a_sample_restores_its_masks_and_estimates_the_hand_overs() -> None:
    """Masks of the sample are exact; a group's hand-overs are estimated by its share of the sample."""
    traffic, moved, half = draw(random.Random(6)), {"b2": "b1"}, Sampling(1, 5, run=4)
    before, after = (window_of(traffic, homes, half, reports_parts=True) for homes in ({}, moved))
    found = after.with_parts_moved({("b1", number_of_moved(EPOCH, "b2")): "b2"})
    assert found.sets.share == 0.5
    assert np.array_equal(found.sets.words, before.sets.words)
    assert sum(found.local_deliveries.values()) == sum(before.local_deliveries.values())
    handed = [
        sum(count for (_, broker), count in one.local_deliveries.items() if broker == "b2") for one in (found, before)
    ]
    assert handed[0] == pytest.approx(handed[1], rel=0.3)


def test_those_that_receive_most_are_reported_separately_unless_another_receives_twice_as_much() -> None:
    """One of three: a small lead changes nothing, and what a subscriber received before belongs to the rest."""
    cells = DeliveryCells(60)
    cells.rule.subscribers_reported_max = 1

    def parts_after(at_ms: float, **taken: int) -> set[int]:
        for name, count in taken.items():
            for sequence in range(count):
                cells.note_parts(Notification("p", sequence, at_ms, "b0", 0, {}, 10), [name])
        parts = (part_of_block(cell.block) for cell in cells.pop_changed(at_ms))
        return {part.number for part in parts if part is not None}

    assert parts_after(0.0, a=5, b=3) == set()
    assert parts_after(CHOOSE_MS, a=5, b=9) == {number_of_subscriber("a"), REST}
    assert parts_after(2.0 * CHOOSE_MS, a=4, b=9) == {number_of_subscriber("a"), REST}
    assert parts_after(3.0 * CHOOSE_MS, a=4, b=9) == {number_of_subscriber("b"), REST}


def test_parts_are_reported_for_a_limited_time() -> None:
    """Afterwards the broker has one mask for all of them again."""
    cells = DeliveryCells(60)
    cells.report_separately("s", 1, 0.0)
    cells.pop_changed(MOVED_SEPARATE_MS + 1.0)
    cells.note_parts(Notification("p", 0, MOVED_SEPARATE_MS + 2.0, "b0", 0, {}, 10), ["s"])
    assert not cells.pop_changed()


def test_the_block_of_a_part_identifies_it() -> None:
    """A part that does not fit is not reported; blocks of sequence numbers and of counts belong to no part."""
    block = part_block(5, 3, 99)
    assert block is not None
    part = part_of_block(block)
    assert part is not None
    assert (part.number, part.plane, part.block) == (5, 3, 99)
    assert part_block(5, 16, 99) is None
    assert part_block(5, 0, 1 << 30) is None
    assert part_of_block(99) is part_of_block(FULL.counts_block) is None
