"""Find planners by name, built-in ones and those of other packages, and check the ones that the settings name.

Built-in planners are listed in :mod:`controller.planners`. Another package offers planners by entry points of the group
``regraft.planners``: the planner's name and the location of its PlannerSpec (``roll_dice = "dice.roll_dice:SPEC"``).
Such a package is imported only if one of its planners is named, so a broken one does not affect others.
"""

from __future__ import annotations

import sys
from importlib import import_module
from typing import Any

from regraft.controller.planners import BUILT_IN
from regraft.controller.settings.controller_settings import ControllerSettings
from regraft.controller.settings.planner_settings import PlannerSettings
from regraft.controller.state.planner_interface import AnyPlannerSpec, Planner, PlannerSpec
from regraft.infra.process.plug_ins import (
    PlugInError,
    load_part,
    offered_parts,
    settings_error,
    the_only_one,
)
from regraft.overlay.known_kinds import KINDS
from regraft.schemas.texts import name_near

CHAIN = "+"  # Joins the names of planners that contribute to the same plan, one after the other.
GROUP = "regraft.planners"
OF_THE_LAB = (  # Yardsticks of the papers.
    "relocate_publisher_grape",
    "relocate_publisher_pop",
    "swap_links_ci_paper",
    "swap_links_lmit",
    "swap_links_lmst",
)


class PlannerError(ValueError):
    """A planner is not available; the message begins with its name and says why."""


def _built_in() -> dict[str, AnyPlannerSpec]:
    specs: list[AnyPlannerSpec] = [import_module(path).SPEC for path in BUILT_IN]
    return {spec.name: spec for spec in specs}


PLANNERS = _built_in()


def planner_spec(name: str) -> AnyPlannerSpec:
    """Return the planner of this name. Raises PlannerError if there is none, more than one, or it is broken."""
    offered = offered_parts(GROUP, tuple(sys.path)).get(name, ())
    if not offered and name in PLANNERS:
        return PLANNERS[name]
    if not offered and name in OF_THE_LAB:
        raise PlannerError(f"{name!r} is a planner of Regraft's lab: run `pip install ./lab` in a checkout")
    if not offered:
        way_out = name_near(name, known_names(), f"use one of {', '.join(known_names())}")
        raise PlannerError(f"{name!r} is unknown: {way_out}")
    try:
        spec: AnyPlannerSpec = load_part(
            the_only_one(name, name in PLANNERS, offered), "planner", PlannerSpec, _spec_error
        )
        return spec
    except PlugInError as error:
        raise PlannerError(str(error)) from error


def known_names() -> list[str]:
    """Return the names of all planners, built-in ones and those of other packages; imports none of the latter."""
    return sorted({*PLANNERS, *offered_parts(GROUP, tuple(sys.path))})


def planner_names(chain: str) -> tuple[str, ...]:
    """Return the names in a chain such as ``swap_links_cost+relocate_publishers_joint``, in order."""
    return tuple(name.strip() for name in chain.split(CHAIN))


def planners_of(chain: str, settings: ControllerSettings) -> tuple[Planner, ...]:
    """Return the planners of a chain with their settings. Raises PlannerError if one is not available."""
    specs = [planner_spec(name) for name in planner_names(chain)]
    return tuple(spec.with_settings(settings.planners.get(spec.name, spec.settings())) for spec in specs)


def planner_of(name: str, **settings: object) -> Planner:
    """Return a planner with these settings, and defaults for all others.

    Raises PlannerError if it is not available, and TypeError for a setting that it does not have.
    """
    spec = planner_spec(name)
    return spec.with_settings(spec.settings(**settings))


def planner_errors(settings: ControllerSettings) -> list[str]:
    """Return one sentence for each planner in the settings that is not available."""
    errors = []
    for what, name in _named_in(settings):
        try:
            planner_spec(name)
        except PlannerError as error:
            errors.append(f"{what} {error}")
    return errors


def own_errors(settings: ControllerSettings) -> list[str]:
    """Return what is wrong with the planners' own settings, one sentence each."""
    return [f"planners.{name}: {error}" for name, own in settings.planners.items() for error in own.errors()]


def kind_errors(settings: ControllerSettings, kind: str) -> list[str]:
    """Return one sentence for each planner in the settings that does not plan for this kind of overlay.

    Raises PlannerError if a planner is not available.
    """
    planned = sorted(name for name, spec in PLANNERS.items() if spec.kind == kind)
    return [
        f"{what} {name!r} does not plan for this overlay's kind ({kind}): use one of {', '.join(planned)}, "
        f"or several of them joined by {CHAIN}"
        for what, name in _named_in(settings)
        if planner_spec(name).kind != kind
    ]


def _named_in(settings: ControllerSettings) -> list[tuple[str, str]]:
    shadows = dict.fromkeys(settings.shadow_planners)
    chains = [("planner", settings.planner), *(("shadow planner", chain) for chain in shadows)]
    return [(what, name) for what, chain in chains for name in planner_names(chain)]


def _spec_error(spec: AnyPlannerSpec) -> str:
    """Return what else is wrong with a package's planner, or an empty string."""
    if spec.kind not in KINDS:
        return f"it is for overlays of kind {spec.kind!r}, known kinds are {', '.join(KINDS)}"
    plan: Any = spec.plan
    if not callable(plan):
        return f"its plan is a {type(plan).__name__}, not a function"
    return settings_error(spec.settings, PlannerSettings)
