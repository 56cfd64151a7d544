import re
import xml.etree.ElementTree as ElementTree
from dataclasses import replace
from html.parser import HTMLParser

import msgspec
import numpy as np
import pytest

import regraft
from regraft.report_page.draw_figures import LABEL_LENGTH_MAX, draw_cost_curve, place_brokers
from regraft.report_page.report import build_report
from regraft.run_records.describe_run import describe_run
from regraft.schemas.plan import ClientMove, PlanPhase, Proposal
from regraft.settings.run_settings import load_settings
from tests.regraft.canned_run import empty_run, ring_run, scot_run, small_inventory, small_plan, small_run, small_shadow


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


def test_the_report_needs_no_network_and_is_well_formed() -> None:
    """Every reference of the page stays inside it, ids are unique and tags are closed."""
    page = _Page(build_report(small_run()))
    assert page.links
    assert all(link.startswith("#") for link in page.links)
    assert len(page.ids) == len(set(page.ids))
    assert page.open == []


def test_the_report_escapes_reasons_of_others() -> None:
    """Reasons come from brokers, so they are shown as text and never as markup."""
    aborted = replace(small_run(), plans=(small_plan(PlanPhase.ABORTED),), plan_outcomes={})
    text = build_report(aborted)
    assert "&lt;no room&gt;" in text
    assert "near &amp; of like interest" in text
    assert "gain within noise" in text


def test_one_reason_for_several_links_is_shown_once() -> None:
    """Swaps with the same reason are on one line with all their links; another reason has its own line."""
    swaps = [(("b00", "b03"), ("b00", "b01")), (("b01", "b02"), ("b02", "b03")), (("b00", "b02"), ("b01", "b03"))]
    whys = ["b00-b01 for b03-b00 saves most", "b02-b03 for b01-b02 saves most", "b01-b03 is near"]
    proposals = tuple(
        Proposal("swap_links_cost", (old,), (new,), 90.0, 40.0, 1.0, why)
        for (old, new), why in zip(swaps, whys, strict=True)
    )
    text = build_report(replace(small_run(), plans=(msgspec.structs.replace(small_plan(), proposals=proposals),)))
    assert "<p>b00–b03 → b00–b01; b01–b02 → b02–b03: the new link for the old one saves most</p>" in text
    assert "<p>b00–b02 → b01–b03: the new link is near</p>" in text


def test_the_report_of_a_run_without_windows_and_plans_says_so() -> None:
    """The report of a run in which nothing happened explains itself."""
    text = build_report(empty_run())
    assert "No plan was proposed in this run" in text
    assert "Failed" in text
    _Page(text)


def test_the_report_of_windows_without_plans_draws_the_curve() -> None:
    """It has the cost curve and the two overlays."""
    text = build_report(replace(small_run(), plans=(), latencies_ms=()))
    assert text.count("<svg") == 3
    assert "No command followed a window" in text


def test_the_report_says_how_to_cite_and_repeat_the_run() -> None:
    """Scenario, version, commit, time, machine and command; values of settings that may hold secrets are left out."""
    hidden = ("--set", "dashboard.secret=hush", "--set", "redis.url=redis://me:pw@db")
    command = ["/usr/bin/regraft", "demo", *hidden, "-q"]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sys.argv", command)
        facts = describe_run(load_settings({"demo": {"scenario": "outage"}}))
    text = build_report(small_run(), facts)
    assert "Scenario outage, seed" in text
    assert f"Regraft {regraft.__version__} (commit {facts['commit']})" in text
    assert str(facts["time"]) in text
    assert f"{facts['cores']} cores" in text
    assert "command: regraft demo --set dashboard.secret=... --set redis.url=... -q" in text
    _Page(text)


def test_plans_show_what_they_were_to_save_and_what_they_saved() -> None:
    """Gains on the traffic before and after, not costs of different traffic; the curve has each plan's number."""
    plan = small_plan()
    gained = [msgspec.structs.replace(one, gain_observed_per_s=25.0) for one in plan.proposals]
    plan = msgspec.structs.replace(
        plan, proposals=tuple(gained), cost_before_per_s=90.0, cost_predicted_per_s=40.0, plan="plan-12"
    )
    text = build_report(replace(small_run(), plans=(plan,)))
    share = 25 * len(gained) / 50
    assert f'<td class="number">50</td><td class="number">{25 * len(gained)}</td><td class="number">{share:.0%}' in text
    assert ">12</text>" in text


def test_a_plan_that_is_being_verified_counts_as_executed() -> None:
    """The overlay was rewired, even if it is not known yet what that saves."""
    second = msgspec.structs.replace(small_plan(PlanPhase.VERIFYING), plan="plan-2")
    text = build_report(replace(small_run(), plans=(small_plan(), second)))
    assert "rewired 2 times" in text
    assert "2 (0), 1 still being verified" in text


