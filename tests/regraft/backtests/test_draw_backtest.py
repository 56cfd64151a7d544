"""However many planners a backtest compares, no two lines look alike, on a light page or on a dark one."""

import re
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from regraft.backtests.backtest_outcome import BOOTSTRAP, LEAST, RECORDED, CostPoint, Mode, Outcome
from regraft.backtests.draw_backtest import COLOURS, DASHES, draw_costs, line_styles, spread
from regraft.report_page.html_elements import THEME_CSS

CONTRAST_MIN = 3.0  # WCAG 2.2, 1.4.11, for graphical objects.
PAGES = re.findall(r"--page: (#\w+)", THEME_CSS)


def _luminance(colour: str) -> float:
    """Return the relative luminance of a colour, as WCAG 2.2 defines it."""
    digits = colour.lstrip("#")
    if len(digits) == 3:
        digits = "".join(2 * digit for digit in digits)
    shares = [int(digits[place : place + 2], 16) / 255 for place in (0, 2, 4)]
    red, green, blue = (share / 12.92 if share <= 0.04045 else ((share + 0.055) / 1.055) ** 2.4 for share in shares)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


@pytest.mark.parametrize("page", PAGES)
@pytest.mark.parametrize("colour", COLOURS)
def test_each_colour_stands_out_on_each_page(colour: str, page: str) -> None:
    """Lines must be readable on the light and on the dark page."""
    lighter, darker = sorted((_luminance(colour), _luminance(page)), reverse=True)
    assert (lighter + 0.05) / (darker + 0.05) >= CONTRAST_MIN


def test_no_two_lines_look_alike() -> None:
    """There are as many planners as pairs of colours and dashes, and the three yardsticks."""
    names = [RECORDED, BOOTSTRAP, LEAST, *(f"planner_{number}" for number in range(len(COLOURS) * len(DASHES)))]
    styles = line_styles(names)
    assert len({(style.colour, str(style.dashes)) for style in styles.values()}) == len(names)
    assert [style.number for style in styles.values()] == list(range(1, len(names) + 1))


def test_each_line_has_its_number_at_its_end_and_in_the_legend() -> None:
    """A planner that ran in both modes has the same number in both."""
    points = tuple(CostPoint(500_000 * turn, 100.0, 200.0) for turn in range(1, 4))
    drawing = draw_costs(
        [
            Outcome(BOOTSTRAP, Mode.OPEN_LOOP, points),
            Outcome("swap_links_ci", Mode.OPEN_LOOP, points),
            Outcome("swap_links_lmst", Mode.OPEN_LOOP, points),
            Outcome("swap_links_lmst", Mode.CLOSED_LOOP, points),
        ]
    )
    texts = [text.strip() for text in re.findall(r"<text[^>]*>([^<]*)</text>", drawing)]
    assert [text for text in texts if re.match(r"\d  ", text)] == [
        f"1  {BOOTSTRAP}", "2  swap_links_ci", "3  swap_links_lmst",
    ]  # fmt: skip
    assert [text for text in texts if text in ("1", "2", "3")] == ["1", "2", "3", "3"]


@given(st.lists(st.floats(0, 100), max_size=16), st.floats(0.1, 5))
def test_labels_do_not_overlap(values: list[float], gap: float) -> None:
    """They keep their order and distance below the top, and do not move if there is space."""
    values.sort()
    top = 100.0
    places = spread(values, gap, top)
    assert all(later - earlier >= gap - 1e-9 for earlier, later in pairwise(places))
    assert all(place <= top for place in places)
    if all(later - earlier >= 1.001 * gap for earlier, later in pairwise(values)):
        assert places == values
