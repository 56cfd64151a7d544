"""docker-compose.yml, the Dockerfile, the Makefile and the CI script agree with each other and with the code."""

import importlib.util
import json
import re
import shutil
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

ROOT = Path(__file__).parents[2]
COMMANDS = {
    "emulate": ["stage", "emulate"],
    "stream": ["stage", "stream", "--emulate"],
    "control": ["stage", "control", "--act", "--emulate"],
    "control-standby": ["stage", "control", "--act", "--emulate"],
    "alerts": ["stage", "alerts"],
    "dashboard": ["stage", "dashboard", "--host", "0.0.0.0"],
}


@pytest.fixture(scope="module")
def compose() -> dict[str, Any]:
    loaded: dict[str, Any] = yaml.safe_load((ROOT / "docker-compose.yml").read_text())
    return loaded


def test_compose_file_follows_the_schema(compose: dict[str, Any]) -> None:
    """The file is valid by the JSON schema of the Compose specification."""
    schema = json.loads((Path(__file__).with_name("compose_spec.json")).read_text())
    jsonschema.Draft201909Validator(schema).validate(compose)


def test_schema_refuses_a_wrong_file(compose: dict[str, Any]) -> None:
    """The check can fail: a misspelt key of a service is refused."""
    schema = json.loads((Path(__file__).with_name("compose_spec.json")).read_text())
    wrong = {**compose, "services": {"kafka": {"imagge": "apache/kafka"}}}
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.Draft201909Validator(schema).validate(wrong)


def test_dependencies_and_volumes_exist(compose: dict[str, Any]) -> None:
    """A service only waits for services in the file, for health only if it is checked; volumes are declared."""
    services = compose["services"]
    for service in services.values():
        for name, wait in service.get("depends_on", {}).items():
            assert name in services
            assert wait["condition"] != "service_healthy" or "healthcheck" in services[name]
        for volume in service.get("volumes", []):
            assert volume.split(":")[0] in compose["volumes"]


def test_stages_find_the_servers(compose: dict[str, Any]) -> None:
    """Each stage gets the address that Kafka advertises, and Valkey's password comes from .env."""
    advertised = compose["services"]["kafka"]["environment"]["KAFKA_ADVERTISED_LISTENERS"]
    for name in COMMANDS:
        environment = compose["services"][name]["environment"]
        assert f"BROKER://{environment['REGRAFT_KAFKA_BOOTSTRAP']}" in advertised.split(",")
        assert "${REGRAFT_REDIS_PASSWORD:?" in environment["REGRAFT_REDIS_URL"]


def test_build_targets_are_stages_of_the_dockerfile(compose: dict[str, Any]) -> None:
    """Every build target is a stage of the Dockerfile, which copies existing files and all packages."""
    dockerfile = (ROOT / "infra" / "Dockerfile").read_text()
    stages = set(re.findall(r"^FROM \S+ AS (\S+)$", dockerfile, re.MULTILINE))
    targets = {each["build"]["target"] for each in compose["services"].values() if "build" in each}
    assert targets <= stages
    for sources in re.findall(r"^COPY (.+) \S+$", dockerfile, re.MULTILINE):
        for source in sources.split():
            assert (ROOT / source).exists(), source
    packages = ["regraft", *(path.name for path in (ROOT / "regraft").iterdir() if path.is_symlink())]
    assert len(packages) > 1
    assert {f"COPY {package} {package}" for package in packages} <= set(dockerfile.splitlines())


def test_all_containers_built_here_are_restricted(compose: dict[str, Any]) -> None:
    """Including one-off containers: each writes only to /tmp and a volume and can gain no privileges."""
    built = [service for service in compose["services"].values() if "build" in service]
    assert len(built) > len(COMMANDS)
    for service in built:
        assert service["read_only"] is True
        assert service["cap_drop"] == ["ALL"]
        assert service["security_opt"] == ["no-new-privileges:true"]


def test_third_party_servers_are_restricted_too(compose: dict[str, Any]) -> None:
    """None has capabilities, may gain privileges or runs as root; only Kafka's image is writable."""
    nodes = yaml.safe_load((ROOT / "infra" / "compose_nodes.yml").read_text())
    servers = {name: service for name, service in compose["services"].items() if "image" in service}
    servers["mosquitto"] = nodes["x-mosquitto"]
    assert set(servers) == {"kafka", "valkey", "mosquitto"}
    for name, service in servers.items():
        assert service["cap_drop"] == ["ALL"]
        assert service["security_opt"] == ["no-new-privileges:true"]
        # Kafka's image sets its own user.
        assert name == "kafka" or (service["user"] == name and service["read_only"] is True)


@pytest.mark.parametrize("name", sorted(COMMANDS))
def test_stages_are_restricted_and_have_health_checks(compose: dict[str, Any], name: str) -> None:
    """Each writes only to its volume and /tmp, has no capabilities, and is probed at its configured port."""
    service = compose["services"][name]
    assert service["read_only"] is True
    assert service["cap_drop"] == ["ALL"]
    assert service["tmpfs"] == ["/tmp"]
    (port,) = re.findall(r"127\.0\.0\.1:(\d+)/health", " ".join(service["healthcheck"]["test"]))
    section = {"stream": "STREAMING", "control": "CONTROLLER", "control-standby": "CONTROLLER", "emulate": "EMULATOR"}
    opened = service["environment"].get(f"REGRAFT_{section.get(name, name.upper())}__METRICS_PORT", "8090")
    assert port == opened


