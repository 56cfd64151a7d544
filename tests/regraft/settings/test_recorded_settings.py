"""Settings of recordings of earlier versions."""

from dataclasses import replace
from pathlib import Path

from regraft.producers.recordings.read_recording import open_recording
from regraft.settings.recorded_settings import settings_of

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
