"""Planners of other packages: found by their entry points, configured by the settings, called by the control loop."""

from dataclasses import replace
from pathlib import Path

import pytest

from regraft.controller.planners import planner_registry
from regraft.controller.planners.planner_registry import OF_THE_LAB, PLANNERS, PlannerError, kind_errors, planner_spec
from regraft.schemas.plan import PlanPhase
from regraft.settings.run_settings import Settings, SettingsError, load_settings
from tests.controller.planner_packages import SOURCE, PlannerPackages, planner_packages
from tests.controller.scripted_overlay import ScriptedOverlay
from tests.overlay.small_overlays import inventory_of, line_of


@pytest.fixture
def packages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> PlannerPackages:
    return planner_packages(tmp_path, monkeypatch)


def settings_with(planner: str, **chosen: object) -> Settings:
    return load_settings({"controller": {"planner": planner}, "planners": {planner: chosen} if chosen else {}})


def errors_of(planner: str, **chosen: object) -> tuple[str, ...]:
    with pytest.raises(SettingsError) as caught:
        settings_with(planner, **chosen)
    return caught.value.errors


def test_a_planner_of_another_package_is_configured_and_plans(packages: PlannerPackages) -> None:
    """Named as controller.planner and configured in its own table, its proposals are judged and executed like any."""
    packages.install("stars_one", SOURCE, join_all="SPEC")
    settings = settings_with("join_all", broker="b02", gain_per_s="7")
    assert settings.given["planners"]["join_all"] == {"broker": "b02", "gain_per_s": 7.0}
    assert {"planners.join_all.broker", "planners.join_all.gain_per_s"} < settings.chosen
    tree = line_of(5)
    acting = replace(
        settings.controller,
        dry_run=False,
        redis_url=None,
        status_file=None,
        tick_ms=100,
        decision=replace(settings.controller.decision, noise_factor=0.0, gain_share_min=0.0, window_age_ms_max=60_000),
    )
    overlay = ScriptedOverlay(inventory_of(tree, {}), lambda _: [{"b00", "b04"}, {"b02", "b04"}] * 10, acting)
    overlay.run_windows(6)
    assert [plan.phase for plan in overlay.plans][:1] == [PlanPhase.COMPLETED]
    assert {proposal.planner for proposal in overlay.plans[0].proposals} == {"join_all"}
    assert ("b02", "b04") in overlay.plans[0].links_added


def test_a_child_process_gets_its_settings(packages: PlannerPackages, monkeypatch: pytest.MonkeyPatch) -> None:
    """They pass through the environment like those of our own planners; errors in them are reported, too."""
    packages.install("stars_two", SOURCE, join_all="SPEC")
    settings = settings_with("join_all", broker="b03")
    for name, value in settings.to_environment().items():
        monkeypatch.setenv(name, value)
    assert load_settings() == settings
    assert errors_of("join_all", gain_per_s=0.0) == ("planners.join_all: gain_per_s is 0.0: must be above 0",)
    assert errors_of("join_all", brooker="b01") == ("planners.join_all.brooker is not a setting: did you mean broker?",)


def test_an_unknown_name_is_answered_with_those_of_other_packages_too(packages: PlannerPackages) -> None:
    """Listing them imports nothing."""
    packages.install("stars_three", "raise SystemError('imported')", join_all="SPEC")
    known = ", ".join(sorted({*PLANNERS, "join_all", *OF_THE_LAB}))
    assert errors_of("join_some") == (f"controller: planner 'join_some' is unknown: use one of {known}",)


def test_without_the_lab_its_planners_are_answered_with_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """With it, they are found like those of any other package."""
    assert {planner_spec(name).name for name in OF_THE_LAB} == set(OF_THE_LAB)
    monkeypatch.setattr(planner_registry, "offered_parts", lambda group, path: {})
    for name in OF_THE_LAB:
        (error,) = errors_of(name)
        assert error == (
            f"controller: planner {name!r} is a planner of Regraft's lab: run `pip install ./lab` in a checkout"
        )


