"""Settings are checked individually and against each other, and all errors are reported at once."""

import threading
from dataclasses import replace
from pathlib import Path

import pytest

from regraft.controller.kinds.find_kind import kind_of
from regraft.controller.kinds.ring.ring_state import RingContext
from regraft.controller.kinds.tree.tree_state import TreeContext
from regraft.controller.planners.planner_registry import kind_errors, own_errors, planner_errors
from regraft.controller.planners.shared_settings import HorizonSettings
from regraft.controller.run_controller import ControllerSettingsError, run_controller
from regraft.controller.settings.controller_settings import ControllerSettings
from regraft.controller.settings.decision_settings import DecisionSettings
from regraft.overlay.inventory.inventory import InventoryError
from tests.controller.scripted_ring import ring_inventory
from tests.overlay.small_overlays import inventory_of, line_of

GOOD = ControllerSettings(bootstrap="127.0.0.1:9092", inventory_path=Path("inventory.json"))


def test_defaults_are_sound() -> None:
    """The default settings have no error."""
    assert GOOD.errors() == []


def test_all_errors_are_reported_at_once() -> None:
    """Each wrong value is named with its limit."""
    bad = ControllerSettings(
        bootstrap="",
        inventory_path=Path("inventory.json"),
        planner="swap_links",
        shadow_planners=("swap_link", "swap_link"),
        horizon_lifetimes=0.0,
        subscription_lifetime_s=-1.0,
        planners={"swap_links_ci": HorizonSettings(horizon_hops=1)},
        degree_max=1,
        instance="c\n1",
        decision=DecisionSettings(changes_per_plan_max=0, pay_back_s=0.0, gain_share_min=1.0),
    )
    errors = "\n".join(bad.errors() + planner_errors(bad) + own_errors(bad))
    for named in (
        "bootstrap is empty",
        "planner 'swap_links' is unknown: did you mean swap_links_ci?",
        "shadow planner 'swap_link' is unknown: did you mean swap_links_ci?",
        "shadow_planners are swap_link, swap_link: name each once",
        "horizon_lifetimes is 0.0: must be above 0",
        "subscription_lifetime_s is -1.0: must be above 0, or none",
        "planners.swap_links_ci: horizon_hops is 1",
        "degree_max is 1",
        "instance is 'c\\n1': a readable name",
        "changes_per_plan_max is 0: must be at least 1",
        "pay_back_s is 0.0",
        "gain_share_min is 1.0",
    ):
        assert named in errors
    assert len(bad.errors() + planner_errors(bad) + own_errors(bad)) == 12


def test_degree_cap_comes_from_the_inventory_unless_set() -> None:
    """The planner gets the inventory's cap or that of the settings, and the bounds of a plan."""
    inventory = replace(inventory_of(line_of(4), {}), degree_max=8)
    context = kind_of(inventory, GOOD).planner_context(16, GOOD.decision)
    bounds = {"proposals_max": 16, "moves_max": 24, "links_max": 12, "degree_max": 8, "subscribers_max": 500}
    bounds["single_max"] = 24
    assert context == TreeContext(**bounds, frailty_weight=0.3)
    assert kind_of(inventory, replace(GOOD, degree_max=5)).planner_context(16, GOOD.decision) == replace(
        context, degree_max=5
    )


def test_the_planner_gets_the_rings_weights_and_caps() -> None:
    """Weights and caps of the ring are passed to the planner unchanged, and their errors are reported."""
    settings = replace(GOOD, ring_delay_weight=0.5, user_load_max=1.5)
    context = kind_of(ring_inventory(), settings).planner_context(7, GOOD.decision)
    assert context == RingContext(proposals_max=7, moves_max=500, delay_weight=0.5, user_load_max=1.5)
    assert replace(GOOD, user_load_max=0.5).errors()[0].startswith("user_load_max is 0.5: must be at least 1")


def test_a_planner_moves_no_more_users_than_the_limit_of_a_plan() -> None:
    """Otherwise its only proposal would be refused as a whole, again and again."""
    small = DecisionSettings(users_per_plan_max=70)
    assert kind_of(ring_inventory(), GOOD).planner_context(16, small).moves_max == 70
    assert DecisionSettings(users_per_plan_max=0).errors() == ["users_per_plan_max is 0: must be at least 1"]


def test_a_planner_must_suit_the_overlay(tmp_path: Path) -> None:
    """A planner of trees on a ring, or the reverse, stops the start; the message lists the planners that fit."""
    assert kind_errors(GOOD, "tree") == []
    ring = ring_inventory()
    errors = kind_errors(replace(GOOD, shadow_planners=("place_users_dynatops", "swap_links_ci")), "ring")
    assert [error.split(":")[0] for error in errors] == [
        "planner 'swap_links_cost' does not plan for this overlay's kind (ring)",
        "planner 'relocate_publishers_joint' does not plan for this overlay's kind (ring)",
        "planner 'place_clients_cost' does not plan for this overlay's kind (ring)",
        "planner 'escape_overlay_cost' does not plan for this overlay's kind (ring)",
        "shadow planner 'swap_links_ci' does not plan for this overlay's kind (ring)",
    ]
    assert "use one of place_users_dynatops" in errors[0]
    (error,) = kind_errors(replace(GOOD, planner="swap_links_ci+place_users_dynatops"), "tree")
    assert error.startswith(
        "planner 'place_users_dynatops' does not plan for this overlay's kind (tree): use one of es"
    )
    ring.save(tmp_path / "ring.json")
    with pytest.raises(ControllerSettingsError, match="does not plan for this overlay's kind"):
        run_controller(replace(GOOD, inventory_path=tmp_path / "ring.json"), threading.Event())


def test_the_controller_does_not_start_with_errors(tmp_path: Path) -> None:
    """Wrong settings and an unusable inventory stop the start with one clear error."""
    stop = threading.Event()
    with pytest.raises(ControllerSettingsError, match=r"cannot be used:\n- bootstrap is empty"):
        run_controller(ControllerSettings(bootstrap="", inventory_path=Path("i")), stop)
    with pytest.raises(InventoryError, match=r"absent\.json"):
        run_controller(ControllerSettings(bootstrap="x:1", inventory_path=tmp_path / "absent.json"), stop)
