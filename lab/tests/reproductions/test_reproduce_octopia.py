import json
from pathlib import Path

import regraft_lab.reproductions.reproduce_octopia
from lab.tests.reproductions.run_small import run_small
from regraft_lab.octopia.octopia_tasks import WORKLOADS, Size


def test_a_run_leaves_the_promised_figures_and_claims(tmp_path: Path) -> None:
    """Claims that follow from the overlay's shape hold at any size; each routing and workload has its figures."""
    printed = "Tables of advertisements are 93 % smaller"
    module = regraft_lab.reproductions.reproduce_octopia
    out = run_small("octopia", module, Size("small", 2, 30, 2), tmp_path / "out", printed)
    document = json.loads((out / "figures.json").read_text(encoding="utf-8"))
    assert document == json.loads((out / "copy.json").read_text(encoding="utf-8"))
    assert document["run"]["settings"]["size"] == "small"
    values = {(each["name"], each["where"]["routing"]): each["value"] for each in document["figures"]}
    assert values["srt_cut", "octopia"] == 1 - 5 / 70
    assert (values["advertisement_messages", "octopia"], values["advertisement_messages", "padres"]) == (4, 341)
    assert values["subscription_messages", "octopia"] == 13
    for name in ("delay_ms_mean", "drain_s", "messages"):
        settings = {
            (each["where"]["routing"], each["where"]["workload"])
            for each in document["figures"]
            if each["name"] == name
        }
        wanted = {(routing, workload) for routing in ("snr", "idr", "tid") for workload in WORKLOADS}
        assert settings == wanted | {("tid_dynamic", f"burst_{per_min}") for per_min in ("100k", "80k", "60k")}
    assert "| VIII, Fig. 9b |" in (out / "claims.md").read_text(encoding="utf-8")
