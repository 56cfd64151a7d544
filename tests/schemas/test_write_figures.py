"""Figures in texts have four readable digits."""

import pytest

from regraft.schemas.texts import figure


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (166_000.0, "166,000"),
        (1e9, "1,000,000,000"),
        (-12_510.4, "-12,510"),
        (999.96, "1,000"),
        (13.2991, "13.3"),
        (2.0, "2"),
        (0.25, "0.25"),
        (0.00012, "0.0001"),
        (0.00001, "0"),
        (-0.00001, "0"),
        (0.0, "0"),
    ],
)
def test_a_figure_has_four_digits_and_no_exponent(value: float, text: str) -> None:
    """Readers of a reason need not decode 1.66e+05."""
    assert figure(value) == text
