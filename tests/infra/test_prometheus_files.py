"""The shipped Prometheus files name existing metrics."""

import re
from pathlib import Path

import yaml

from regraft.commands.metrics_command import described_metrics

INFRA = Path(__file__).parents[2] / "infra"


def test_scrape_targets_are_the_three_stages() -> None:
    """Each stage has its own port, and the named file of rules exists."""
    document = yaml.safe_load((INFRA / "prometheus.yml").read_text())
    (job,) = document["scrape_configs"]
    targets = {config["labels"]["stage"]: config["targets"] for config in job["static_configs"]}
    assert set(targets) == {"controller", "streaming", "emulator"}
    assert len({target for named in targets.values() for target in named}) == 3
    assert all((INFRA / name).is_file() for name in document["rule_files"])


def test_alert_rules_use_existing_metrics_and_labels() -> None:
    """A renamed metric would leave a rule that never fires."""
    known = {each.name: set(each.labels) for described in described_metrics().values() for each in described}
    (group,) = yaml.safe_load((INFRA / "prometheus_alerts.yml").read_text())["groups"]
    assert len(group["rules"]) >= 5
    for rule in group["rules"]:
        named = re.findall(r"regraft_\w+", rule["expr"])
        assert named or rule["expr"].startswith("up{"), rule["alert"]
        labels = set(re.findall(r"\$labels\.(\w+)", rule["annotations"]["summary"])) - {"stage"}
        for name in named:
            assert labels <= known[name], rule["alert"]
