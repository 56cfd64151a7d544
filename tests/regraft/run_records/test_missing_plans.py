"""Plans that were lost in Kafka show by the epochs of the brokers."""

from __future__ import annotations

import pytest

from regraft.run_records.missing_plans import missing_plans_text
from regraft.schemas.plan import Plan, PlanPhase
from regraft.schemas.state import BrokerCompleteness, WindowClosed


def _window(*epochs: int) -> WindowClosed:
    brokers = tuple(BrokerCompleteness(f"b{at:02}", 1, 0, 0, 1, 1, 0, epoch) for at, epoch in enumerate(epochs))
    return WindowClosed(0, 5_000, 5, {}, brokers, 0)


def _plan(epoch: int) -> Plan:
    return Plan(f"plan-{epoch}", epoch - 1, epoch, 0, (), (), (), (), 1.0, 1.0, PlanPhase.COMPLETED, ())


@pytest.mark.parametrize(
    ("stored", "epochs", "is_missing"),
    [
        ((), (2, 2, 2), True),
        ((1,), (2, 2, 1), True),
        ((1, 2), (2, 2, 2), False),
        ((1, 2), (1, 2, 2), False),
        ((), (0, 0, 2), False),  # A single broker shows nothing.
        ((), (0, 0, 0), False),
        ((), (), False),
    ],
)
def test_brokers_beyond_all_stored_plans_show_that_plans_are_missing(
    stored: tuple[int, ...], epochs: tuple[int, ...], is_missing: bool
) -> None:
    text = missing_plans_text([_plan(epoch) for epoch in stored], _window(*epochs))
    assert bool(text) is is_missing
    assert ("at epoch 2" in text and "regraft recover" in text) is is_missing


def test_without_a_window_nothing_is_missing() -> None:
    assert missing_plans_text([], None) == ""
