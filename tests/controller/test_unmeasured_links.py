"""The loop when the inventory's link costs are placeholders: what it decides on, and when it verifies."""

from regraft.controller.settings.controller_settings import LinkSettings
from regraft.controller.windows.measure_links import VALUES_MIN
from regraft.schemas.event import EventKind
from regraft.schemas.plan import PlanPhase
from tests.controller.scripted_overlay import ScriptedOverlay, settings_of
from tests.controller.test_control_loop import INVENTORY, TREE, far_ends

NEW = ("b00", "b04")  # the cheapest link by the inventory
RTTS_MS = dict.fromkeys(TREE.links, 60.0)


def overlay_of(**changes: object) -> ScriptedOverlay:
    links = LinkSettings(estimate_unmeasured=True)
    return ScriptedOverlay(INVENTORY, far_ends, settings_of(links=links, **changes))


def verifying_overlay(**changes: object) -> ScriptedOverlay:
    """Return an overlay whose plan has been executed, over a link without measurements."""
    overlay = overlay_of(**changes)
    overlay.rtts_ms = RTTS_MS
    while overlay.phases != [PlanPhase.VERIFYING]:
        overlay.tick()
    (plan,) = overlay.plans
    assert plan.links_added == (NEW,)
    return overlay


def test_nothing_is_planned_on_placeholders_alone() -> None:
    """Once links are measured, the others are assumed to cost as much as the most expensive, not 2 as in the file."""
    overlay = overlay_of()
    overlay.run_windows(8)
    assert overlay.plans == []
    (text,) = overlay.events_of(EventKind.PROPOSAL_REFUSED)
    assert "no link has been measured yet, and the inventory's costs are placeholders" in text
    overlay.rtts_ms = RTTS_MS | {TREE.links[0]: 90.0}
    overlay.run_windows(VALUES_MIN)
    fleet = overlay.loop.state.fleet
    assert fleet.inventory.cost_of_link(*NEW) == 45.0
    assert fleet.is_estimate(NEW)
    assert not any(fleet.is_estimate(pair) for pair in TREE.links)
    overlay.run_windows(1)
    (plan,) = overlay.plans
    assert plan.history[0].reason == "chosen; the cost of b00-b04 is an estimate until measured"


def test_a_plan_is_verified_once_its_links_are_measured() -> None:
    """However many windows have closed until then; it costs more than the four links that it was to shorten."""
    overlay = verifying_overlay()
    overlay.run_windows(4 * overlay.settings.verify_windows)
    assert overlay.phases == [PlanPhase.VERIFYING]
    overlay.rtts_ms = RTTS_MS | {NEW: 600.0}
    overlay.run_windows(VALUES_MIN + 2)
    plan, undo = overlay.plans
    assert plan.history[-1].reason == f"rolled back by {undo.plan}"
    assert undo.undoes == plan.plan
    assert undo.links_removed == (NEW,)


def test_a_plan_whose_links_stay_unmeasured_is_closed_unverified() -> None:
    """An estimate cannot be verified against itself."""
    overlay = verifying_overlay(verify_ms_max=6_000)
    overlay.run_windows(8)
    (plan,) = overlay.plans
    assert plan.phase is PlanPhase.COMPLETED
    assert plan.cost_observed_per_s is None
    why = "no measurement of b00-b04, whose cost is an estimate, within 6000 ms"
    assert plan.history[-1].reason == f"not verified: {why}"
