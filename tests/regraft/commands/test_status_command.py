"""`regraft status`: healthy, degraded or not running, and why, from the live view or from the status files."""

import json
import os
import time
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from typer.testing import CliRunner

from regraft.cli import app
from regraft.commands.status_command import status_lines
from regraft.controller.ports.write_live_view import ValkeyView
from regraft.infra.kafka.create_topics import TopicMismatchError
from regraft.infra.local.supervise import Supervisor
from regraft.infra.local.valkey_server import start_valkey_service
from regraft.schemas.live_view import (
    VIEW_VERSION,
    LiveView,
    ShownBroker,
    ShownNetwork,
    ShownPlan,
    ShownWindow,
    encode_view,
)
from regraft.schemas.loop_verdict import DEGRADED, HEALTHY, NOT_RUNNING, SILENCE_S_MAX, SILENT_BECAUSE
from regraft.schemas.order_book import Maintenance, OrderInForce, OrdersInForce
from regraft.schemas.plan import PlanPhase
from regraft.schemas.shown_state import ShownAnnounced, ShownFleet, ShownLimits, ShownMember, ShownRepair
from regraft.stages import read_status
from regraft.stages.judge_status import ServiceState, judge_status
from tests.schemas.shown_views import cost_point, shown_plan, shown_window, view_of

NOW_MS = 1_800_000_000_000


def window(age_ms: int = 3_000, **changes: Any) -> ShownWindow:
    return shown_window(NOW_MS - age_ms, **changes)


def plan(phase: PlanPhase, since_ms: int = 1_000, name: str = "plan-4") -> ShownPlan:
    return shown_plan(name, phase, NOW_MS - since_ms, epoch_to=4)


def controller(**changes: Any) -> LiveView:
    """Return the view of a healthy loop."""
    view = view_of(
        time_ms=NOW_MS,
        configuration=replace(view_of().configuration, epoch=3),
        window=window(),
        windows_closed=12,
        windows_incomplete=1,
        cost=(cost_point(NOW_MS - 3_000, 600.0, 1000.0),),
        errors={"not sent: regraft.events": 2},
        limits=ShownLimits(60_000, {"preparing": 20_000, "draining": 60_000}),
    )
    return replace(view, **changes)


def judged(alerts: dict[str, Any] | None = None, **changes: Any) -> dict[str, Any]:
    services = {"controller": ServiceState(0.5), "streaming": ServiceState(0.3)}
    return judge_status(services, controller(**changes), alerts or {}, NOW_MS)


def test_the_leader_is_reported_and_a_standby_is_healthy() -> None:
    """A standby knows no windows and no plans and is still healthy; having no leader is an error."""
    leading = judged(leader="c1", term=7)
    assert (leading["verdict"], leading["notes"]) == (HEALTHY, ["c1 leads with term 7"])
    assert (leading["leader"], leading["term"], leading["is_standby"]) == ("c1", 7, False)
    standby = judged(leader="c1", term=7, is_standby=True, window=None)
    assert (standby["verdict"], standby["notes"]) == (HEALTHY, ["this controller stands by, c1 leads with term 7"])
    alone = judged(is_standby=True, window=None)
    assert alone["verdict"] == DEGRADED
    assert "no leading controller" in alone["reasons"][0]


def fleet(*, in_overlay: bool, **changes: Any) -> ShownFleet:
    dead = ShownMember(broker="b07", state="dead", since_ms=NOW_MS - 9_000, reason="silent", in_overlay=in_overlay)
    leaving = ShownMember(broker="b02", state="leaving", since_ms=NOW_MS - 900, reason="old", in_overlay=True)
    return replace(ShownFleet(counts={"in_service": 38, "leaving": 1, "dead": 1}, members=(leaving, dead)), **changes)


