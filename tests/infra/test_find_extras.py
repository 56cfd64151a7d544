"""A command that needs a package that is not installed says in one sentence how to get it."""

import importlib.util
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from regraft.infra.local import doctor
from regraft.infra.process import find_extras
from regraft.infra.process.find_extras import EXTRAS, describe_missing, extra_of, missing_extras, require_extras
from regraft.infra.process.stack_error import StackError

ROOT = Path(__file__).parents[2]
# Hides modules as if they were not installed, then runs the command line.
WITHOUT = """
import sys
class Without:
    def __init__(self, finder):
        self.finder = finder
    def find_spec(self, name, path=None, target=None):
        return None if name.split(".")[0] in {modules!r} else self.finder.find_spec(name, path, target)
sys.meta_path[:] = [Without(finder) for finder in sys.meta_path]
sys.argv = ["regraft", *{words!r}]
from regraft.cli import main
main()
"""


def run_without(modules: set[str], *words: str) -> subprocess.CompletedProcess[str]:
    program = WITHOUT.format(modules=modules, words=words)
    return subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)


def test_extras_are_those_of_the_project() -> None:
    """Each extra but `all` is known here, and `all` has what the whole loop and all demos need."""
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert extras.keys() - {"all"} == EXTRAS.keys()
    (everything,) = extras["all"]
    assert set(re.findall(r"[a-z]+", everything.split("[")[1])) == {
        *doctor.LOOP_EXTRAS,
        "nats",
        "mqtt",
        "amqp",
        "compiled",
    }


def test_all_extras_are_installed_for_tests() -> None:
    """All extras except Java are installed where tests run."""
    assert missing_extras([name for name in EXTRAS if name != "java"]) == []
    require_extras("The demo", "spark", "plots")


def test_a_missing_package_is_named_with_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only missing packages are requested; outside a checkout the doctor warns of them."""
    found = importlib.util.find_spec
    monkeypatch.setattr(
        find_extras.importlib.util, "find_spec", lambda name: None if name in {"pandas", "apprise"} else found(name)
    )
    with pytest.raises(StackError, match=r"^The demo needs .*: run `pip install 'regraft\[spark,alerts\]'`\.$"):
        require_extras("The demo", "spark", "dashboard", "alerts", "plots")
    monkeypatch.setattr(doctor, "find_checkout", lambda: None)
    finding = doctor._packages()
    assert finding.status is doctor.FindingStatus.WARN
    assert "regraft[spark,alerts]" in finding.found


def test_extras_come_from_the_wheel_that_is_installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The index has no Regraft, so pip is given the wheel's place; a checkout is not installed a second time."""
    info = tmp_path / "regraft-1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: regraft\nVersion: 1\n")
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    origin = info / "direct_url.json"
    origin.write_text('{"url": "file:///a%20b/regraft-1.whl", "archive_info": {}}')
    assert "pip install 'regraft[plots] @ file:///a%20b/regraft-1.whl'" in describe_missing("It", ["plots"])
    origin.write_text('{"url": "file:///a/checkout", "dir_info": {"editable": true}}')
    assert "pip install 'regraft[plots]'" in describe_missing("It", ["plots"])


def test_a_backtest_needs_what_draws_its_page_before_it_plans() -> None:
    """Not after minutes; without --out it needs no drawings."""
    answer = run_without({"matplotlib"}, "backtest", "x.avro", "--out", "out")
    assert "The option --out needs packages that are not installed" in answer.stderr
    assert "not installed" not in run_without({"matplotlib"}, "backtest", "x.avro").stderr


@pytest.mark.parametrize(("module", "extra"), [("pyspark.sql", "spark"), ("nats", "nats"), ("numpy", None)])
def test_a_module_leads_to_its_extra(module: str, extra: str | None) -> None:
    """A package of every installation leads to none."""
    assert extra_of(module) == extra


@pytest.mark.parametrize(
    "command",
    [["demo"], ["run"], ["stage", "stream"], ["backtest", "x.avro"], ["dashboard", "--help"], ["status", "--help"]],
)
def test_commands_report_missing_extras_without_any_extra(command: list[str]) -> None:
    """Without any extra help is shown, and a command that needs one ends with one sentence and no traceback."""
    modules = {module for extra in EXTRAS.values() for module in extra}
    answer = run_without(modules, *command)
    assert "Traceback" not in answer.stderr, answer.stderr
    if "--help" in command:
        assert answer.returncode == 0
    else:
        assert answer.returncode in (1, 2), answer.stdout
