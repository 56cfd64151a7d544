"""`regraft list metrics` lists exactly what the stages serve."""

import json
from collections.abc import Callable

import pytest
from prometheus_client.metrics_core import Metric
from typer.testing import CliRunner

from regraft.alerts.alert_metrics import AlertMetrics
from regraft.cli import app
from regraft.commands.list_command import described_metrics
from regraft.controller.report.loop_metrics import LoopMetrics
from regraft.dashboard.dashboard_metrics import DashboardMetrics
from regraft.infra.process.stage_metrics import StageMetrics
from regraft.producers.agents.agent_metrics import AgentMetrics
from regraft.producers.emulator.emulator_metrics import EmulatorMetrics
from regraft.producers.nodes.node_metrics import NodeMetrics
from regraft.producers.recordings.record_topics import RecorderMetrics
from regraft.streaming.job_metrics import JobMetrics

MAKERS: dict[str, Callable[[], StageMetrics]] = {
    "controller": lambda: LoopMetrics().stage,
    "streaming": lambda: JobMetrics().stage,
    "emulator": lambda: EmulatorMetrics().stage,
    "node": lambda: NodeMetrics().stage,
    "agent": lambda: AgentMetrics().stage,
    "alerts": lambda: AlertMetrics().stage,
    "dashboard": lambda: DashboardMetrics().stage,
    "recorder": lambda: RecorderMetrics().stage,
}


def _scraped_name(metric: Metric) -> str:
    return f"{metric.name}_total" if metric.type == "counter" else metric.name


@pytest.mark.parametrize("stage", MAKERS)
def test_names_types_and_texts_are_those_of_the_registry(stage: str) -> None:
    """The list is complete, every metric in it is served, and each has a meaning."""
    served = {
        (_scraped_name(metric), metric.type, metric.documentation)
        for metric in MAKERS[stage]().registry.collect()
        if metric.name.startswith("regraft_")
    }
    listed = {(each.name, each.type, each.help) for each in described_metrics()[stage]}
    assert listed == served
    assert all(name.startswith(f"regraft_{stage}_") and text.strip() for name, _, text in listed)


def test_every_stage_is_in_the_list() -> None:
    """A stage added to the list is checked here, too."""
    assert described_metrics().keys() == MAKERS.keys()


def test_durations_have_one_unit() -> None:
    """Names of durations end in ms; rates are per s."""
    for described in described_metrics().values():
        for each in described:
            assert not each.name.endswith(("_seconds", "_s")) or each.name.endswith("_per_s"), each.name


def test_the_command_needs_no_running_stage() -> None:
    """Text and JSON name the same metrics."""
    text, document = (CliRunner().invoke(app, ["list", "metrics", *more]) for more in ([], ["--json"]))
    assert (text.exit_code, document.exit_code) == (0, 0)
    rows = json.loads(document.stdout)["metrics"]
    assert len(rows) == sum(len(described) for described in described_metrics().values())
    for row in rows:
        assert row["name"] in text.stdout
        assert row["help"] in text.stdout
    (phase_ms,) = [row for row in rows if row["name"] == "regraft_controller_phase_ms"]
    assert (phase_ms["type"], phase_ms["labels"]) == ("histogram", ["phase"])
