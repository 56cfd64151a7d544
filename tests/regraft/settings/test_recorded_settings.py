"""Settings of recordings of earlier versions."""

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from regraft.producers.recordings.read_recording import open_recording
from regraft.settings.recorded_settings import settings_of
from regraft.settings.run_settings import SettingsError

SMALL = Path(__file__).parents[1] / "recordings" / "small.avro"


def test_recorded_fields_become_texts() -> None:
    """A run of 0.2.0, which had a setting for each word of these texts, is emulated as it was."""
    workload = {"publisher_count": 3, "burst_every_s": None, "burst_s": 10.0, "regime_change_s": 45.0}
    workload |= {"regime_change_kind": "interests", "regime_change_every_s": None, "regime_change_spread_s": 4.0}
    former = {"chaos_every_s": 5.0, "chaos_kinds": ["death"], "workload": workload, "metrics_host": "0.0.0.0"}
    info = replace(open_recording(SMALL).info, settings={"emulator": former, "demo": {"shadow_planners": ["x"]}})
    emulator = settings_of(info, {}, ["swap_links_ci"]).emulator
    assert (emulator.random_outages, emulator.chaos_every_s) == ("every 5 kinds death", 5.0)
    assert emulator.workload.publisher_count == 3
    assert emulator.workload.regime_change == "interests at 45 over 4"
    assert (emulator.workload.regime_change_s, emulator.workload.regime_change_spread_s) == (45.0, 4.0)
    assert emulator.workload.burst_every_s is None


DAMAGED: list[dict[str, Any]] = [
    {"controller": {"decision": 5}},
    {"planners": {"swap_links_ci": 5}},
    {"emulator": {"workload": 5}},
    {"emulator": {"workload": {"publisher_count": "x"}}},
    {"streaming": {"window_ms": []}},
]
LEFT_OUT: list[dict[str, Any]] = [
    {"emulator": {"workload": {"burst_every_s": "x"}}},
    {"emulator": {"chaos_every_s": 5.0, "chaos_kinds": [5]}},
    {"fixed": {"controller.decision.cool_down_windows": "x"}},
    {"fixed": {"controller.decision.cool_down_windows": None}},
    {"fixed": {"controller.decision.cool_down_windows": {}}},
    {"fixed": {"controller.tick_ms": math.nan}},
    {"nothing": {"x": 1}},
]


@pytest.mark.parametrize("recorded", DAMAGED, ids=str)
def test_recorded_settings_of_another_form_are_named(recorded: dict[str, Any]) -> None:
    """A recording may come from someone else."""
    info = replace(open_recording(SMALL).info, settings=recorded)
    with pytest.raises(SettingsError):
        settings_of(info, {}, ["swap_links_ci"])


@pytest.mark.parametrize("recorded", LEFT_OUT, ids=str)
def test_recorded_values_that_are_none_of_a_setting_are_left_out(recorded: dict[str, Any]) -> None:
    """As names are that this version does not know."""
    info = replace(open_recording(SMALL).info, settings={})
    usual = settings_of(info, {}, ["swap_links_ci"])
    found = settings_of(replace(info, settings=recorded), {}, ["swap_links_ci"])
    assert (found.controller, found.emulator) == (usual.controller, usual.emulator)
