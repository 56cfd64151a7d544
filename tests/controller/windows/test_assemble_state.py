"""Rows and markers in any order give the same windows; what is missing is reported."""

import random
from dataclasses import replace

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from regraft.controller.settings.controller_settings import AssemblyLimits
from regraft.controller.state.closed_window import ClosedWindow
from regraft.controller.windows.assemble_state import WindowAssembler
from regraft.schemas.state import Churn, LinkRtt, PublisherDelivery, StateRow, WindowClosed
from tests.controller.scripted_windows import WINDOW_MS, marker_of, rows_of
from tests.overlay.small_overlays import brokers_named
from tests.schemas.packed_rows import packed_window

BROKERS = brokers_named(4)
WANTED = [{"b00", "b03"}, {"b01"}, set(BROKERS)] * 30
LIMITS = AssemblyLimits(rows_wait_ms=5000)


def window_records(start_ms: int, **marker: object) -> list[StateRow | WindowClosed]:
    rows = rows_of(BROKERS, start_ms, WANTED)
    return [*rows, marker_of(BROKERS, start_ms, rows, **marker)]  # type: ignore[arg-type]


def closed_from(
    records: list[StateRow | WindowClosed], now_ms: int = 0, limits: AssemblyLimits = LIMITS
) -> list[ClosedWindow]:
    assembler = WindowAssembler(BROKERS, limits)
    for record in records:
        assembler.add(record, now_ms)
    return assembler.closed(now_ms)


