"""The planners by name, ours and those of other packages, and those that the settings name.

Ours are listed in :mod:`controller.planners`. Another package offers planners by entry points of the group
``regraft.planners``: the planner's name, and where its PlannerSpec is (``roll_dice = "dice.roll_dice:SPEC"``). Such a
package is imported only if one of its planners is named, so a broken one does not affect others.
"""

from __future__ import annotations

import dataclasses
import re
import sys
from functools import cache
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from typing import Any, get_type_hints

from regraft.controller.controller_settings import ControllerSettings
from regraft.controller.planners import BUILT_IN
from regraft.controller.state.planner_interface import AnyPlannerSpec, Planner, PlannerSettings, PlannerSpec
from regraft.overlay.kinds import KINDS

CHAIN = "+"  # Joins the names of planners that decide one after the other on one plan.
GROUP = "regraft.planners"
NAME = re.compile(r"[a-z][a-z0-9]*(_[a-z0-9]+)*")  # As it must stand in a chain, in TOML and in a variable.


class PlannerError(ValueError):
    """A planner is not available; the message begins with its name and says why."""


def _built_in() -> dict[str, AnyPlannerSpec]:
    specs: list[AnyPlannerSpec] = [import_module(path).SPEC for path in BUILT_IN]
    return {spec.name: spec for spec in specs}


PLANNERS = _built_in()


def planner_spec(name: str) -> AnyPlannerSpec:
    """Return the planner of this name. Raises PlannerError where there is none or more than one, or it is broken."""
    offered = _plug_ins(tuple(sys.path)).get(name, ())
    if not offered and name in PLANNERS:
        return PLANNERS[name]
    if not offered:
        known = ", ".join(sorted({*PLANNERS, *_plug_ins(tuple(sys.path))}))
        raise PlannerError(f"{name!r} is unknown: use one of {known}")
    places = [*(["Regraft itself"] if name in PLANNERS else []), *map(_place, offered)]
    if len(places) > 1:
        raise PlannerError(f"{name!r} is installed more than once, in {' and in '.join(places)}: uninstall all but one")
    return _loaded(offered[0])


def planner_names(chain: str) -> tuple[str, ...]:
    """Return the names in a chain such as ``swap_links_cost+relocate_publishers_joint``, in their order."""
    return tuple(name.strip() for name in chain.split(CHAIN))


def planners_of(chain: str, settings: ControllerSettings) -> tuple[Planner, ...]:
    """Return the planners of a chain with their settings. Raises PlannerError."""
    specs = [planner_spec(name) for name in planner_names(chain)]
    return tuple(spec.with_settings(settings.planners.get(spec.name, spec.settings())) for spec in specs)


def planner_of(name: str, **settings: object) -> Planner:
    """Return a planner with these settings and the defaults of all others.

    Raises PlannerError, and TypeError for a setting that the planner does not have.
    """
    spec = planner_spec(name)
    return spec.with_settings(spec.settings(**settings))


def planner_faults(settings: ControllerSettings) -> list[str]:
    """Return which planners in the settings are not available, one sentence each."""
    found = []
    for what, name in _named_in(settings):
        try:
            planner_spec(name)
        except PlannerError as error:
            found.append(f"{what} {error}")
    return found


def own_faults(settings: ControllerSettings) -> list[str]:
    """Return what is wrong with the planners' own settings, one sentence each."""
    return [f"planners.{name}: {fault}" for name, own in settings.planners.items() for fault in own.faults()]


def kind_faults(settings: ControllerSettings, kind: str) -> list[str]:
    """Return which planners that the settings name do not plan for this kind of overlay, one sentence each.

    Raises PlannerError if one is not available.
    """
    planned = sorted(name for name, spec in PLANNERS.items() if spec.kind == kind)
    return [
        f"{what} {name!r} cannot plan for a {kind}, which the overlay is: take one of {', '.join(planned)}, "
        f"or several of them joined by {CHAIN}"
        for what, name in _named_in(settings)
        if planner_spec(name).kind != kind
    ]


def _named_in(settings: ControllerSettings) -> list[tuple[str, str]]:
    shadows = dict.fromkeys(settings.shadow_planners)
    chains = [("planner", settings.planner), *(("shadow planner", chain) for chain in shadows)]
    return [(what, name) for what, chain in chains for name in planner_names(chain)]


@cache
def _plug_ins(path: tuple[str, ...]) -> dict[str, tuple[EntryPoint, ...]]:
    """Return what other packages on the path offer, by name; nothing is imported for it."""
    found: dict[str, tuple[EntryPoint, ...]] = {}
    for entry in entry_points(group=GROUP):
        found[entry.name] = (*found.get(entry.name, ()), entry)
    return found


def _place(entry: EntryPoint) -> str:
    package = "a package without a name" if entry.dist is None else entry.dist.name
    return f"{package} ({entry.value})"


@cache
def _loaded(entry: EntryPoint) -> AnyPlannerSpec:
    try:
        spec = entry.load()
    # A package of somebody else may raise anything when it is imported.
    except Exception as error:
        raise PlannerError(
            f"{entry.name!r} cannot be imported from {_place(entry)}, {type(error).__name__}: {error}: install what it "
            "needs, or another version of it"
        ) from error
    fault = _spec_fault(entry.name, spec)
    if fault:
        raise PlannerError(f"{entry.name!r} of {_place(entry)} is not a planner: {fault}")
    found: AnyPlannerSpec = spec
    return found


def _spec_fault(name: str, spec: object) -> str:
    """Return what is wrong with what a package offers under this name, empty when nothing is."""
    if not isinstance(spec, PlannerSpec):
        return f"it is a {type(spec).__name__}, not a PlannerSpec"
    if spec.name != name:
        return f"it calls itself {spec.name!r}, its entry point must have the same name"
    if not NAME.fullmatch(name):
        return "its name must be lower-case words joined by single underscores"
    if spec.kind not in KINDS:
        return f"it is for overlays of kind {spec.kind!r}, known are {', '.join(KINDS)}"
    plan: Any = spec.plan
    if not callable(plan):
        return f"its plan is a {type(plan).__name__}, not a function"
    settings: Any = spec.settings
    if not isinstance(settings, type) or not issubclass(settings, PlannerSettings):
        return f"its settings are {settings!r}, not a subclass of PlannerSettings"
    try:
        get_type_hints(settings)
    except NameError as error:
        return f"the types of its settings cannot be read at run time, {error}"
    without = [field.name for field in dataclasses.fields(settings) if _has_no_default(field)]
    return f"its settings {', '.join(without)} have no default" if without else ""


def _has_no_default(field: dataclasses.Field[object]) -> bool:
    return field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING
