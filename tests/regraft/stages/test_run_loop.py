"""What `regraft run` checks before it starts anything."""

from pathlib import Path

import pytest
from rich.console import Console

from regraft.infra.process.stack_error import StackError
from regraft.settings.run_settings import load_settings
from regraft.stages.run_loop import run_loop


def test_a_dashboard_without_a_view_is_refused_before_anything_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without Valkey the dashboard would end minutes later, and the whole loop with it."""
    for name in ("REGRAFT_REDIS_URL", "REDIS_URL"):
        monkeypatch.delenv(name, raising=False)
    settings = load_settings({"run": {"directory": tmp_path / "run"}, "kafka": {"bootstrap": "127.0.0.1:1"}})
    with pytest.raises(StackError, match=r"Valkey or Redis, but none is named: set redis\.url"):
        run_loop(settings, Console(quiet=True), emulate=True, with_dashboard=True)
    assert not (tmp_path / "run").exists()