@given(st.integers(0, 2**32))
def test_disorder_and_repetition_change_nothing(seed: int) -> None:
    """However the records of three windows are mixed and repeated, the same three windows come out, in order, once."""
    rng = random.Random(seed)
    records = [record for start_ms in (0, 1000, 2000) for record in window_records(start_ms)]
    mixed = records + rng.sample(records, len(records) // 2)
    rng.shuffle(mixed)
    assembler = WindowAssembler(BROKERS, LIMITS)
    found = []
    for record in mixed:
        assembler.add(record, 0)
        found += assembler.closed(0)
    straight = closed_from(records)
    assert [window.end_ms for window in found] == [1000, 2000, 3000]
    assert all(window.is_complete for window in found)
    for one, other in zip(found, straight, strict=True):
        assert one.sets.words.tolist() == other.sets.words.tolist()
        assert one.sets.notification_count == len(WANTED)


def test_a_window_waits_for_its_rows_and_then_lists_the_missing_ones() -> None:
    """A window whose row is lost is not returned at once, and after the wait it is incomplete."""
    records = window_records(0)
    lost, rest = records[0], records[1:]
    assembler = WindowAssembler(BROKERS, LIMITS)
    for record in rest:
        assembler.add(record, 100)
    assert assembler.closed(5000) == []
    (window,) = assembler.closed(5100)
    assert window.error == "rows missing: 1 of kind delivery"
    assembler.add(lost, 5200)
    assert assembler.closed(5200) == []
    assert assembler.refused == {"window closed already": 1}


def test_repeated_marker_does_not_prolong_the_wait() -> None:
    """A repeated marker does not restart the wait for missing rows."""
    records = window_records(0)[1:]
    assembler = WindowAssembler(BROKERS, LIMITS)
    for record in records:
        assembler.add(record, 0)
    assembler.add(records[-1], 4000)
    assert len(assembler.closed(5000)) == 1


@pytest.mark.parametrize(("lost", "is_complete"), [({}, True), ({"b02": 1}, False)])
def test_share_of_batches_decides_completeness(lost: dict[str, int], is_complete: bool) -> None:
    """One batch of four lost is below a share of 0.95, and the broker is named with its counts."""
    (window,) = closed_from(window_records(0, lost=lost))
    assert window.is_complete is is_complete
    assert window.short_brokers == tuple(lost)
    assert ("b02 (3 of 4)" in window.error) is not is_complete


def test_share_is_a_setting() -> None:
    """With a share of 0.5 one lost batch of four is not an error."""
    (window,) = closed_from(window_records(0, lost={"b02": 1}), limits=AssemblyLimits(completeness_share_min=0.5))
    assert window.is_complete


def test_a_broker_that_sent_nothing_is_missing() -> None:
    """If a broker of the configuration sent nothing the window is incomplete."""
    rows = rows_of(BROKERS, 0, WANTED)
    (window,) = closed_from([*rows, marker_of(BROKERS[:3], 0, rows)])
    assert window.short_brokers == ("b03",)
    assert "b03 (none)" in window.error


def test_batches_lost_between_windows_count_against_the_next() -> None:
    """A window that was lost entirely shows as a gap in the sequences, which makes the next window incomplete."""
    first, second = closed_from(window_records(0) + window_records(2000))
    assert first.is_complete
    assert second.short_brokers == BROKERS
    assert "b00 (4 of 8)" in second.error


def test_the_first_window_ignores_earlier_gaps() -> None:
    """A controller that starts in the middle of a boot accepts its first window as it is."""
    (window,) = closed_from(window_records(7000))
    assert window.is_complete


def test_new_boot_starts_its_sequence_again() -> None:
    """A restarted broker counts from 0; only batches lost since its boot are missing."""
    restarted = window_records(1000, first_window_ms=1000, boots=dict.fromkeys(BROKERS, 2))
    assert [window.is_complete for window in closed_from(window_records(0) + restarted)] == [True, True]
    late = window_records(1000, first_window_ms=0, boots=dict.fromkeys(BROKERS, 2))
    assert [window.is_complete for window in closed_from(window_records(0) + late)] == [True, False]


def test_windows_are_returned_in_order() -> None:
    """A window that still waits for a row holds back the next one, but not forever."""
    assembler = WindowAssembler(BROKERS, LIMITS)
    for record in window_records(0)[1:] + window_records(1000):
        assembler.add(record, 0)
    assert assembler.closed(0) == []
    assert [window.is_complete for window in assembler.closed(5000)] == [False, True]


def test_window_whose_marker_is_lost_is_given_up() -> None:
    """Rows without a marker hold back the next window for the wait, then they are dropped and counted."""
    assembler = WindowAssembler(BROKERS, LIMITS)
    for record in window_records(0)[:-1] + window_records(1000):
        assembler.add(record, 0)
    assert assembler.closed(4999) == []
    assert [window.end_ms for window in assembler.closed(5000)] == [2000]
    assert assembler.refused == {"window without a marker": 1}


def test_epoch_is_known_only_when_all_brokers_agree() -> None:
    """A window during a transition has no single epoch."""
    rows = rows_of(BROKERS, 0, WANTED)
    mixed = marker_of(BROKERS[:2], 0, rows, epoch=3)
    rest = marker_of(BROKERS[2:], 0, rows, epoch=4)
    both = WindowClosed(0, WINDOW_MS, 1, mixed.row_counts, mixed.brokers + rest.brokers, 0)
    (window,) = closed_from([*rows, both])
    assert (window.epoch, window.epoch_min, window.epoch_max) == (None, 3, 4)
    (window,) = closed_from(window_records(0, epoch=5))
    assert window.epoch == 5


def test_other_rows_are_part_of_the_window() -> None:
    """Queues, round trips and churn are part of the window."""
    rows = [
        *rows_of(BROKERS, 0, WANTED),
        StateRow(0, WINDOW_MS, "rtt", "b00/b01", rtt=LinkRtt("b00", "b01", 4.0, 5.0)),
        StateRow(0, WINDOW_MS, "churn", "b00", churn=Churn("b00", 3, 2)),
    ]
    (window,) = closed_from([*rows, marker_of(BROKERS, 0, rows)])
    assert len(window.queues) == 4
    assert window.rtts[0].rtt_ms_min == 4.0
    assert window.client_changes == 3


def test_homes_and_hand_overs_reach_the_window() -> None:
    """A window knows who published where, and moves a publisher's own bits to another home."""
    deliveries = [
        PublisherDelivery("p", "b00", 2, 0, 0, (0,), (0,), (0b11,)),
        PublisherDelivery("p", "b01", 1, 3, 300, (0,), (0b01,), (0,)),
    ]
    rows = [StateRow(0, WINDOW_MS, "delivery", f"p|{each.broker}", delivery=each) for each in deliveries]
    (window,) = closed_from([*rows, marker_of(BROKERS, 0, rows)])
    assert window.homes == {"p": "b00"}
    assert window.local_deliveries == {("p", "b01"): 3}
    assert window.sets.words.tolist() == [[0b11], [0b01], [0], [0]]
    assert window.sets_at({"p": "b02"}).words.tolist() == [[0], [0b01], [0b11], [0]]


def test_windows_without_publications_have_no_homes() -> None:
    """Rows of which none says who published do not allow moving publishers."""
    (window,) = closed_from(window_records(0))
    assert window.homes == {}
    assert window.homeless == {"p0"}
    assert window.sets_at({"p0": "b01"}) is window.sets


def test_of_made_up_brokers_only_the_number_is_kept() -> None:
    """Nothing of 10,000 brokers outside the inventory gets into a window, which is complete without them."""
    invented = [f"stranger-{number}" for number in range(10_000)]
    bodies = [
        *(("delivery", PublisherDelivery("p", broker, 1, 1, 1, (0,), (1,), (0,))) for broker in invented),
        *(("rtt", LinkRtt("b00", broker, 1.0, 1.0)) for broker in invented),
        ("churn", Churn("stranger-0", 7, 7)),
    ]
    rows = [
        *rows_of(BROKERS, 0, WANTED),
        *(StateRow(0, WINDOW_MS, kind, f"x{number}", **{kind: body}) for number, (kind, body) in enumerate(bodies)),
    ]
    marker = marker_of((*BROKERS, *invented), 0, rows)
    assembler = WindowAssembler(BROKERS, LIMITS)
    for record in [*rows, marker]:
        assembler.add(record, 0)
    (window,) = assembler.closed(0)
    assert window.is_complete
    assert window.sets.notification_count == len(WANTED)
    assert not {rtt.peer for rtt in window.rtts} & set(invented)
    assert window.client_changes < 7
    assert assembler.refused == {"row of an unknown broker": 20_001, "unknown broker in a marker": 10_000}
    assert set(assembler._batches_until) == set(BROKERS)


def test_a_window_has_one_length() -> None:
    """A record with a later end than the window's first one is refused: it would close all windows until then."""
    assembler = WindowAssembler(BROKERS, LIMITS)
    first, *rest = window_records(0)
    assembler.add(first, 0)
    assembler.add(msgspec.structs.replace(first, window_end_ms=first.window_end_ms + 60_000), 0)
    for record in rest:
        assembler.add(record, 0)
    (window,) = assembler.closed(0)
    assert (window.end_ms, window.is_complete) == (first.window_end_ms, True)
    assert assembler.refused.total() == 1


def test_buffers_are_bounded() -> None:
    """Windows far in the future are refused, of too many pending ones the oldest is dropped, and rows have a limit."""
    limits = AssemblyLimits(windows_pending_max=2, rows_per_window_max=3, future_ms_max=10_000)
    assembler = WindowAssembler(BROKERS, limits)
    assembler.add(window_records(50_000)[0], 0)
    for start_ms in (0, 1000, 2000):
        assembler.add(window_records(start_ms)[0], 0)
    for row in rows_of(BROKERS, 1000, WANTED):
        assembler.add(row, 0)
    assert assembler.refused == {
        "window in the far future": 1,
        "too many windows pending": 1,
        "too many rows in a window": 5,
    }


def test_packed_rows_are_counted_as_rows_and_judged_by_their_brokers() -> None:
    """A record of many rows needs room for all of them, and its rows of unknown brokers are refused one by one."""
    bodies = [PublisherDelivery("p", broker, 1, 0, 0, (0,), (1,), (0,)) for broker in (*BROKERS, "x1", "x2")]
    rows = [StateRow(0, WINDOW_MS, "delivery", f"p|{body.broker}", delivery=body) for body in bodies]
    records, marker = packed_window(rows, marker_of(BROKERS, 0, rows), bytes_max=150)
    assert len(records) == 3
    assembler = WindowAssembler(BROKERS, LIMITS)
    for record in [*records, *records, marker]:
        assembler.add(record, 0)
    (window,) = assembler.closed(0)
    assert window.is_complete
    assert window.sets.words.tolist() == [[1]] * len(BROKERS)
    assert assembler.refused == {"row of an unknown broker": 4}
    short = WindowAssembler(BROKERS, replace(LIMITS, rows_per_window_max=3))
    for record in [*records, *records, marker]:
        short.add(record, 0)
    (window,) = short.closed(LIMITS.rows_wait_ms)
    assert "of kind packed_deliveries" in window.error
    assert short.refused["too many rows in a window"] == 2 * (len(records) - 1)


@pytest.mark.parametrize(("single", "is_announced"), [(1, False), (50, False), (1_000, False), (1_000, True)])
def test_a_job_upgraded_within_a_window_leaves_no_gap(single: int, is_announced: bool) -> None:
    """The old job's single rows, announced or not, and the new job's packed ones give the window of either alone."""
    rows = rows_of(BROKERS, 0, WANTED)
    old_marker = marker_of(BROKERS, 0, rows)
    packed, marker = packed_window(rows, old_marker, bytes_max=150)
    (window,) = closed_from([*rows[:single], *([old_marker] if is_announced else []), *packed, marker])
    for alone in ([*rows, old_marker], [*packed, marker]):
        (expected,) = closed_from(alone)
        assert window.is_complete
        assert window.sets.columns == expected.sets.columns
        assert window.sets.words.tolist() == expected.sets.words.tolist()
        assert (window.homes, window.local_deliveries) == (expected.homes, expected.local_deliveries)


def test_a_window_is_complete_over_the_awaited_brokers_and_has_their_epochs() -> None:
    """A dead broker is not awaited; one outside the overlay is included, and its epoch does not affect the window's."""
    alive = BROKERS[1:]
    assembler = WindowAssembler(BROKERS, LIMITS)
    assembler.know(BROKERS, alive[:2])
    rows = rows_of(alive, 0, WANTED)
    for record in (*rows, marker_of(alive, 0, rows, epoch=4, epochs={alive[2]: 0}, boots={alive[2]: 9})):
        assembler.add(record, 0)
    (window,) = assembler.closed(0)
    assert window.is_complete
    assert window.epoch == 4
    assert window.epochs == {alive[0]: 4, alive[1]: 4, alive[2]: 0}
    assert window.boots == {alive[0]: 1, alive[1]: 1, alive[2]: 9}
    assert window.sets.brokers == BROKERS


def test_a_broker_added_later_is_part_of_later_windows() -> None:
    """Until then its rows are those of an unknown broker."""
    assembler = WindowAssembler(BROKERS[:3], LIMITS)
    for record in window_records(0):
        assembler.add(record, 0)
    assert [window.sets.brokers for window in assembler.closed(0)] == [BROKERS[:3]]
    assembler.know(BROKERS, BROKERS)
    for record in window_records(1000) + window_records(2000):
        assembler.add(record, 2000)
    first, second = assembler.closed(2000)
    assert first.sets.brokers == second.sets.brokers == BROKERS
    assert first.short_brokers == BROKERS[3:]  # It lacks the earlier batches, which nothing has counted.
    assert second.is_complete
