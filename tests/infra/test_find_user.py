"""Users whose ID has no entry in the list of users, as in many containers."""

import os
import pwd
import subprocess
import sys
from pathlib import Path

import pytest

from regraft.infra.local.find_cache import find_cache
from regraft.infra.local.spark_session import java_options
from regraft.infra.orders.order_keys import OrderSettings
from regraft.infra.process.find_user import find_user
from regraft.infra.process.stack_error import StackError
from regraft.stages.run_loop import prepare_orders

PROGRAM = """
import os, pwd, sys
from pathlib import Path
def no_entry(number):
    raise KeyError(number)
pwd.getpwuid = no_entry
for name in ("LOGNAME", "USER", "LNAME", "USERNAME"):
    os.environ.pop(name, None)
from regraft.infra.local.spark_session import build_spark_session
spark = build_spark_session("trial", run_dir=Path(sys.argv[1]), driver_memory_mb=512)
print(spark.range(3).count(), spark._jvm.org.apache.hadoop.security.UserGroupInformation.getCurrentUser().getUserName())
spark.stop()
"""


@pytest.fixture
def unlisted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Run as a user whom neither the environment nor the system names."""

    def no_entry(number: int) -> pwd.struct_passwd:
        raise KeyError(f"getpwuid(): uid not found: {number}")

    for name in ("LOGNAME", "USER", "LNAME", "USERNAME", "HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(pwd, "getpwuid", no_entry)


@pytest.mark.usefixtures("unlisted")
def test_a_user_without_a_name_is_called_by_the_id(tmp_path: Path) -> None:
    """Keys are made for that name, and orders are given in it."""
    assert find_user() == f"uid-{os.getuid()}"
    assert "created now" in prepare_orders(OrderSettings(directory=tmp_path))
    assert find_user() in "".join(file.read_text() for file in tmp_path.iterdir())


@pytest.mark.usefixtures("unlisted")
def test_a_user_without_a_home_is_asked_for_a_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    """Outside a checkout there is no other place."""
    monkeypatch.setattr("regraft.infra.local.find_cache.find_checkout", lambda: None)
    with pytest.raises(StackError, match="set REGRAFT_CACHE"):
        find_cache({})


def test_a_listed_user_is_called_by_name(tmp_path: Path) -> None:
    """The user who runs these tests has an entry, so Java needs no help."""
    assert find_user()
    assert java_options(tmp_path) == ""


@pytest.mark.spark
def test_spark_runs_as_a_user_without_a_name(tmp_path: Path) -> None:
    """Its libraries ask a class of Java, which asks the system alone; that class is replaced."""
    run = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(tmp_path / "run")],
        capture_output=True, text=True, timeout=120, check=False, cwd=tmp_path,
    )  # fmt: skip
    assert run.stdout.split() == ["3", f"uid-{os.getuid()}"], run.stderr
