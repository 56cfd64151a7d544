import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest
from typer.testing import CliRunner

import regraft_lab.reproductions.reproduce_psoop
from lab.tests.psoop.small_evaluation import SMALL_SIZE
from lab.tests.reproductions.run_small import run_small
from regraft_lab.lab_command import app

RUNNER = CliRunner()
ROOT = Path(__file__).parents[3]


@pytest.fixture(scope="module")
def small_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of a complete run in a tiny size."""
    printed = "CI performs better than the other two"
    return run_small(
        "psoop", regraft_lab.reproductions.reproduce_psoop, SMALL_SIZE, tmp_path_factory.mktemp("psoop"), printed
    )


def test_a_run_leaves_figures_tables_and_drawings(small_run: Path) -> None:
    """The copy is the same file, and every drawing is an SVG."""
    document = json.loads((small_run / "figures.json").read_text(encoding="utf-8"))
    assert document == json.loads((small_run / "copy.json").read_text(encoding="utf-8"))
    assert document["run"]["seed"] == 2
    assert document["run"]["settings"]["size"] == "small"
    names = {figure["name"] for figure in document["figures"]}
    assert {
        "cost_vs_random",
        "execution_cost_share",
        "broadcast_cost_share",
        "optimum_ratio_mean",
        "decision_ms_p50",
        "decision_ms_max",
        "notifications_per_subscription",
    } <= names
    assert "| 5.1, Fig. 4 |" in (small_run / "claims.md").read_text(encoding="utf-8")
    drawings = {path.name: path.read_text(encoding="utf-8") for path in small_run.glob("*.svg")}
    assert set(drawings) == {"fig4.svg", "fig5.svg", "fig6.svg", "figh.svg"}
    assert all("<svg" in drawing and "relative to the random tree" in drawing for drawing in drawings.values())


@pytest.mark.parametrize(
    ("paper", "arguments", "sentence"),
    [
        ("psoop", ["--data", "nowhere"], "--data nowhere is not the folder of recorded networks"),
        ("dynatops", ["--data", "nowhere"], "--data nowhere is not the folder of recorded check-ins"),
        *(
            (paper, ["--seed", "-1"], "--seed is -1: must be at least 0")
            for paper in ("psoop", "pop-grape", "dynatops")
        ),
    ],
)
def test_a_wrong_call_is_reported_before_anything_runs(
    paper: str, arguments: list[str], sentence: str, tmp_path: Path
) -> None:
    """The exit code is 2, and nothing is written."""
    answer = RUNNER.invoke(app, [paper, "--out", str(tmp_path / "out"), *arguments])
    assert answer.exit_code == 2
    assert sentence in answer.stderr
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("paper", ["psoop", "pop-grape", "dynatops"])
def test_ctrl_c_ends_the_run_and_its_processes(paper: str, tmp_path: Path) -> None:
    """Exit code 130, one sentence, no traceback, no process left; a terminal sends Ctrl-C to all of them."""
    run = subprocess.Popen(
        [sys.executable, "-m", "regraft_lab", paper, "--out", str(tmp_path)],
        cwd=ROOT,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        # If the tests run in the background of a shell, they ignore Ctrl-C, and a child would, too.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    workers: list[psutil.Process] = []
    while len(workers) < 2:  # The first is multiprocessing's own.
        assert run.poll() is None, "ended before it had started a process"
        workers = psutil.Process(run.pid).children(recursive=True)
        time.sleep(0.05)
    os.killpg(run.pid, signal.SIGINT)
    printed = run.communicate(timeout=30)[1]
    assert run.returncode == 130
    assert "Stopped by Ctrl-C" in printed
    assert "Traceback" not in printed
    assert not psutil.wait_procs(workers, timeout=10)[1]
