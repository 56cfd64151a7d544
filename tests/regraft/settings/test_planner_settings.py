"""Each planner has its own table in the settings; earlier names are reported, and accepted in recordings."""

from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from regraft.controller.planners.planner_registry import OF_THE_LAB, PLANNERS, planner_spec
from regraft.controller.planners.shared_settings import HorizonSettings
from regraft.controller.planners.tree.relocate_publishers_joint import JointSettings
from regraft.controller.settings.controller_settings import ControllerSettings
from regraft.settings.moved_settings import (
    FIXED,
    RENAMED,
    TO_PLANNERS,
    fixed_text,
    moved_to,
    with_new_names,
    with_renamed,
)
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
    assert errors_of(file=file) == ("planners is 3: input should be a valid dictionary (the default is {})",)


@pytest.mark.parametrize("name", sorted(TO_PLANNERS))
def test_an_old_name_is_answered_with_the_new_one(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """This holds for any source; each new name is a setting of that planner and not of the controller."""
    monkeypatch.setenv(f"REGRAFT_CONTROLLER__{name.upper()}", "1")
    (error,) = errors_of()
    new = [f"planners.{planner}.{name}" for planner in TO_PLANNERS[name]]
    if all(each in FIXED for each in new):
        assert error == f"controller.{name} is {fixed_text(new[0])}: remove it"
    else:
        shown = " and ".join(each for each in new if each not in FIXED)
        assert error == f"controller.{name} has moved, because each planner has its own settings: give {shown} instead"
    assert all(
        name in {field.name for field in fields(planner_spec(planner).settings)} for planner in TO_PLANNERS[name]
    )
    assert name not in {field.name for field in fields(ControllerSettings)}
    assert moved_to(f"emulator.{name}") == ""


def test_every_planner_that_had_a_setting_gets_it_from_an_old_recording() -> None:
    """What was one value for all of them becomes that of each; present names override it, and nothing else changes."""
    specs = [*PLANNERS.values(), *map(planner_spec, OF_THE_LAB)]
    had = {field.name for spec in specs for field in fields(spec.settings)} & TO_PLANNERS.keys()
    assert {name: set(TO_PLANNERS[name]) for name in had} == {
        name: {spec.name for spec in specs if name in {field.name for field in fields(spec.settings)}} for name in had
    }
    recorded = {"run": {"seed": 3}, "controller": {"seed": 1, "ring_free_s": 60.0}}
    new = with_new_names({**recorded, "planners": {"reassign_ids_ssbr": {"ring_free_s": 30.0}}})
    assert new["planners"] == {
        "reassign_ids_ssbr": {"ring_free_s": 30.0},
        "reassign_ids_assignment": {"ring_free_s": 60.0},
    }
    assert (new["run"], new["controller"]) == ({"seed": 3}, {"seed": 1})
    assert with_new_names({"run": {}}) == {"run": {}}


@pytest.mark.parametrize("old", sorted(RENAMED))
def test_a_renamed_setting_is_accepted_with_a_warning(old: str) -> None:
    """For one release, from flags, file and environment; one that is fixed by now is an error with its value."""
    warned: list[tuple[str, str]] = []
    given: Any = 3
    for part in reversed(old.split(".")):
        given = {part: given}
    named = with_renamed(given, lambda *names: warned.append(names))
    if RENAMED[old] in FIXED:
        assert (named, warned) == (given, [])
        assert errors_of(flags=given)[0] == f"{old} is {fixed_text(RENAMED[old])}: remove it"
        return
    assert warned == [(old, RENAMED[old])]
    found: Any = named
    for part in RENAMED[old].split("."):
        found = found[part]
    assert found == ("env:3" if old.endswith("_variable") else 3)


@pytest.mark.parametrize(
    ("connector", "used"), [("mqtt://h:1", "mqtt"), ("mqtts://h:1", "mqtt"), ("amqp://h:1", "amqp")]
)
def test_a_setting_that_two_connectors_have_goes_to_the_one_in_use(
    connector: str, used: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whichever source names the connector, and whichever the setting."""
    file = tmp_path / "own.toml"
    file.write_text(f'[node]\nconnector = "{connector}"\nconnector_filters = ["a"]\n')
    monkeypatch.setenv("REGRAFT_NODE__DURABLE_SESSION", "true")
    own: Any = load_settings({"node": {"broker": "b01"}}, file).node.connectors[used]
    assert (own.filters, own.durable_session) == (("a",), True)
    both = {"node": {"connector_filters": ["b"]}, "connectors": {used: {"filters": ["c"]}}}
    new = f"connectors.{used}.filters"
    assert errors_of(flags=both, file=file) == (
        f"node.connector_filters is now called {new}, which is given as well: remove the old name",
    )


def test_an_old_name_of_another_connector_is_refused_under_its_new_one() -> None:
    """It was refused before, too."""
    (error,) = errors_of(flags={"node": {"connector": "nats://h:1", "connector_filters": ["a"]}})
    assert error.startswith("connectors.mqtt.filters is a, but it belongs to the connector mqtt")


def test_renamed_settings_reach_the_run_from_every_source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With both names given, the old one is an error."""
    file = tmp_path / "own.toml"
    file.write_text('[node]\ndoor_user = "regraft"\n')
    monkeypatch.setenv("REGRAFT_NODE__DOOR", "nats://127.0.0.1:7422")
    node = load_settings({"node": {"door_password_file": "secret"}}, file).node
    assert (node.connector, node.connector_user) == ("nats://127.0.0.1:7422", "regraft")
    assert node.connector_password_file == Path("secret")
    both = {"node": {"door_api": "http://a:1", "connector_api": "http://a:1"}}
    (error,) = [each for each in errors_of(flags=both, file=file) if "door" in each]
    assert error == "node.door_api is now called node.connector_api, which is given as well: remove the old name"


@pytest.mark.parametrize("old", sorted(name for name in RENAMED if name.startswith("planners.")))
def test_a_renamed_setting_of_a_planner_is_read_from_old_recordings(old: str) -> None:
    """The new name is a field of the planner's settings, the old one is none."""
    _, planner, old_name = old.split(".")
    _, to, new_name = RENAMED[old].split(".")
    has, had = ({field.name for field in fields(planner_spec(name).settings)} for name in (to, planner))
    assert (old_name in had, new_name in has) == (False, True)
    assert with_new_names({"planners": {planner: {old_name: 3}}})["planners"][to] == {new_name: 3}