BROKEN = """
    from dataclasses import dataclass
    from typing import Annotated
    from regraft.controller.state.planner_interface import PlannerSettings, PlannerSpec

    @dataclass(frozen=True)
    class Needy(PlannerSettings):
        wanted: Annotated[int, "a setting"]

    def plan(state, settings, context, rng):
        return []

    @dataclass(frozen=True)
    class Typed(PlannerSettings):
        names: "Annotated[Sequence[str], 'a setting']" = ()

    number = 3
    typed = PlannerSpec("typed", "tree", plan, Typed, "", "")
    mesh = PlannerSpec("mesh", "mesh", plan, PlannerSettings, "", "")
    other = PlannerSpec("another", "tree", plan, PlannerSettings, "", "")
    needy = PlannerSpec("needy", "tree", plan, Needy, "", "")
    plain = PlannerSpec("plain", "tree", plan, dict, "", "")
    idle = PlannerSpec("idle", "tree", None, PlannerSettings, "", "")
    Loud = PlannerSpec("Loud", "tree", plan, PlannerSettings, "", "")
"""


@pytest.mark.parametrize(
    ("name", "error"),
    [
        ("number", "it is a int, not a PlannerSpec"),
        ("mesh", "it is for overlays of kind 'mesh', known kinds are ring, scot, tree"),
        ("other", "it calls itself 'another', its entry point must have the same name"),
        ("typed", "the types of its settings cannot be read at run time, name 'Sequence' is not defined"),
        ("needy", "its settings wanted have no default"),
        ("plain", "its settings are <class 'dict'>, not a subclass of PlannerSettings"),
        ("idle", "its plan is a NoneType, not a function"),
        ("Loud", "its name must be lower-case words joined by single underscores"),
    ],
)
def test_an_invalid_planner_is_reported_if_it_is_named(packages: PlannerPackages, name: str, error: str) -> None:
    """One sentence at the start names the package that it is from."""
    package = f"broken_{name.lower()}"
    packages.install(package, BROKEN, **{name: name})
    error_text = f"planner '{name}' of {package} ({package}:{name}) is not a planner: {error}"
    assert errors_of(name) == (f"controller: {error_text}",)
    with pytest.raises(SettingsError) as caught:
        load_settings({"planners": {name: {}}})
    assert caught.value.errors == (f"planners.{name}: {error_text}",)


def test_a_package_that_cannot_be_imported_affects_only_runs_that_name_it(packages: PlannerPackages) -> None:
    """All other runs start as without it; the sentence contains the name of the missing module."""
    packages.install("lacking", "import no_such_library", join_all="SPEC")
    assert errors_of("join_all") == (
        "controller: planner 'join_all' cannot be imported from lacking (lacking:SPEC), ModuleNotFoundError: No module "
        "named 'no_such_library': install what it needs, or a different version of it",
    )
    assert "join_all" not in load_settings().controller.planners


def test_a_planner_name_must_be_unique(packages: PlannerPackages) -> None:
    """It would be ambiguous, whether the other planner is ours or from a second package."""
    packages.install("stars_four", SOURCE, join_all="SPEC", swap_links_ci="SPEC")
    packages.install("stars_five", SOURCE, join_all="SPEC")
    (error,) = errors_of("join_all")
    assert error.startswith("controller: planner 'join_all' is installed more than once, in stars_")
    assert error.endswith("): uninstall all but one")
    assert errors_of("swap_links_ci") == (
        "controller: planner 'swap_links_ci' is installed more than once, in Regraft itself and in stars_four "
        "(stars_four:SPEC): uninstall all but one",
    )
    assert "swap_links_ci" in load_settings().controller.planners


def test_a_planner_of_another_package_must_suit_the_overlay(packages: PlannerPackages) -> None:
    """Its kind is checked like that of our own planners."""
    packages.install("stars_six", SOURCE, join_all="SPEC")
    settings = settings_with("join_all").controller
    assert kind_errors(settings, "tree") == []
    assert kind_errors(settings, "ring")[0].startswith(
        "planner 'join_all' does not plan for this overlay's kind (ring)"
    )
    with pytest.raises(PlannerError, match="'join_none' is unknown"):
        planner_spec("join_none")
