"""The manifests follow the schemas of Kubernetes, and are consistent with the code and the images."""

import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml
from typer.main import get_command

from regraft import __version__
from regraft.cli import app
from regraft.commands.stage_command import StageName
from regraft.settings.named_tables import connector_models
from regraft.settings.run_settings import load_settings, section_models

ROOT = Path(__file__).parents[2]
FILES = sorted((ROOT / "infra" / "kubernetes").glob("*.yaml"))
SERVERS = ("nats", "mosquitto")


def objects(file: Path) -> Iterator[dict[str, Any]]:
    """Yield the objects of a file; YAML aliases only work within one document, so they are often in a list."""
    for document in yaml.safe_load_all(file.read_text()):
        yield from document["items"] if document["kind"] == "List" else [document]


def containers(file: Path) -> list[dict[str, Any]]:
    pods = [each["spec"]["template"]["spec"] for each in objects(file) if "template" in each.get("spec", {})]
    return [each for pod in pods for each in [*pod.get("initContainers", []), *pod["containers"]]]


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_long_running_containers_have_probes(file: Path) -> None:
    """Each container of a Deployment or StatefulSet has a readiness probe, and each of ours a liveness probe."""
    for each in objects(file):
        if each["kind"] in ("Deployment", "StatefulSet"):
            for container in each["spec"]["template"]["spec"]["containers"]:
                assert "readinessProbe" in container, container["name"]
                assert "livenessProbe" in container or not container["image"].startswith("regraft-"), container["name"]


def test_manifests_exist() -> None:
    """For the loop, and nodes."""
    assert [file.stem for file in FILES] == ["mosquitto_nodes", "nodes", "regraft"]


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_each_object_follows_its_schema(file: Path) -> None:
    """No key is misspelt or missing."""
    for each in objects(file):
        kubernetes_validate.validate(each, "1.31", strict=True)


def test_a_misspelt_key_is_refused() -> None:
    """The check can fail."""
    found = next(each for file in FILES for each in objects(file) if each["kind"] == "Deployment")
    wrong = found | {"spec": found["spec"] | {"replica": 2}}
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(wrong, "1.31", strict=True)


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_containers_run_commands_of_images_that_are_built(file: Path) -> None:
    """Commands exist in the command line, images are targets of the Dockerfile with this version of Regraft."""
    dockerfile = (ROOT / "infra" / "Dockerfile").read_text()
    targets = {f"regraft-{name}" for name in re.findall(r"^FROM \S+ AS (\S+)$", dockerfile, re.MULTILINE)}
    known = get_command(app).commands  # type: ignore[attr-defined]
    for container in containers(file):
        if container["name"] in SERVERS:
            continue
        name, _, version = container["image"].partition(":")
        assert name in targets
        assert version == __version__
        arguments = container["args"]
        if arguments[:3] == ["python", "-m", "regraft"]:
            assert arguments[3] in known
            assert arguments[3] != "stage" or arguments[4] in list(StageName)


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_containers_are_restricted(file: Path) -> None:
    """None runs as root or writes to its image, and all but the one that copies a file have a memory limit."""
    user = re.search(r"--uid (\d+)", (ROOT / "infra" / "Dockerfile").read_text())
    assert user is not None
    for each in objects(file):
        pod = each.get("spec", {}).get("template", {}).get("spec")
        if pod:
            assert pod["securityContext"]["runAsNonRoot"]
            assert pod["securityContext"]["runAsUser"] == int(user[1])
    for container in containers(file):
        security = container["securityContext"]
        assert security["readOnlyRootFilesystem"]
        assert not security["allowPrivilegeEscalation"]
        if "livenessProbe" in container:
            assert "memory" in container["resources"]["limits"]


def test_settings_of_the_manifests_are_settings(tmp_path: Path) -> None:
    """The file in the ConfigMap loads, and variables name settings."""
    maps = (each["data"] for file in FILES for each in objects(file) if each["kind"] == "ConfigMap")
    texts = [data["regraft.toml"] for data in maps if "regraft.toml" in data]
    (text,) = texts
    (tmp_path / "regraft.toml").write_text(text)
    settings = load_settings({}, tmp_path / "regraft.toml")
    assert {"controller.metrics_port", "streaming.metrics_port", "dashboard.port"} <= settings.chosen
    models = {**section_models(), **{f"connectors__{name}": model for name, model in connector_models().items()}}
    fields = {name: set(model.model_fields) for name, model in models.items()}
    for container in (each for file in FILES for each in containers(file)):
        for variable in container.get("env", []):
            section, _, name = variable["name"].removeprefix("REGRAFT_").lower().rpartition("__")
            if section:
                assert name in fields[section], variable["name"]


def test_probes_use_the_port_of_the_settings() -> None:
    """A stage listens on the port that Kubernetes probes."""
    regraft = next(file for file in FILES if file.stem == "regraft")
    settings = next(each["data"]["regraft.toml"] for each in objects(regraft) if "regraft.toml" in each.get("data", {}))
    ports = {name: table.get("metrics_port") for name, table in tomllib.loads(settings).items()}
    named = {each["name"]: each["ports"][0]["containerPort"] for each in containers(regraft) if "ports" in each}
    assert named["stream"] == ports["streaming"]
    assert named["control"] == ports["controller"]
    assert named["alerts"] == ports["alerts"]


def test_everything_mounted_is_defined() -> None:
    """Each ConfigMap and Secret is in the manifests, or the head of the file says how to create it."""
    made = {each["metadata"]["name"] for file in FILES for each in objects(file) if each["kind"] == "ConfigMap"}
    text = (ROOT / "infra" / "kubernetes" / "regraft.yaml").read_text()
    made |= set(re.findall(r"kubectl -n regraft create (?:secret generic|configmap) (\S+)", text))
    for file in FILES:
        named = set(re.findall(r"(?:configMap|secretKeyRef): \{name: ([a-z-]+)", file.read_text()))
        assert named <= made
