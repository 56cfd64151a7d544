"""The rule by which claims of a size are judged, by the examples of its documentation and of the papers."""

from __future__ import annotations

import pytest

from regraft_lab.claim_evidence import Verdict
from regraft_lab.judge_size import Size, judge_all

REPRODUCED, EXCEEDED, SMALLER, REFUTED = Verdict.REPRODUCED, Verdict.EXCEEDED, Verdict.SMALLER, Verdict.REFUTED
UNDECIDED = Verdict.UNDECIDED


@pytest.mark.parametrize(
    ("size", "effect", "expected"),
    [
        (Size(0.635), 0.811, EXCEEDED),  # Shafique: advertisements take 63.5 % less time.
        (Size(0.68), 0.88, EXCEEDED),  # Cheung09: GRAPE cuts the input utilisation by up to 68 %.
        (Size(0.85), 0.87, REPRODUCED),  # Cheung09: and the message rate by up to 85 %.
        (Size(0.175), 0.043, SMALLER),  # Shafique: delays are 17.5 % less than in static routing.
        (Size(0.586), -0.02, REFUTED),  # Shafique: 58.6 % fewer messages than TID.
        (Size(0.003, within=0.01), -0.004, REPRODUCED),  # Shafique: 0.3 % more messages, which is next to none.
        (Size(0.3), -0.86, REFUTED),  # Zhao13: 30 % less delay.
        (Size(0.3), 0.0, REFUTED),
        (Size(0.5, is_least=True), 0.76, REPRODUCED),  # Zhao13: over 50 % less overhead.
        (Size(0.5, is_least=True), 0.3, SMALLER),
        (Size(0.5, is_least=True), -0.3, REFUTED),
    ],
)
def test_direction_and_size_are_judged_apart(size: Size, effect: float, expected: Verdict) -> None:
    """A larger effect is no failure, and a smaller one in the claimed direction is not the opposite."""
    assert size.judge(effect) is expected


@pytest.mark.parametrize(
    ("effects", "expected"),
    [
        ([0.6, 0.65], REPRODUCED),
        ([0.562, 0.65, 0.99], EXCEEDED),  # Shafique: queues are 61 % less loaded than in static routing.
        ([0.2, 0.99], SMALLER),
        ([-45.3, 0.99], REFUTED),
        ([], UNDECIDED),
    ],
)
def test_a_claim_about_settings_is_judged_by_the_worst(effects: list[float], expected: Verdict) -> None:
    """What holds in all is exceeded once it is in one."""
    assert Size(0.61).judge_settings(effects) is expected


@pytest.mark.parametrize(
    ("effects", "expected"),
    [
        ([0.35, 0.69], EXCEEDED),  # Zhao13: 20 % less overhead than GeoPS.
        ([0.2, 0.69], REPRODUCED),
        ([0.02, 0.1], SMALLER),
        ([-0.1, 0.1], REFUTED),
        ([-0.2, -0.1], REFUTED),
        ([0.02, 0.2], UNDECIDED),
        ([], UNDECIDED),
    ],
)
def test_readings_that_differ_decide_nothing(effects: list[float], expected: Verdict) -> None:
    """One of them is meant, but not known which."""
    assert Size(0.2).judge_readings(effects) is expected


def test_sizes_may_differ_by_setting() -> None:
    """The verdicts on each are combined in the same way."""
    assert judge_all([EXCEEDED, SMALLER]) is SMALLER
    assert judge_all([EXCEEDED, REPRODUCED]) is EXCEEDED
