"""A Regraft command on a cluster; the cluster itself is in tests/streaming/test_spark_cluster.py."""

import threading
from pathlib import Path

import pytest

from tests.streaming.spark_cluster import run_on


@pytest.mark.parametrize(
    ("master", "output", "code"),
    [
        ("spark://127.0.0.1:7077", 'master = "spark://127.0.0.1:7077"', 0),
        ("spark://far:7077", "driver_host is 127.0.0.1, where executors of spark://far:7077", 2),
    ],
)
def test_a_command_gets_the_master_and_its_exit_code_is_reported(
    master: str, output: str, code: int, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Its output is passed through unchanged."""
    assert run_on(master, tmp_path / "secret", ["settings"], threading.Event()) == code
    shown = "".join(capfd.readouterr())
    assert output in shown
    assert code or f'secret_file = "{tmp_path / "secret"}"' in shown
