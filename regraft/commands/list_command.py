"""The command `regraft list planners|metrics`: names that settings and dashboards use, without running any stage."""

from __future__ import annotations

import json
from collections.abc import Mapping
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from regraft.commands.command_options import AsJson

if TYPE_CHECKING:
    from regraft.infra.process.stage_metrics import MetricInfo


class Listed(StrEnum):
    """What can be listed."""

    PLANNERS = "planners"
    METRICS = "metrics"


def list_names(
    what: Annotated[Listed, typer.Argument(metavar="WHAT", help="What to list.")], as_json: AsJson = False
) -> None:
    """List the planners or the metrics, with the purpose of each.

    - `planners`: the kind of overlay that each plans for, the changes that it proposes, and its origin. Planners of
      other packages are found by their entry points; one that cannot be loaded is listed with the reason.
    - `metrics`: name, type, labels and meaning. A stage serves them at /metrics on its `metrics_port`, the dashboard on
      its own port, along with /health and /ready; process_... (memory, CPU time, open files) are added. Durations are
      in ms.

    Examples: `regraft list planners`, then `regraft run --set controller.planner=swap_links_ci`;
    `regraft list metrics`, then `regraft run --set controller.metrics_port=9101 --set streaming.metrics_port=9102`.
    """
    if what is Listed.PLANNERS:
        _list_planners(as_json=as_json)
    else:
        _list_metrics(as_json=as_json)


def _list_planners(*, as_json: bool) -> None:
    from regraft.controller.planners.planner_registry import PlannerError, known_names, planner_spec

    rows: list[dict[str, str]] = []
    for name in known_names():
        try:
            spec = planner_spec(name)
        except PlannerError as error:
            rows.append({"name": name, "error": str(error)})
        else:
            rows.append({"name": name, "kind": spec.kind, "changes": spec.summary, "source": spec.source})
    if as_json:
        typer.echo(json.dumps({"planners": rows}, indent=2))
        return
    for row in rows:
        if "error" in row:
            typer.echo(f"{row['name']}\n    cannot be used: {row['error']}")
        else:
            typer.echo(f"{row['name']} ({row['kind']})\n    {row['changes']}; source: {row['source']}")


def _list_metrics(*, as_json: bool) -> None:
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


def described_metrics() -> Mapping[str, tuple[MetricInfo, ...]]:
    """Return each stage's metrics, by the name of its section in the settings."""
    from regraft.alerts.alert_metrics import AlertMetrics
    from regraft.controller.report.loop_metrics import LoopMetrics
    from regraft.dashboard.dashboard_metrics import DashboardMetrics
    from regraft.producers.agents.agent_metrics import AgentMetrics
    from regraft.producers.emulator.emulator_metrics import EmulatorMetrics
    from regraft.producers.nodes.node_metrics import NodeMetrics
    from regraft.producers.recordings.record_topics import RecorderMetrics
    from regraft.streaming.job_metrics import JobMetrics

    stages = {
        "controller": LoopMetrics().stage,
        "streaming": JobMetrics().stage,
        "emulator": EmulatorMetrics().stage,
        "node": NodeMetrics().stage,
        "agent": AgentMetrics().stage,
        "alerts": AlertMetrics().stage,
        "dashboard": DashboardMetrics().stage,
        "recorder": RecorderMetrics().stage,
    }
    return {name: tuple(stage.described) for name, stage in stages.items()}
