"""Add to a demo's flags the settings of its scenario, the shift of interests and outages, unless the user chose others.

What a scenario sets belongs to :mod:`settings.scenarios`.
"""

from __future__ import annotations

from collections.abc import Container, Mapping
from typing import Any

from regraft.producers.emulator.outage_schedule import SITE
from regraft.producers.emulator_settings import REAL_BROKERS, possible_outages
from regraft.producers.workloads.field_texts import EMULATOR_TEXTS
from regraft.producers.workloads.stock_settings import RegimeChange
from regraft.settings.read_sources import Flags, merged
from regraft.settings.run_settings import Settings
from regraft.settings.scenarios import scenario_of


def demo_flags(flags: Flags, wanted: Settings) -> Flags:
    """Return the flags with what the demo sets unless the user did: the scenario, the shift, unsigned orders."""
    running_s, workload = wanted.demo.running_s, wanted.emulator.workload
    scenario = scenario_of(wanted.demo.scenario, has_real_brokers=wanted.emulator.brokers in REAL_BROKERS)
    acting = {"planner": wanted.controller.planner, **_unless_chosen(scenario.controller, wanted.chosen, "controller.")}
    shadows: Any = scenario.demo.get("shadow_planners", wanted.demo.shadow_planners)
    others = [name for name in shadows if name != acting["planner"]]
    emulator = dict(scenario.emulator)
    if given := scenario.workload_for(running_s):
        emulator["workload"] = given
    if scenario.failing:
        at_s, for_s = scenario.failing_from * running_s, scenario.failing_for * running_s
        emulator["outages"] = [f"death {SITE}{scenario.failing} at {at_s:g} for {for_s:g}"]
    preset = {
        "controller": {**scenario.controller, "shadow_planners": others, "dry_run": False},
        "emulator": emulator,
        "demo": {name: value for name, value in scenario.demo.items() if name != "shadow_planners"},
        "orders": {"allow_unsigned": True},  # Only the user who runs the demo can reach its Kafka.
        "planners": scenario.planners,
    }
    tables = merged(flags, _unless_chosen(preset, wanted.chosen))
    if scenario.has_shift and workload.regime_change_s is None:
        at_s = running_s * wanted.demo.regime_change_share
        shift = f"{workload.regime_change or RegimeChange.INTERESTS} at {at_s:.10g}"
        tables = merged(tables, {"emulator": {"workload": {"regime_change": shift}}})
    return tables


def _unless_chosen(tables: Mapping[str, Any], chosen: Container[str], path: str = "") -> dict[str, Any]:
    """Return nested tables without the settings whose full names are chosen."""
    return {
        name: _unless_chosen(value, chosen, f"{path}{name}.") if isinstance(value, Mapping) else value
        for name, value in tables.items()
        if f"{path}{name}" not in chosen
    }


def chaos_flags(flags: Flags, wanted: Settings) -> Flags:
    """Return the flags with random outages of all kinds unless the user set any: one at a time, on average."""
    pause_s = wanted.demo.kill_every_s
    if wanted.emulator.random_outages is not None:
        return flags
    given = {"chaos_every_s": pause_s, "chaos_for_s": pause_s, "chaos_until_s": wanted.demo.running_s}
    kinds = possible_outages(flags.get("emulator", {}).get("brokers", wanted.emulator.brokers))
    text = EMULATOR_TEXTS["random_outages"].text({**given, "chaos_kinds": kinds})
    return merged(flags, {"emulator": {"random_outages": text}})
