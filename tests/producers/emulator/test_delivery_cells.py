"""Cells hold each notification once, by second of publish time and block of 64, cumulative and signed."""

from regraft.producers.brokers.broker_messages import Notification
from regraft.producers.emulator.delivery_cells import CellRule, DeliveryCells
from regraft.schemas.sampled_blocks import FULL, SampleRule, Sampling, rule_of_counts
from regraft.schemas.telemetry import Delivery


def notification(sequence: int, publish_ms: float) -> Notification:
    return Notification("p", sequence, publish_ms, "home", 0, {}, 10)


def test_a_cell_is_cumulative_and_sent_only_if_changed() -> None:
    """A cell that grows is sent again in full; an unchanged one is not."""
    cells = DeliveryCells(60)
    cells.note_delivered(notification(0, 5_100.0), 2)
    cells.note_published(notification(1, 5_200.0))
    assert cells.pop_changed(5_300.0) == (Delivery("p", 0, 5, 0b01, 2, 20, 0b10),)
    assert cells.pop_changed(5_400.0) == ()
    cells.note_delivered(notification(2, 5_900.0), 1)
    assert cells.pop_changed(6_000.0) == (Delivery("p", 0, 5, 0b101, 3, 30, 0b10),)
    cells.note_published(notification(2, 5_900.0))
    assert cells.pop_changed(6_100.0) == (Delivery("p", 0, 5, 0b101, 3, 30, 0b110),)


def test_cells_end_at_seconds_and_blocks() -> None:
    """No cell spans two seconds of publish time or two blocks."""
    cells = DeliveryCells(60)
    for sequence, publish_ms in ((62, 5_999.9), (63, 6_000.0), (64, 6_000.1)):
        cells.note_published(notification(sequence, publish_ms))
        cells.note_delivered(notification(sequence, publish_ms), 1)
    taken = cells.pop_changed(7_000.0)
    assert [(cell.block, cell.second, cell.mask) for cell in taken] == [(0, 5, 1 << 62), (0, 6, -(1 << 63)), (1, 6, 1)]
    assert [cell.published for cell in taken] == [cell.mask for cell in taken]


def test_old_cells_are_dropped() -> None:
    """The memory of a run is bounded by the time that cells are kept."""
    cells = DeliveryCells(10)
    for second in range(100):
        cells.note_delivered(notification(second, second * 1_000.0), 1)
        cells.note_published(notification(second, second * 1_000.0))
        cells.pop_changed(second * 1_000.0)
    assert len(cells._cells) == 11


def test_the_share_may_change_mid_run_and_deliveries_stay_exact() -> None:
    """Each notification is a bit or is counted, and counts that waited for the end of their span are sent."""
    rule = CellRule(60)
    cells, sampling = rule.new_cells(), Sampling(2, 5, run=4)
    found: list[Delivery] = []
    for sequence in range(60):
        rule.sampling = FULL if sequence < 20 else sampling if sequence < 40 else FULL
        cells.note_delivered(notification(sequence, 5_000.0 + 80 * sequence), 2)
        found += cells.pop_changed(5_000.0 + 80 * sequence + 1)
    found += cells.pop_changed(10_001.0)
    newest = {(cell.second, cell.publisher, cell.block): cell for cell in found}
    assert sum(cell.local_deliveries for cell in newest.values()) == 120
    (counts,) = [cell for cell in newest.values() if rule_of_counts(cell.block)]
    assert rule_of_counts(counts.block) == SampleRule(2, 4)
    assert counts.local_deliveries == 2 * sum(not sampling.includes("p", sequence) for sequence in range(20, 40))
