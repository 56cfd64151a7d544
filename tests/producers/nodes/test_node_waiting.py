"""A node that waits says for what, where people look, and does not repeat it all the time."""

from __future__ import annotations

import json
from pathlib import Path

from structlog.testing import capture_logs

from regraft.producers.nodes.node_metrics import NodeHealth
from regraft.producers.nodes.node_waiting import NodeWaiting, waiting_for
from regraft.schemas.status_file import StatusFile


def test_what_is_waited_for_is_logged_at_once_and_then_ever_more_rarely(tmp_path: Path) -> None:
    """Noted five times a second for ten minutes, it is logged nine times; anything else is logged at once."""
    now_s = 0.0
    waiting = NodeWaiting("b01", StatusFile(tmp_path / "node-b01.json"), lambda: now_s)
    with capture_logs() as logs:
        for turn in range(3_000):
            now_s = turn / 5
            waiting.note("topics")
        waiting.note("a plan")
        waiting.note("")
    assert [each["seconds"] for each in logs] == [0, 2, 6, 14, 30, 62, 126, 254, 510, 0]
    assert logs[-1]["waiting_for"] == "a plan"


def test_before_it_starts_the_status_file_has_nothing_else(tmp_path: Path) -> None:
    """Without topics there is no overlay to report."""
    file = tmp_path / "node-b01.json"
    waiting = NodeWaiting("b01", StatusFile(file))
    waiting.note_before_start("topic regraft.commands")
    assert json.loads(file.read_text())["waiting_for"] == "topic regraft.commands"


def test_a_node_outside_the_overlay_is_not_ready(tmp_path: Path) -> None:
    """Nothing crosses there, however well it runs; a restart would not help, so no error is reported."""
    health = NodeHealth(NodeWaiting("b01", StatusFile(tmp_path / "node-b01.json")))
    health.is_running = health.is_connector_open = True
    health.pulse.beat()
    health.waiting.note(waiting_for("b01", is_member=True, is_in_overlay=False, lost=[]))
    outside = health()
    assert (outside.is_ready, outside.errors) == (False, ())
    assert "waiting for a plan that admits this node" in outside.notes[-1]
    health.is_in_overlay = True
    health.waiting.note("")
    assert health().is_ready


def test_each_reason_to_wait_has_its_sentence() -> None:
    """A stranger waits for an operator, an outsider for a plan, the neighbour of a lost node for a repair."""
    assert "members add b01" in waiting_for("b01", is_member=False, is_in_overlay=False, lost=[])
    assert "admits this node" in waiting_for("b01", is_member=True, is_in_overlay=False, lost=["b02"])
    for is_member in (True, False):  # The inventory names it, or it has been restarted and asks to join.
        left = waiting_for("b01", is_member=is_member, is_in_overlay=False, lost=[], has_left=True)
        assert "members readmit b01" in left
    assert "without the lost b02, b03" in waiting_for("b01", is_member=True, is_in_overlay=True, lost=["b02", "b03"])
    assert waiting_for("b01", is_member=True, is_in_overlay=True, lost=[]) == ""
