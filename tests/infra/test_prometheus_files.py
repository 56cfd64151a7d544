"""The shipped files for Prometheus and Grafana name existing stages, metrics and labels."""

import json
import re
from pathlib import Path

import yaml

from regraft.commands.list_command import described_metrics
from regraft.dashboard.dashboard_settings import DashboardSettings

INFRA = Path(__file__).parents[2] / "infra"
ADDED = {"instance", "stage", "job", "le"}  # Labels that Prometheus or the scrape file adds.
SUFFIXES = ("_bucket", "_sum", "_count")


def labels_by_name() -> dict[str, set[str]]:
    """Return the labels of every metric, histograms also by the names of their parts."""
    known: dict[str, set[str]] = {}
    for each in (one for described in described_metrics().values() for one in described):
        parts = SUFFIXES if each.type == "histogram" else ("",)
        known |= {each.name + part: set(each.labels) for part in parts}
    return known


def check(expression: str, labels: set[str], where: str) -> None:
    """Raise AssertionError unless the metrics of an expression exist and have these labels."""
    known = labels_by_name()
    for name in re.findall(r"regraft_\w+", expression):
        assert name in known, f"{where}: {name}"
        assert labels - ADDED <= known[name], f"{where}: {name}"
        for named in re.findall(name + r"{(\w+)", expression):
            assert named in known[name] | ADDED, f"{where}: {named}"


def test_what_is_scraped_are_the_stages_of_a_loop() -> None:
    """Each has a port, the dashboard its own; no stage that an operator does not run, or its alert would never end."""
    document = yaml.safe_load((INFRA / "prometheus.yml").read_text())
    (job,) = document["scrape_configs"]
    targets = {config["labels"]["stage"]: config["targets"] for config in job["static_configs"]}
    assert set(targets) == {"controller", "streaming", "alerts", "dashboard"}
    assert len({target for named in targets.values() for target in named}) == 4
    assert targets["dashboard"] == [f"127.0.0.1:{DashboardSettings.port}"]
    assert all((INFRA / name).is_file() for name in document["rule_files"])


def test_alert_rules_use_existing_metrics_and_labels() -> None:
    """A renamed metric would leave a rule that never fires; every stage that can fail unseen has one."""
    (group,) = yaml.safe_load((INFRA / "prometheus_alerts.yml").read_text())["groups"]
    stages: set[str] = set()
    for rule in group["rules"]:
        named = re.findall(r"regraft_(\w+?)_", rule["expr"])
        assert named or rule["expr"].startswith("up{"), rule["alert"]
        stages |= set(named)
        check(rule["expr"], set(re.findall(r"\$labels\.(\w+)", rule["annotations"]["summary"])), rule["alert"])
    assert stages == {"controller", "streaming", "node", "alerts", "dashboard"}


def test_the_grafana_dashboard_uses_existing_metrics_and_labels() -> None:
    """Panels of a renamed metric would stay empty without a word; none overlaps another."""
    panels = json.loads((INFRA / "grafana_dashboard.json").read_text())["panels"]
    taken: set[tuple[int, int]] = set()
    for panel in panels:
        for target in panel["targets"]:
            labels = set(re.findall(r"{{(\w+)}}", target["legendFormat"]))
            check(target["expr"], labels, panel["title"])
        place = panel["gridPos"]
        columns = range(place["x"], place["x"] + place["w"])
        cells = {(x, y) for x in columns for y in range(place["y"], place["y"] + place["h"])}
        assert not cells & taken, panel["title"]
        taken |= cells
        assert max(x for x, _ in cells) < 24, panel["title"]
    assert {"Refused changes a minute", "Overlay cost per second", "Nodes: connectors open, commands read"} <= {
        panel["title"] for panel in panels
    }