def test_a_dead_broker_is_a_error_while_it_is_in_the_overlay() -> None:
    """What crosses it is lost; once the overlay is repaired around it, it is only reported."""
    crossed = judged(members=fleet(in_overlay=True, traffic_at_risk_per_s=120.0))
    assert crossed["verdict"] == DEGRADED
    assert crossed["reasons"] == ["dead and still in the overlay: b07, 120 notifications per second passed them"]
    assert crossed["notes"] == ["leaving: b02"]
    without = judged(members=fleet(in_overlay=False))
    assert (without["verdict"], without["notes"]) == (HEALTHY, ["leaving: b02", "dead: b07"])


def test_members_and_repairs_have_their_own_lines() -> None:
    """How many are in each state, every member not simply in service and why, and how long the last repair took."""
    repairs = (
        ShownRepair(plan="plan-4", lost=("b07",), dead_since_ms=1_000, whole_ms=3_500, phase="completed"),
        ShownRepair(plan="plan-5", lost=("b08", "b09"), dead_since_ms=5_000, whole_ms=0, phase="preparing"),
    )
    announced = (ShownAnnounced(broker="x1", since_ms=NOW_MS, to_do="`regraft members add x1`"),)
    shown = fleet(in_overlay=False, repairs=repairs, announced=announced)
    lines = status_lines(judged(members=shown) | {"source": "here"})
    assert "members: 38 in service, 1 leaving, 1 dead" in lines
    assert any(line.startswith("b07 has been dead since 2027-01-15") and line.endswith("silent") for line in lines)
    assert "repair plan-4 without b07: repaired after 2.5 s" in lines
    asking = next(line for line in lines if line.startswith("x1 has asked to join since"))
    assert asking.endswith("`regraft members add x1`")
    assert "repair plan-5 without b08, b09: preparing, not repaired yet" in lines


def test_where_clients_stay_one_line_says_which_may_move() -> None:
    """Brokers with most that may move come first; without the register, or if all may move, there is no line."""
    counts = {"b00": (40, 0), "b01": (12, 9), "b02": (8, 8), "b03": (0, 0)}
    brokers = tuple(ShownBroker(name, 3.0, 0.1, 0, 2, 0.5, 1, *both) for name, both in counts.items())
    status = judged(network=ShownNetwork(10_000, (), brokers)) | {"source": "here"}
    assert status["subscribers"]["b01"] == [12, 9]
    assert "subscribers that may move: 17 of 60 (b01 9 of 12, b02 8 of 8, b00 0 of 40)" in status_lines(status)
    assert status["staying"] == {}
    reasons = {"b00": {"rights": 2, "session": 30}, "b01": {"session": 1}}
    staying = tuple(replace(one, staying=reasons.get(one.broker, {})) for one in brokers)
    status = judged(network=ShownNetwork(10_000, (), staying)) | {"source": "here"}
    assert status["staying"] == reasons
    assert any(line.endswith("; others stay (31 session, 2 rights, 10 other)") for line in status_lines(status))
    all_move = tuple(replace(one, movable=None) for one in brokers)
    without = judged(network=ShownNetwork(10_000, (), all_move)) | {"source": "here"}
    assert not [line for line in status_lines(without) if "may move" in line]


def test_a_deciding_loop_is_healthy() -> None:
    """A past error is shown but is no reason."""
    found = judged()
    assert (found["verdict"], found["reasons"], found["notes"]) == (HEALTHY, [], [])
    assert found["cost"] == {
        "now_per_s": 600.0,
        "error_per_s": None,
        "sample_share": 1.0,
        "bootstrap_per_s": 1000.0,
        "saved_share": pytest.approx(0.4),
        "bounded": None,
    }
    assert found["window"]["age_ms"] == 3_000
    assert found["errors"] == {"not sent: regraft.events": 2}


