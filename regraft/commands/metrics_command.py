"""The command `regraft metrics`: the metrics of each stage, without running any of them.

In: the metrics classes of the stages. Out: lines of text or JSON. Serving metrics belongs to the stages.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from regraft.infra.process.stage_metrics import MetricInfo


def described_metrics() -> Mapping[str, tuple[MetricInfo, ...]]:
    """Return each stage's metrics, by the name of its section in the settings."""
    from regraft.alerts.alert_metrics import AlertMetrics
    from regraft.controller.report.loop_metrics import LoopMetrics
    from regraft.dashboard.dashboard_metrics import DashboardMetrics
    from regraft.producers.emulator.emulator_metrics import EmulatorMetrics
    from regraft.producers.nodes.node_metrics import NodeMetrics
    from regraft.producers.recordings.recorder_health import RecorderMetrics
    from regraft.streaming.job_metrics import JobMetrics

    stages = {
        "controller": LoopMetrics().stage,
        "streaming": JobMetrics().stage,
        "emulator": EmulatorMetrics().stage,
        "node": NodeMetrics().stage,
        "alerts": AlertMetrics().stage,
        "dashboard": DashboardMetrics().stage,
        "recorder": RecorderMetrics().stage,
    }
    return {name: tuple(stage.described) for name, stage in stages.items()}


def metrics(as_json: Annotated[bool, typer.Option("--json", help="Print JSON only.")] = False) -> None:
    """List the metrics of every stage: name, type, labels and meaning.

    A stage serves them at /metrics on its `metrics_port`, the dashboard on its own port, along with /health and /ready;
    process_... (memory, CPU time, open files) are added. Durations are in ms.

    Examples: `regraft metrics`; `regraft run --set controller.metrics_port=9101 --set streaming.metrics_port=9102`.
    """
    rows = [
        {"stage": stage, "name": each.name, "type": each.type, "labels": list(each.labels), "help": each.help}
        for stage, described in described_metrics().items()
        for each in described
    ]
    if as_json:
        typer.echo(json.dumps({"metrics": rows}, indent=2))
        return
    for described in described_metrics().values():
        for each in described:
            labels = f" by {', '.join(each.labels)}" if each.labels else ""
            typer.echo(f"{each.name} ({each.type}{labels})\n    {each.help}")
