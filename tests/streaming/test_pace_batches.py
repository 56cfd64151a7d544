"""When micro-batches begin: a simulated loop of them, with windows that become complete after their end."""

import threading
from dataclasses import dataclass

from hypothesis import example, given, settings
from hypothesis import strategies as st

from regraft.streaming.pace_batches import LATER_MS, BatchHold, BatchPace

WINDOW_MS, PAUSE_MS, SETTLE_MS = 5_000, 1_000, 900


@dataclass
class Loop:
    """Micro-batches that take ``floor_ms`` plus ``work`` times the telemetry that they read."""

    floor_ms: float
    work: float
    complete_ms: float
    pause_ms_max: int = PAUSE_MS

    def delays_ms(self, windows: int) -> list[float]:
        """Return for each window the time from its completion to the end of the micro-batch that closed it."""
        pace, found = BatchPace(WINDOW_MS, self.pause_ms_max), list[float]()
        now_ms, closed_ms, self.begun = 1e12, 10**12 - WINDOW_MS, list[float]()
        read_ms = now_ms
        while len(found) < windows:
            pace.begin(now_ms)
            self.begun.append(now_ms)
            began_ms, now_ms = now_ms, now_ms + self.floor_ms + self.work * (now_ms - read_ms)
            read_ms, before_ms = began_ms, closed_ms
            while closed_ms + WINDOW_MS + self.complete_ms <= began_ms:
                closed_ms += WINDOW_MS
                found.append(now_ms - closed_ms - self.complete_ms)
            pace.end(now_ms, closed_ms, SETTLE_MS)
            now_ms += 0 if closed_ms > before_ms else pace.wait_ms(now_ms)
        return found


@settings(max_examples=15)
@given(st.floats(100, 700), st.floats(-800, 3_000))
@example(100.0, -800.0)  # Batches at regular intervals close windows before these are expected to be complete.
def test_a_window_waits_for_little_more_than_one_micro_batch(floor_ms: float, late_ms: float) -> None:
    # A window that is complete half a second later is like a clock that is slow by that.
    delays_ms = Loop(floor_ms, 0.0, SETTLE_MS + late_ms).delays_ms(200)[100:]
    in_time = [delay_ms for delay_ms in delays_ms if delay_ms <= floor_ms + LATER_MS + 1]
    assert len(in_time) >= 0.8 * len(delays_ms)


@given(st.floats(250, 290))
def test_the_first_windows_cost_no_second_micro_batch(flush_ms: float) -> None:
    """Brokers report every 250 ms, so by then all have passed a window, and the first plan waits for that."""
    [_, first_ms, *_] = Loop(280.0, 0.0, SETTLE_MS + flush_ms).delays_ms(3)
    assert first_ms < 280 + 2 * LATER_MS


@settings(max_examples=15)
@given(st.floats(50, 900), st.floats(0, 500))
def test_without_a_pause_it_waits_half_a_micro_batch_more(floor_ms: float, late_ms: float) -> None:
    held, hasty = Loop(floor_ms, 0.0, SETTLE_MS + late_ms), Loop(floor_ms, 0.0, SETTLE_MS + late_ms, 0)
    assert sum(held.delays_ms(80)[40:]) <= sum(hasty.delays_ms(80)[40:]) + 40 * LATER_MS
    assert len(held.begun) <= len(hasty.begun)


@settings(max_examples=15)
@given(st.floats(50, 900), st.floats(0, 0.9), st.floats(-500, 3_000))
def test_no_micro_batch_is_waited_for_longer_than_twice_the_pause(floor_ms: float, work: float, late_ms: float) -> None:
    loop = Loop(floor_ms, work, SETTLE_MS + late_ms)
    loop.delays_ms(50)
    ends_ms = (begun + floor_ms + work * 2 * PAUSE_MS for begun in loop.begun)
    for begun_ms, next_ms, end_ms in zip(loop.begun, loop.begun[1:], ends_ms, strict=False):
        assert next_ms <= max(begun_ms + 2 * PAUSE_MS, end_ms + 1) or work > 0.5


def test_a_large_amount_is_read_before_a_window_is_complete() -> None:
    # With 0.8 s of work per second of telemetry, waiting would leave 5 s of telemetry, 4 s of work, to the last one.
    delays_ms = Loop(100.0, 0.8, SETTLE_MS + 250.0).delays_ms(60)[20:]
    assert max(delays_ms) < 0.5 * (100.0 + 0.8 * WINDOW_MS)


def test_a_hold_ends_when_released() -> None:
    hold = BatchHold(WINDOW_MS, PAUSE_MS)
    for number in range(10):
        hold.hold(number, 10**15, 0, may_wait=False)
    holder = threading.Thread(target=hold.hold, args=(10, 10**15, 0), kwargs={"may_wait": True})
    hold.release()
    holder.start()
    holder.join(PAUSE_MS)
    assert not holder.is_alive()
    assert hold.held_ms(10) < PAUSE_MS
    assert hold.held_ms(0) == 0
