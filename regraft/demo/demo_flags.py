"""Add to a demo's flags the settings of its scenario, the shift of interests and outages, unless the user chose others.

What a scenario sets belongs to :mod:`settings.scenarios`.
"""

from __future__ import annotations

from typing import Any

from regraft.producers.emulator.outage_schedule import SITE
from regraft.producers.emulator_settings import REAL_BROKERS, possible_outages
from regraft.producers.workloads.field_texts import EMULATOR_TEXTS
from regraft.producers.workloads.stock_settings import RegimeChange
from regraft.settings.read_sources import Flags
from regraft.settings.run_settings import Settings
from regraft.settings.scenarios import scenario_of


def demo_flags(flags: Flags, wanted: Settings) -> Flags:
    """Return the flags with what the demo sets unless the user did: the scenario, the shift, unsigned orders."""
    merged: dict[str, dict[str, Any]] = {section: dict(values) for section, values in flags.items()}
    is_real = wanted.emulator.brokers in REAL_BROKERS
    scenario = scenario_of(wanted.demo.scenario, has_real_brokers=is_real)
    if scenario.has_shift and wanted.emulator.workload.regime_change_s is None:
        workload = {**merged.get("emulator", {}).get("workload", {})}
        at_s = wanted.demo.running_s * wanted.demo.regime_change_share
        workload["regime_change"] = f"{wanted.emulator.workload.regime_change or RegimeChange.INTERESTS} at {at_s:.10g}"
        merged.setdefault("emulator", {})["workload"] = workload
    preset: dict[str, Any] = {**scenario.controller, "dry_run": False}
    shadows: Any = scenario.demo.get("shadow_planners", wanted.demo.shadow_planners)
    acting = (
        wanted.controller.planner
        if "controller.planner" in wanted.chosen
        else preset.get("planner", wanted.controller.planner)
    )
    preset["shadow_planners"] = [name for name in shadows if name != acting]
    for name, value in preset.items():
        if f"controller.{name}" not in wanted.chosen:
            merged.setdefault("controller", {})[name] = value
    for name, value in scenario.emulator.items():
        if f"emulator.{name}" not in wanted.chosen:
            merged.setdefault("emulator", {})[name] = value
    for name, value in scenario.workload_for(wanted.demo.running_s).items():
        if f"emulator.workload.{name}" not in wanted.chosen:
            merged.setdefault("emulator", {}).setdefault("workload", {})[name] = value
    if scenario.failing and "emulator.outages" not in wanted.chosen:
        at_s, for_s = (share * wanted.demo.running_s for share in (scenario.failing_from, scenario.failing_for))
        merged.setdefault("emulator", {})["outages"] = [f"death {SITE}{scenario.failing} at {at_s:g} for {for_s:g}"]
    if "brokers" in scenario.demo and "demo.brokers" not in wanted.chosen:
        merged.setdefault("demo", {})["brokers"] = scenario.demo["brokers"]
    if "orders.allow_unsigned" not in wanted.chosen:  # Only the user who runs the demo can reach its Kafka.
        merged.setdefault("orders", {})["allow_unsigned"] = True
    planners = {name: dict(values) for name, values in merged.get("planners", {}).items()}
    for planner, values in scenario.planners.items():
        for name, value in values.items():
            if f"planners.{planner}.{name}" not in wanted.chosen:
                planners.setdefault(planner, {})[name] = value
    return {**merged, "planners": planners}


def chaos_flags(flags: Flags, wanted: Settings) -> Flags:
    """Return the flags with random outages of all kinds unless the user set any: one at a time, on average."""
    pause_s = wanted.demo.kill_every_s
    if wanted.emulator.random_outages is not None:
        return flags
    given = {"chaos_every_s": pause_s, "chaos_for_s": pause_s, "chaos_until_s": wanted.demo.running_s}
    kinds = possible_outages(flags.get("emulator", {}).get("brokers", wanted.emulator.brokers))
    text = EMULATOR_TEXTS["random_outages"].text({**given, "chaos_kinds": kinds})
    return {**flags, "emulator": {**flags.get("emulator", {}), "random_outages": text}}
