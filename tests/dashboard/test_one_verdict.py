"""The dashboard and `regraft status` judge one state of the loop by one rule."""

import json
from typing import Any

import msgspec
import pytest

from regraft.schemas.live_view import LiveView, encode_keys
from regraft.schemas.loop_verdict import DEGRADED, HEALTHY, NOT_RUNNING
from regraft.schemas.plan import PlanPhase
from regraft.schemas.shown_state import ShownFleet, ShownLimits, ShownMember
from regraft.stages.judge_status import ServiceState, judge_status
from tests.dashboard.test_poll_view import ScriptedPoller
from tests.schemas.shown_views import shown_plan, shown_window, view_of

NOW_MS = 5_000_000
WARNING = {"active": [{"severity": "warning", "text": "the streaming job does not keep up"}]}
CRITICAL = {"active": [*WARNING["active"], {"severity": "critical", "text": "b07 is silent"}]}
DEAD = ShownMember(broker="b07", state="dead", since_ms=1, reason="silent", in_overlay=True)
STALLED = shown_plan("plan-4", PlanPhase.DRAINING, NOW_MS - 130_000, epoch_to=4)


def view(**changes: Any) -> LiveView:
    limits = ShownLimits(60_000, {"draining": 60_000})
    return view_of(**{"time_ms": NOW_MS, "window": shown_window(NOW_MS - 3_000), "limits": limits, **changes})


@pytest.mark.parametrize(
    ("shown", "alerts", "silent_ms", "verdict"),
    [
        (view(), {}, 0, HEALTHY),
        (view(), WARNING, 0, HEALTHY),
        (view(), CRITICAL, 0, DEGRADED),
        (view(window=None), {}, 0, DEGRADED),
        (view(window=shown_window(NOW_MS - 90_000)), {}, 0, DEGRADED),
        (view(window=shown_window(NOW_MS, is_complete=False, error="b3 silent")), {}, 0, DEGRADED),
        (view(window=shown_window(NOW_MS, clock_offsets_ms={"b3": 2_977})), {}, 0, DEGRADED),
        (view(plans=(STALLED,)), {}, 0, DEGRADED),
        (view(members=ShownFleet(members=(DEAD,))), {}, 0, DEGRADED),
        (view(is_standby=True, window=None, leader="c1"), {}, 0, HEALTHY),
        (view(standby_reason="its keys cannot be read"), WARNING, 0, DEGRADED),
        (view(), {}, 14_000, HEALTHY),
        (view(), {}, 20_000, NOT_RUNNING),
        (None, {}, 0, NOT_RUNNING),
    ],
)
def test_both_say_the_same(shown: LiveView | None, alerts: dict[str, Any], silent_ms: int, verdict: str) -> None:
    """Verdict and reasons are equal for every state; a warning leaves the loop healthy in both."""
    scripted = ScriptedPoller()
    scripted.now_ms = NOW_MS - 1_000
    if shown is not None:
        scripted.source.texts = {**encode_keys(shown), "alerts": json.dumps(alerts).encode()}
    scripted.poll()
    if silent_ms:
        scripted.poll(after_ms=silent_ms)
    on_page = msgspec.to_builtins(scripted.board.value("verdict"))
    services = {} if shown is None else {"controller": ServiceState(silent_ms / 1000)}
    in_status = judge_status(services, shown, alerts, NOW_MS + silent_ms)
    assert on_page["verdict"] == in_status["verdict"] == verdict
    assert list(on_page["reasons"]) == in_status["reasons"]
    assert list(on_page["warnings"]) == [one["text"] for one in WARNING["active"] if alerts]


def test_a_phase_of_a_newer_controller_does_not_hide_the_verdict() -> None:
    """A plan in a phase that this Regraft does not know has no limit here."""
    newer = msgspec.structs.replace(STALLED, phase="rehearsing")
    services = {"controller": ServiceState(0)}
    assert judge_status(services, view(plans=(newer,)), {}, NOW_MS)["verdict"] == HEALTHY