def test_the_last_bound_is_reported_with_the_cost_of_its_window() -> None:
    """Most windows have no bound; the newest one that has gives the distance of that overlay from the best possible."""
    bounded = replace(cost_point(NOW_MS - 33_000, 600.0, 1000.0), cost_least_per_s=250.0)
    found = judged(cost=(bounded, cost_point(NOW_MS - 3_000, 700.0, 1000.0)))
    assert found["cost"]["bounded"] == {"window_end_ms": NOW_MS - 33_000, "cost_per_s": 600.0, "least_per_s": 250.0}
    text = "no overlay could cost less than 250 per s; this one cost 600 at that time, 33 s ago"
    assert text in status_lines(found | {"source": "here"})


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"window": None}, "no window has closed yet"),
        (
            {"window": window(90_000)},
            "the newest window ended 90 s ago, and nothing is decided on windows older than 60 s",
        ),
        ({"window": window(is_complete=False, error="b3 silent")}, "the newest window is incomplete: b3 silent"),
        ({"window": window(clock_offsets_ms={"b3": 2_977, "b4": -20})}, "the clock of b3 is 2.977 s ahead of Kafka's"),
        ({"plans": (plan(PlanPhase.DRAINING, 130_000),)}, "plan-4 has been draining for 130 s"),
        ({"plans": (plan(PlanPhase.PREPARING, 41_000),)}, "plan-4 has been preparing for 41 s"),
    ],
)
def test_a_loop_that_cannot_decide_is_degraded(changes: dict[str, Any], reason: str) -> None:
    """Each reason names the error and its time."""
    found = judged(**changes)
    assert (found["verdict"], found["reasons"]) == (DEGRADED, [reason])


def test_orders_are_no_error() -> None:
    """A plan in progress or in review, a pause and maintenance are reported next to the verdict."""
    why = {"by": "ann", "reason": "release", "since_ms": NOW_MS, "until_ms": 0}
    away = tuple(Maintenance(**why, broker=broker, evacuate=False) for broker in ("b07", "b09"))
    orders = OrdersInForce(OrderInForce(**why), away)
    plans = (plan(PlanPhase.DRAINING), plan(PlanPhase.PROPOSED, 600_000, "plan-5"))
    found = judged(orders=orders, plans=plans, plan_running="plan-4", dry_run=True)
    assert found["verdict"] == HEALTHY
    assert found["plans_waiting"] == ["plan-5"]
    assert found["paused"] == why
    assert [one["broker"] for one in found["maintenance"]] == ["b07", "b09"]
    assert found["notes"] == [
        "dry run: plans wait for approval",
        "plan-4 is in progress",
        "plan-5 waits for approval",
        "paused by ann: release",
        "in maintenance: b07, b09",
    ]


def test_critical_alerts_degrade_and_others_do_not() -> None:
    """A warning is shown and leaves the loop healthy."""
    warning = {"severity": "warning", "text": "queue grows"}
    assert judged({"active": [warning]})["verdict"] == HEALTHY
    found = judged({"active": [warning, {"severity": "critical", "text": "b07 is silent"}]})
    assert (found["verdict"], found["reasons"]) == (DEGRADED, ["alert: b07 is silent"])
    assert len(found["alerts"]) == 2


def test_missing_status_is_reported_by_service() -> None:
    """Without a controller nothing runs; without another stage the loop is degraded; an ended stage is at rest."""
    assert judge_status({}, None, {}, NOW_MS)["verdict"] == NOT_RUNNING
    silent = ServiceState(SILENCE_S_MAX + 5)
    found = judge_status({"controller": silent}, controller(), {}, NOW_MS)
    assert (found["verdict"], found["reasons"][0]) == (
        NOT_RUNNING,
        f"the controller has been silent for 20 s: {SILENT_BECAUSE}",
    )
    services = {
        "controller": ServiceState(1),
        "streaming": ServiceState(40),
        "emulator": ServiceState(400, {"ledger": {}}, is_over=True),
    }
    found = judge_status(services, controller(), {}, NOW_MS)
    assert (found["verdict"], found["reasons"]) == (DEGRADED, ["streaming has been silent for 40 s"])
    assert found["services"]["emulator"] == {"age_s": 400, "is_silent": False, "is_over": True}


