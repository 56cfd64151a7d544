import xml.etree.ElementTree as ElementTree
from dataclasses import replace
from html.parser import HTMLParser

import numpy as np

from regraft.draw_figures import draw_cost_curve, place_brokers
from regraft.report import build_report
from schemas.plan import PlanPhase
from tests.regraft.canned_run import empty_run, small_inventory, small_plan, small_run


class _Page(HTMLParser):
    def __init__(self, text: str) -> None:
        super().__init__()
        self.ids: list[str] = []
        self.links: list[str] = []
        self.open: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        values = dict(attributes)
        self.ids += [values["id"] or ""] if "id" in values else []
        self.links += [values[name] or "" for name in ("href", "src", "xlink:href") if name in values]
        if tag not in ("meta", "br", "link"):
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def test_report_needs_no_network_and_is_well_formed() -> None:
    """Every reference of the page stays inside it, ids are unique and tags are closed."""
    page = _Page(build_report(small_run()))
    assert page.links
    assert all(link.startswith("#") for link in page.links)
    assert len(page.ids) == len(set(page.ids))
    assert page.open == []


def test_report_shows_plans_refusals_and_text_of_others_safely() -> None:
    """Reasons come from brokers, so they are shown as text and never as markup."""
    aborted = replace(small_run(), plans=(small_plan(PlanPhase.ABORTED),), plan_outcomes={})
    text = build_report(aborted)
    assert "&lt;no room&gt;" in text
    assert "near &amp; of like interest" in text
    assert "gain within noise" in text


def test_report_of_a_run_without_windows_and_plans_says_so() -> None:
    """A run in which nothing came about has a report that explains itself."""
    text = build_report(empty_run())
    assert "No plan was made in this run" in text
    assert "Not a success" in text
    _Page(text)


def test_report_of_windows_without_plans_draws_the_curve() -> None:
    """Zero plans leave the cost curve and the two overlays."""
    text = build_report(replace(small_run(), plans=(), latencies_ms=()))
    assert text.count("<svg") == 3
    assert "No command followed a window" in text


def test_figures_are_the_same_for_the_same_run() -> None:
    """A report can be compared byte for byte."""
    assert build_report(small_run()) == build_report(small_run())


def test_figures_are_svg_with_a_description() -> None:
    """Readers who cannot see the curve are told what it shows."""
    root = ElementTree.fromstring(draw_cost_curve(small_run()))
    assert root.get("role") == "img"
    assert "cost" in (root.get("aria-label") or "")


def test_brokers_are_drawn_where_their_distances_put_them() -> None:
    """Brokers on a line stay in their order, and the farthest pair is the farthest in the picture."""
    positions = place_brokers(small_inventory())
    apart = np.linalg.norm(positions[:, None] - positions[None], axis=2)
    assert apart.argmax() in (3, 12)
    assert apart[0, 1] < apart[0, 2] < apart[0, 3]
