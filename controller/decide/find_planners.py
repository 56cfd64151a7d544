"""The planners by name, and those that the settings name."""

from __future__ import annotations

from importlib import import_module

from controller.controller_settings import ControllerSettings
from controller.planners import BUILT_IN
from controller.state.planner_interface import AnyPlannerSpec, Planner, PlannerSettings

CHAIN = "+"  # Joins the names of planners that decide one after the other on one plan.


def _built_in() -> dict[str, AnyPlannerSpec]:
    specs: list[AnyPlannerSpec] = [import_module(path).SPEC for path in BUILT_IN]
    return {spec.name: spec for spec in specs}


PLANNERS = _built_in()


def planner_names(chain: str) -> tuple[str, ...]:
    """Return the names in a chain such as ``swap_links_cost+relocate_publishers_joint``, in their order."""
    return tuple(name.strip() for name in chain.split(CHAIN))


def planners_of(chain: str, settings: ControllerSettings) -> tuple[Planner, ...]:
    """Return the planners of a chain with their settings. Raises KeyError for a name that is not known."""
    specs = [PLANNERS[name] for name in planner_names(chain)]
    return tuple(spec.with_settings(_settings_of(spec, settings)) for spec in specs)


def planner_of(name: str, **told: object) -> Planner:
    """Return a planner with these settings and the defaults of all others.

    Raises KeyError for a name that is not known and TypeError for a setting that the planner does not have.
    """
    spec = PLANNERS[name]
    return spec.with_settings(spec.settings(**told))


def planners_of_kind(kind: str) -> tuple[str, ...]:
    """Return the names of the planners for this kind of overlay."""
    return tuple(sorted(name for name, spec in PLANNERS.items() if spec.kind == kind))


def planner_faults(settings: ControllerSettings) -> list[str]:
    """Return which planners that the settings name are not known, one sentence each."""
    known = ", ".join(sorted(PLANNERS))
    return [
        f"{what} {name!r} is unknown, known are {known}, or several joined by {CHAIN}"
        for what, chain in _named_in(settings)
        for name in planner_names(chain)
        if name not in PLANNERS
    ]


def own_faults(settings: ControllerSettings) -> list[str]:
    """Return what is wrong with the planners' own settings, one sentence each."""
    return [f"planners.{name}: {fault}" for name, told in settings.planners.items() for fault in told.faults()]


def kind_faults(settings: ControllerSettings, kind: str) -> list[str]:
    """Return which planners that the settings name do not plan for this kind of overlay, one sentence each."""
    planned = planners_of_kind(kind)
    return [
        f"{what} {name!r} cannot plan for a {kind}, which the overlay is: take one of {', '.join(planned)}, "
        f"or several of them joined by {CHAIN}"
        for what, chain in _named_in(settings)
        for name in planner_names(chain)
        if name not in planned
    ]


def _settings_of(spec: AnyPlannerSpec, settings: ControllerSettings) -> PlannerSettings:
    given = settings.planners.get(spec.name)
    return spec.settings() if given is None else given


def _named_in(settings: ControllerSettings) -> list[tuple[str, str]]:
    shadows = dict.fromkeys(settings.shadow_planners)
    return [("planner", settings.planner), *(("shadow planner", chain) for chain in shadows)]