def test_an_unclean_ledger_degrades() -> None:
    """Lost, repeated and reordered notifications are reported with their number, except those that a detour excuses."""
    ledger = {"lost": 2, "repeated": 0, "out_of_order": 8, "out_of_order_on_detours": 7}
    services = {"controller": ServiceState(1), "emulator": ServiceState(1, {"ledger": ledger, "clusters_diverted": 3})}
    found = judge_status(services, controller(), {}, NOW_MS)
    assert found["reasons"] == ["2 notifications lost", "1 notifications out of order"]


def _write(directory: Path, view: LiveView) -> None:
    file = directory / "controller.json"
    file.write_bytes(encode_view(view))
    os.utime(file, (view.time_ms / 1000, view.time_ms / 1000))


def _run(directory: Path, *more: str) -> tuple[int, str]:
    answer = CliRunner().invoke(app, ["status", "--set", f"run.directory={directory}", *more])
    return answer.exit_code, answer.stdout


def _fresh() -> LiveView:
    """Return a view that is fresh for an hour: a busy machine may read it late."""
    time_ms = int(time.time() * 1000) + 3_600_000
    return controller(time_ms=time_ms, window=shown_window(time_ms - 2_000))


def test_the_command_reads_status_files_and_returns_the_verdict(tmp_path: Path) -> None:
    """The exit code is 0 if healthy, otherwise 1; the first line is the verdict, in plain text without a terminal."""
    assert _run(tmp_path)[0] == 1
    _write(tmp_path, _fresh())
    code, text = _run(tmp_path)
    assert code == 0
    assert text.splitlines()[0] == "healthy"
    assert "cost: 600 per s, 1,000 with the first overlay (40.0% saved), epoch 3" in text
    assert f"source: the status files in {tmp_path}" in text
    assert "\x1b" not in text
    long_ago_s = time.time() - 100
    os.utime(tmp_path / "controller.json", (long_ago_s, long_ago_s))
    code, text = _run(tmp_path, "--json")
    assert (code, json.loads(text)["verdict"]) == (1, NOT_RUNNING)


DAMAGED = [
    *[("emulator", text) for text in ('{"ledger": [1]}', '{"delivered": NaN}', '{"lost": {}}', '{"ledger": null}')],
    *[("alerts", text) for text in ('{"active": 5}', '{"active": [5]}', '{"active": {"a": 1}}')],
    *[(name, "[]") for name in ("emulator", "alerts", "streaming", "dashboard")],
]


@pytest.mark.parametrize(("name", "text"), DAMAGED)
def test_a_damaged_status_file_counts_as_none(tmp_path: Path, name: str, text: str) -> None:
    """The other files still give a verdict."""
    (tmp_path / f"{name}.json").write_text(text)
    code, printed = _run(tmp_path, "--json")
    assert code == 1
    shown = json.loads(printed)
    assert shown["services"] == {}
    assert f"{name}.json cannot be read" in shown["source"]