def test_commands_name_modules_that_exist(compose: dict[str, Any]) -> None:
    """``python -m MODULE`` of every service names a runnable module of this project."""
    for service in compose["services"].values():
        command = service.get("command", [])
        if command[:2] == ["python", "-m"]:
            module = command[2]
            runnable = f"{module}.__main__" if (ROOT / module).is_dir() else module
            assert importlib.util.find_spec(runnable) is not None, runnable


@pytest.mark.parametrize("name", sorted(COMMANDS))
def test_sub_commands_of_the_stages_exist(compose: dict[str, Any], name: str) -> None:
    """The command line has the sub-command of each stage's container."""
    from typer.main import get_command

    from regraft.cli import app

    command = compose["services"][name]["command"]
    assert command == ["python", "-m", "regraft", *COMMANDS[name]]
    assert COMMANDS[name][0] in get_command(app).commands  # type: ignore[attr-defined]


def test_ci_runs_what_a_developer_runs() -> None:
    """The CI script only calls ``make test``, ``make test-lab`` and ``make docs``, and installs a browser if there is
    none.
    """
    script = (ROOT / ".ci" / "run").read_text()
    lines = [line for line in script.splitlines() if line and not line.startswith(("#", "if", " ", "fi"))]
    assert lines == [
        "set -euo pipefail",
        'cd "$(dirname "${BASH_SOURCE[0]}")/.."',
        "make test",
        "make test-lab",
        "make docs",
    ]


@pytest.mark.parametrize("apt_get", [None, "exit 0", "exit 100"])
def test_ci_runs_the_tests_whether_or_not_a_browser_can_be_installed(tmp_path: Path, apt_get: str | None) -> None:
    """If there is no browser apt-get is run; without apt-get, or if it fails, the tests run all the same."""
    programs = tmp_path / "bin"
    programs.mkdir()
    scripts = {"make": "echo make $*"} | ({} if apt_get is None else {"apt-get": f"echo apt-get $*; {apt_get}"})
    for name, script in scripts.items():
        (programs / name).write_text(f"#!/bin/sh\n{script}\n")
        (programs / name).chmod(0o755)
    for name in ("sh", "dirname", "timeout"):
        (programs / name).symlink_to(shutil.which(name) or "")
    answer = subprocess.run(
        [shutil.which("bash") or "", ROOT / ".ci" / "run"],
        env={"PATH": str(programs)}, capture_output=True, text=True, check=True,
    )  # fmt: skip
    expected = {
        None: [],
        "exit 0": ["apt-get update -q", "apt-get install -qy chromium"],
        "exit 100": ["apt-get update -q", "No browser could be installed."],
    }
    assert answer.stdout.splitlines() == [*expected[apt_get], "make test", "make test-lab", "make docs"]


def test_nothing_is_installed_that_is_not_locked() -> None:
    """Everything that pip fetches has a hash; the build backend and all of its requirements are locked."""
    lock = (ROOT / "requirements.lock").read_text()
    locked = set(re.findall(r"^([a-z0-9-]+)==\S+ \\\n    --hash=sha256:", lock, re.MULTILINE))
    backend = tomllib.loads((ROOT / "pyproject.toml").read_text())["build-system"]["requires"]
    needed = {re.split(r"[<>=~! ]", each)[0] for each in backend} | {"editables"}  # hatchling requests it at build time
    assert needed <= locked
    assert "--require-hashes" in (ROOT / "tests" / "house" / "install_packages.py").read_text()
    for file in ("Makefile", "infra/Dockerfile"):
        installs = re.findall(r"^.*(?:pip install|INSTALL\)) .*$", (ROOT / file).read_text(), re.MULTILINE)
        assert len(installs) == {"Makefile": 5, "infra/Dockerfile": 2}[file], file
        for line in installs:
            is_locked = re.search(r"(--require-hashes -r|\(INSTALL\)) requirements[a-z-]*\.lock$", line)
            assert is_locked or "--no-deps --no-build-isolation" in line, line


def test_what_tests_need_agrees_with_what_runs() -> None:
    """Packages in both locks have equal versions and hashes; what only tests need is only in the development lock."""
    run, dev = (_locked_packages((ROOT / name).read_text()) for name in ("requirements.lock", "requirements-dev.lock"))
    assert run.items() <= dev.items()
    assert {"pytest", "mypy", "playwright"} <= dev.keys() - run.keys()


def _locked_packages(lock: str) -> dict[str, frozenset[str]]:
    blocks = re.split(r"^(?=[a-z0-9])", lock, flags=re.MULTILINE)
    return {
        block.split("==")[0]: frozenset(re.findall(r"==\S+|sha256:[0-9a-f]{64}", block)) for block in blocks if block
    }


def test_every_target_is_explained() -> None:
    """``make help`` lists all targets."""
    answer = subprocess.run(["make", "-s", "help"], cwd=ROOT, capture_output=True, text=True, check=True)
    named = {line.split()[0] for line in answer.stdout.splitlines()}
    assert named == {
        "help",
        "setup",
        "dev",
        "test",
        "test-lab",
        "lint",
        "mutate",
        "demo",
        "docs",
        "doctor",
        "pin-images",
        "clean",
    }


def test_old_python_is_one_sentence(tmp_path: Path) -> None:
    """A set-up with too old a Python stops with one sentence, before anything is created."""
    for name in (
        "Makefile",
        "pyproject.toml",
        "requirements.lock",
        "requirements-dev.lock",
        "requirements-java.lock",
        "infra/jars.lock",
    ):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    answer = subprocess.run(
        ["make", "-s", "setup", "PYTHON=false"], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert answer.returncode != 0
    assert answer.stdout.startswith("Regraft needs Python 3.11 or newer, but 'false' is not")
    assert not (tmp_path / ".venv").exists()
