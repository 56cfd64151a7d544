"""The comparison of brokers that relocate publishers by themselves: runs, figures, telemetry, command line."""

import json
import sys
from pathlib import Path

import pytest

from regraft.api.emulation import CELLS_KEPT_S, LedgerSnapshot, VirtualOverlay
from regraft.api.records import Delivery, TelemetryBatch, encode
from regraft_lab.pop_grape import compare_relocation
from regraft_lab.pop_grape.compare_relocation import Comparison, comparisons, distributed_figures
from regraft_lab.pop_grape.distributed_pop import PopSettings
from regraft_lab.pop_grape.distributed_runs import TRIGGERS, VARIANTS, Scene, UncleanRunError, run_variant
from regraft_lab.pop_grape.distributed_selection import GrapeSettings
from regraft_lab.pop_grape.distributed_telemetry import CELL_BYTES, TelemetryTally
from regraft_lab.pop_grape.quote_workload import QuoteSettings

FEW = QuoteSettings(publisher_count=2, subscribers_per_publisher=20, notifications_per_s=5.0)


def test_figures_of_a_small_comparison() -> None:
    """All subscribers are at one broker: GRAPE moves both publishers there, and traces far less than POP."""
    reported: list[int] = []
    variants = {"static": None, "pop": PopSettings(threshold=45), "load100": GrapeSettings()}
    wanted = Comparison("planetlab", ("clustered",), (1,), variants, 90.0, FEW)
    figures = distributed_figures(wanted, 1, advance=lambda _, done: reported.append(done))
    assert reported == [0, 1, 2, 3]
    assert wanted.run_count == 3
    found = {(each.name, each.where["variant"], each.where.get("kind")): each.value for each in figures}

    def value(name: str, variant: str, kind: str | None = None) -> float:
        return found[f"pop_grape_distributed_{name}", variant, kind]

    assert value("all_messages_share", "static") == 1
    assert value("rate_share", "static") == value("hops_share", "static") == 1
    for variant in ("pop", "load100"):
        assert value("lost", variant) == 0
        assert value("hops_share", variant) == 0
        assert value("publishers_moved", variant) == value("moves", variant) == 2
        assert value("all_messages_share", variant) < 1
        assert 0 < value("first_decision_s", variant) < value("last_move_s", variant)
        assert value("message_share", variant, "overhead") == pytest.approx(
            value("message_share", variant, "all tracing") + value("message_share", variant, "all migrating"), abs=1e-4
        )
    assert value("message_share", "load100", "overhead") < value("message_share", "pop", "overhead") / 3
    assert value("message_share", "pop", "trace_result") > 0
    assert ("pop_grape_distributed_message_share", "load100", "trace_result") not in found
    telemetry = {name: value for (name, variant, _), value in found.items() if name.startswith("pop_grape_telemetry")}
    assert 0 < telemetry["pop_grape_telemetry_cell_bytes"] < telemetry["pop_grape_telemetry_bytes"]
    assert {variant for name, variant, _ in found if name.startswith("pop_grape_telemetry")} == {"static"}


def test_telemetry_is_measured_as_it_is_sent() -> None:
    """Batches are encoded as a broker does; the cells' size is what is missing without them, old cells are dropped."""
    tally = TelemetryTally()
    batches = []
    for second in (0, 1, 1, CELLS_KEPT_S + 1):
        cells = tuple(Delivery("p", block, second, 1, 1, 100) for block in range(2))
        batches.append(TelemetryBatch("b", 0, second, second * 1_000, 0, deliveries=cells))
        tally.send_batch(batches[-1])
    assert tally.batches == 4
    assert tally.bytes_whole == sum(len(encode(batch.packed())) for batch in batches)
    empty = len(encode(TelemetryBatch("b", 0, 0, 0, 0)))
    assert 0 < tally.bytes_of_cells < tally.bytes_whole - 3 * empty
    # Second 0 is dropped when the last batch comes; second 1 is still kept.
    assert tally.memory_bytes_max == {"b": 4 * CELL_BYTES}


def test_every_variant_can_be_run() -> None:
    """The tables of variants contain no invalid settings."""
    for settings in (*VARIANTS.values(), *TRIGGERS.values()):
        assert settings is None or settings.errors() == []
    # "half of P_threshold" may be traced in a window.
    assert all(
        settings.traced_max == settings.threshold // 2
        for settings in TRIGGERS.values()
        if isinstance(settings, PopSettings)
    )


def test_an_evaluation_is_made_of_parts_with_a_static_overlay_each() -> None:
    """Every part includes the static overlay, and both sizes cover both distributions and all triggers."""
    for size in ("quick", "full"):
        parts = comparisons(size)
        assert all("static" in part.variants and part.run_count == len(part.variants) > 1 for part in parts)
        assert {part.distributions[0] for part in parts} == {"clustered", "random"}
    assert {name for part in comparisons("full") for name in part.variants} >= set(TRIGGERS)


def test_an_unclean_ledger_gives_no_figures(monkeypatch: pytest.MonkeyPatch) -> None:
    """If something was lost, or the run is too short to measure, an error replaces the result."""
    scene = Scene.of(1, 2, settings=FEW)
    monkeypatch.setattr(VirtualOverlay, "finish", lambda *_: LedgerSnapshot(expected=1, lost=1, final=True))
    with pytest.raises(UncleanRunError, match="static with seed 2"):
        run_variant(scene, "static", None, 1.0)
    with pytest.raises(ValueError, match=r"simulated_s is 0\.2"):
        run_variant(scene, "static", None, 0.2)


def test_scenes_of_one_seed_share_their_brokers() -> None:
    """Distributions and X change only the clients, so that rows of the table are comparable."""
    scenes = [Scene.of(x, 4, distribution) for x in (1, 8) for distribution in ("clustered", "random")]
    for scene in scenes:
        assert scene.inventory.brokers == scenes[0].inventory.brokers
        assert (scene.inventory.link_cost == scenes[0].inventory.link_cost).all()


def test_command_line_prints_a_table_and_writes_figures(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The file has the common form of all measurements."""
    target = tmp_path / "figures.json"
    monkeypatch.setattr(compare_relocation, "DEFAULT_VARIANTS", ("static",))
    arguments = ["x", "--x", "2", "--seconds", "1", "--seed", "2", "--json", str(target)]
    monkeypatch.setattr(sys, "argv", arguments)
    compare_relocation.main()
    printed = capsys.readouterr().out
    assert "clustered" in printed
    assert "random" in printed
    document = json.loads(target.read_text())
    assert document["run"]["seed"] == 2
    assert {figure["where"]["interested_brokers"] for figure in document["figures"]} == {2}
