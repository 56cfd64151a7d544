"""Run `regraft-lab` of a paper completely, in a tiny size, for its tests."""

from pathlib import Path
from types import ModuleType

import pytest
from typer.testing import CliRunner

from regraft_lab.lab_command import app


def run_small(paper: str, module: ModuleType, size: object, out: Path, printed: str) -> Path:
    """Run it with ``size`` in place of the module's QUICK; check that it succeeds and prints ``printed``."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "QUICK", size)
        answer = CliRunner().invoke(
            app,
            [paper, "--quick", "--out", str(out), "--json", str(out / "copy.json"), "--seed", "2"],
        )
    assert answer.exit_code == 0, answer.output
    assert printed in " ".join(answer.stdout.split())
    return out