def test_figures_are_the_same_for_the_same_run() -> None:
    """Reports can be compared byte for byte."""
    assert build_report(small_run()) == build_report(small_run())


def test_figures_are_svg_with_a_description() -> None:
    """Readers who cannot see the curve get a text that describes it."""
    root = ElementTree.fromstring(draw_cost_curve(small_run()))
    assert root.get("role") == "img"
    assert "cost" in (root.get("aria-label") or "")


def test_drawings_have_the_colours_of_the_page() -> None:
    """On a dark page no picture is white and no line black: everything without a specific colour follows the theme."""
    drawings = re.findall(r"<svg.*?</svg>", build_report(small_run()), re.DOTALL)
    assert len(drawings) == 3
    for drawing in drawings:
        assert not set(re.findall(r"#(?:000000|333333|ffffff)", drawing))
        assert "var(--ink)" in drawing
        assert "var(--page)" in drawing


def test_brokers_are_drawn_by_their_distances() -> None:
    """Brokers on a line keep their order, and the farthest pair is farthest apart in the picture."""
    positions = place_brokers(small_inventory())
    apart = np.linalg.norm(positions[:, None] - positions[None], axis=2)
    assert apart.argmax() in (3, 12)
    assert apart[0, 1] < apart[0, 2] < apart[0, 3]


def test_the_report_shows_each_move_with_its_reason_and_gain() -> None:
    """Each move of a publisher has its own line with predicted and observed gain; a run without moves says so."""
    move = Proposal(
        "relocate_publishers_joint", (), (), 90.0, 60.0, 1.0, "nearer & cheaper",
        moves=(ClientMove("ibm", "b00", "b03"),), gain_observed_per_s=28.5,
    )  # fmt: skip
    plan = small_plan()
    plan = msgspec.structs.replace(plan, proposals=(*plan.proposals, move), moves=move.moves)
    text = build_report(replace(small_run(), plans=(plan,)))
    (row,) = re.findall(r"<tr><td>plan-1</td><td>ibm</td>.*?</tr>", text)
    cells = re.findall(r"<td[^>]*>([^<]*)</td>", row)
    assert cells[2:] == ["b00", "b03", "", "completed", "30.0", "28.5"]
    assert "<p>Nearer &amp; cheaper:</p>" in text
    assert "1 publisher moved: see below" in text
    assert "No publishers were moved" in build_report(small_run())


def test_the_report_compares_every_planner_on_the_same_traffic() -> None:
    """Curve and table have the acting planner, its shadow and the initial overlay."""
    text = build_report(small_run())
    assert "shadow: swap_links_ci" in text
    (row,) = re.findall(r"<tr><td>swap_links_ci</td>.*?</tr>", text)
    # Bootstrap 164.8 on the compared windows; 60 in each of the 12 complete windows that the shadow saw.
    assert re.findall(r"<td[^>]*>([^<]*)</td>", row)[1:6] == ["shadow", "60.0", "63.6%", "60.0", "2"]
    (row,) = re.findall(r"<tr><td>swap_links_cost</td>.*?</tr>", text)
    assert re.findall(r"<td[^>]*>([^<]*)</td>", row)[1:6] == ["acting", "43.4", "73.7%", "65.0", "1"]


def test_the_report_says_if_a_shadow_failed_or_restarted() -> None:
    """Figures of such a shadow are marked, and its error is shown as text."""
    shadow = replace(small_shadow(None), errors=3, error_text="KeyError: <b00>", starts=2)
    text = build_report(replace(small_run(), shadows=(shadow,)))
    assert "swap_links_ci failed 3 times: KeyError: &lt;b00&gt;." in text
    assert "Shadow planners started 2 times" in text
    assert "There was no shadow planner" in build_report(empty_run())


def test_the_report_of_a_ring_counts_users_and_ids() -> None:
    """Hundreds of users are counted by proposal, not listed; the cost is explained in messages and hops."""
    assert "Brokers left 12 clusters to a broker other than" in build_report(scot_run())
    text = build_report(ring_run())
    assert "Users that moved and IDs that were reassigned" in text
    assert "2 users &lt;find&gt; others" in text
    assert "25.0% less than without moves" in text
    assert "IDs reassigned" in text
    assert "messages from each topic" in text
    assert "Publishers that moved" not in text
    page = _Page(text)
    assert page.open == []


def test_long_names_in_a_legend_are_wrapped() -> None:
    """Two columns of labels are as wide as the page; the names of joined planners are not broken."""
    joined = "link_regions_scot+exchange_places_scot+move_publishers_scot+relieve_links_scot"
    text = draw_cost_curve(replace(small_run(), planner=joined))
    shown = [line for line in re.findall(r">([^<>]+)</(?:text|tspan)>", text) if "_scot" in line]
    assert max(map(len, shown)) <= LABEL_LENGTH_MAX
    assert "".join(shown).endswith(f"({joined})")