def test_a_deleted_topic_degrades_a_loop_that_does_not_need_it_yet(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A controller may work for a while without it, but not past its next plan."""
    _write(tmp_path, _fresh())
    assert _run(tmp_path)[0] == 0
    monkeypatch.setattr(read_status, "why_closed", lambda *_: None)
    monkeypatch.setattr(read_status, "missing_topics", lambda *_: ["regraft.plans"])
    monkeypatch.setattr(read_status, "check_topics", lambda *_, **__: "")
    code, text = _run(tmp_path)
    assert code == 1
    assert text.startswith(f"{DEGRADED}: Kafka lacks regraft.plans: create them with `regraft topics --create`.")


def test_a_topic_that_kafka_has_created_by_itself_degrades_the_loop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One partition and no compaction do not show otherwise, until its records are gone."""

    def refuse(*_: object, **__: object) -> str:
        raise TopicMismatchError("Topic regraft.plans does not have the configuration")

    _write(tmp_path, _fresh())
    monkeypatch.setattr(read_status, "why_closed", lambda *_: None)
    monkeypatch.setattr(read_status, "missing_topics", lambda *_: [])
    monkeypatch.setattr(read_status, "check_topics", refuse)
    code, text = _run(tmp_path)
    assert (code, text.splitlines()[0]) == (1, f"{DEGRADED}: Topic regraft.plans does not have the configuration")


def test_an_unreachable_live_view_is_reported_and_files_are_read(tmp_path: Path) -> None:
    """There is one short try; the line about the source gives the reason."""
    _write(tmp_path, _fresh())
    code, text = _run(tmp_path, "--set", "redis.url=redis://127.0.0.1:1/0")
    assert code == 0
    assert "(the live view cannot be reached: " in text


def test_a_view_of_a_newer_version_is_reported_in_one_sentence(tmp_path: Path) -> None:
    """An older Regraft does not judge a view that it cannot interpret."""
    _write(tmp_path, replace(_fresh(), version=VIEW_VERSION + 1))
    code, text = _run(tmp_path)
    assert code == 1
    reason = f"it has version {VIEW_VERSION + 1}, but this version of Regraft reads versions up to {VIEW_VERSION}"
    assert f"source: the status files in {tmp_path} (controller.json cannot be read: {reason}" in text


@pytest.mark.stack
def test_the_command_reads_the_live_view(tmp_path: Path) -> None:
    """On a machine without the files the live view alone gives the state of the loop, alerts included."""
    import redis

    with Supervisor() as supervisor:
        url = start_valkey_service(supervisor, tmp_path / "valkey").url
        code, text = _run(tmp_path / "none", "--set", f"redis.url={url}")
        assert code == 1
        assert "(the live view of regraft is empty)" in text
        client = redis.Redis.from_url(url)
        ValkeyView(client, "regraft").publish(_fresh(), 0)
        client.set("regraft:live:alerts", json.dumps({"active": [{"severity": "warning", "text": "queue grows"}]}))
        code, text = _run(tmp_path / "none", "--set", f"redis.url={url}")
        client.close()
    assert code == 0
    assert text.splitlines()[0] == "healthy"
    assert "alert: warning: queue grows" in text
    assert "source: the live view" in text


@pytest.mark.stack
def test_a_server_that_refuses_the_live_view_makes_no_controller_silent(tmp_path: Path) -> None:
    """The controller's file shows that it runs; without the file, the source says why its view may be old."""
    import redis

    old = controller(time_ms=int(time.time() * 1000) - 60_000)
    _write(tmp_path, _fresh())
    with Supervisor() as supervisor:
        url = start_valkey_service(supervisor, tmp_path / "valkey").url
        client = redis.Redis.from_url(url)
        ValkeyView(client, "regraft").publish(old, 0)
        assert "source: the live view\n" in _run(tmp_path / "none", "--set", f"redis.url={url}")[1]
        client.config_set("maxmemory", "1")
        code, text = _run(tmp_path, "--set", f"redis.url={url}")
        assert (code, text.splitlines()[0]) == (0, "healthy")
        assert f"source: the status files in {tmp_path} (the live view was last written 6" in text
        assert "because the server refuses writes: its memory is full" in text
        code, text = _run(tmp_path / "none", "--set", f"redis.url={url}")
        assert code == 1
        assert text.startswith("not running: the controller has been silent for 6")
        assert "source: the live view (last written 6" in text
        client.config_set("maxmemory", "0")
        client.replicaof("127.0.0.1", "1")
        assert "it is a read-only replica" in _run(tmp_path / "none", "--set", f"redis.url={url}")[1]
        client.close()


def test_what_others_wrote_forges_no_line_and_controls_no_terminal() -> None:
    """Anybody who may write an order, even one that is refused, chooses its reason."""
    text = "by root: a\n\x1b[2Jhealthy: all is well\u202e"
    status = judged() | {"source": "here", "alerts": [{"severity": "warning", "text": text}]}
    lines = status_lines(status)
    assert any(line.startswith("alert: warning: by root: a") for line in lines)
    assert not [line for line in lines if set(line) & set("\n\x1b\u202e")]
