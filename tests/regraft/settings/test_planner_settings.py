"""Each planner has its own table in the settings."""

from pathlib import Path

import pytest

from regraft.controller.planners.planner_registry import PLANNERS
from regraft.controller.planners.shared_settings import HorizonSettings
from regraft.controller.planners.tree.relocate_publishers_joint import JointSettings
from regraft.settings.run_settings import SettingsError, load_settings


def errors_of(**given: object) -> tuple[str, ...]:
    with pytest.raises(SettingsError) as caught:
        load_settings(**given)  # type: ignore[arg-type]
    return caught.value.errors


def test_flags_environment_and_file_reach_a_planner(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The closer to the call, the higher the priority of a value; all other planners have their defaults."""
    file = tmp_path / "own.toml"
    file.write_text("[planners.swap_links_ci]\nhorizon_hops = 5\n[planners.pack_drop]\ndetour_ms_max = 9\n")
    monkeypatch.setenv("REGRAFT_PLANNERS__SWAP_LINKS_CI__HORIZON_HOPS", "7")
    monkeypatch.setenv("REGRAFT_PLANNERS__RELOCATE_PUBLISHERS_JOINT__DELAY_WEIGHT", "0.5")
    settings = load_settings({"planners": {"swap_links_ci": {"horizon_hops": 6}}}, file)
    planners = settings.controller.planners
    assert planners["swap_links_ci"] == HorizonSettings(horizon_hops=6)
    assert planners["relocate_publishers_joint"] == JointSettings(delay_weight=0.5)
    assert planners["pack_drop"] == PLANNERS["pack_drop"].settings(detour_ms_max=9.0)
    given = ("swap_links_ci", "relocate_publishers_joint", "pack_drop")
    assert {name: one for name, one in planners.items() if name not in given} == {
        name: spec.settings() for name, spec in PLANNERS.items() if name not in given
    }
    assert "planners.swap_links_ci.horizon_hops" in settings.chosen
    assert settings.to_record()["planners"]["swap_links_ci"] == {"horizon_hops": 6}


def test_errors_of_planners_are_reported_with_all_others(tmp_path: Path) -> None:
    """Unknown planners and settings, wrong types and wrong values, each with its full name."""
    given = {
        "swap_links_ci": {"horizon_hop": 5, "horizon_hops": "many"},
        "swap_links_cl": {},
        "place_users_dynatops": 3,
    }
    assert sorted(errors_of(flags={"planners": given})) == [
        "planners.place_users_dynatops is 3: write a table, as in [planners.place_users_dynatops]",
        "planners.swap_links_ci.horizon_hop is not a setting: did you mean horizon_hops?",
        "planners.swap_links_ci.horizon_hops is 'many': input should be a valid integer, unable to parse string as an "
        "integer (the default is 4)",
        "planners.swap_links_cl: planner 'swap_links_cl' is unknown: did you mean swap_links_ci?",
    ]
    file = tmp_path / "own.toml"
    file.write_text("planners = 3\n")
    assert errors_of(file=file) == ("planners is given as a value: write a table, as in [planners]",)
