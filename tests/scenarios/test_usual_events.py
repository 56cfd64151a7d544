"""What a loop does not report, because it is usual."""

import random

from regraft.producers.emulator.place_overlay import place_overlay
from regraft.producers.workloads.stock_settings import WorkloadSettings
from regraft.schemas.event import EventKind
from regraft.schemas.plan import Verdict
from tests.scenarios.closed_loop import ClosedLoop

WORKLOAD = WorkloadSettings(publisher_count=8, interested_broker_count=4, lifetime_s_mean=10.0)


def test_the_window_of_a_transition_is_not_reported_as_stale() -> None:
    """It is of two epochs, so nothing is decided on it; the event of the plan has said all."""
    loop = ClosedLoop(place_overlay(12, 6, random.Random(1)), WORKLOAD, 1)
    loop.run_for(40_000)
    state = loop.loop.state
    assert state.refusals[Verdict.STALE_STATE]
    assert [event.text for event in state.events if event.kind is EventKind.WINDOW_STALE] == []
