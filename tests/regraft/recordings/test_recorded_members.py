"""A broker that was added during a recorded run is known by its member record."""

import dataclasses
from pathlib import Path

import pytest
from msgspec.structs import replace
from rich.console import Console

from regraft.backtests.backtest_outcome import RECORDED
from regraft.backtests.run_backtest import BacktestOptions, run_backtest
from regraft.controller.kinds.find_kind import kind_of
from regraft.controller.kinds.repair import RepairTask
from regraft.controller.settings.controller_settings import ControllerSettings
from regraft.overlay.overlay_configuration import BrokerChange
from regraft.producers.recordings.read_recording import open_recording
from regraft.producers.recordings.recorded_members import added_members, recorded_inventory
from regraft.recordings.aggregate_recording import aggregate_recording, read_windows_of
from regraft.recordings.describe_recording import describe_recording
from regraft.replays.read_inputs import read_inputs
from regraft.schemas.codec import decode, encode
from regraft.schemas.member import BrokerFacts, Member, MemberState, PeerCost
from regraft.schemas.plan import PhaseChange, PlanPhase
from regraft.schemas.telemetry import TelemetryBatch
from regraft.streaming.streaming_settings import EventBounds
from tests.producers.recorded_messages import BROKERS, START_MS, Sent, sent, telemetry, write

ADDED = "b99"
BOUNDS = EventBounds(60_000, 3_600_000)


def with_added(*, is_member: bool) -> list[Sent]:
    """Return telemetry with a part from a broker that the inventory lacks, and optionally its member record."""
    found = []
    for one in telemetry(range(400)):
        assert one.value is not None
        batch = decode(one.value, TelemetryBatch)
        if batch.broker == BROKERS[0] and one.time_ms > START_MS + 20_000:
            value = encode(replace(batch, broker=ADDED))
            found.append(Sent(one.topic, one.time_ms, one.partition, one.offset, ADDED.encode(), value))
        found.append(one)
    facts = BrokerFacts(1.0, (PeerCost(BROKERS[0], 2.0),))
    member = sent(Member(ADDED, MemberState.JOINING, START_MS, "added", facts=facts), "members", ADDED)
    return [member, *found] if is_member else found


def at_epoch(epoch: int, one: Sent) -> Sent:
    """Return the same message from a broker at this epoch."""
    if one.topic != "telemetry" or one.value is None:
        return one
    return dataclasses.replace(one, value=encode(replace(decode(one.value, TelemetryBatch), epoch=epoch)))


def test_telemetry_that_is_cut_is_counted_as_unread(tmp_path: Path) -> None:
    """Framing without a batch behind it is none, and no epoch."""
    messages = telemetry(range(3))
    assert messages[1].value is not None
    cut = dataclasses.replace(messages[1], value=messages[1].value[:5])
    write(tmp_path / "rec.avro", [messages[0], cut, messages[2]])
    described = describe_recording(tmp_path / "rec.avro")
    assert described["unread"] == {"telemetry": 1}
    assert described["epochs"] == [0]


@pytest.mark.parametrize(("time_ms", "shown"), [(1 << 62, "9999-12-31"), (-(1 << 62), "1970-01-01")])
def test_a_recording_with_a_time_that_no_calendar_has_is_described(tmp_path: Path, time_ms: int, shown: str) -> None:
    """A client of Kafka may give a message any time."""
    messages = telemetry(range(3))
    write(tmp_path / "rec.avro", [dataclasses.replace(messages[1], time_ms=time_ms), *messages])
    described = describe_recording(tmp_path / "rec.avro")
    assert described["records"] == 4
    assert shown in described["first"] + described["last"]


@pytest.mark.parametrize("is_member", [True, False])
def test_an_added_broker_is_known(tmp_path: Path, *, is_member: bool) -> None:
    """The topic of members names it; without that, the broker is unknown and the description says so."""
    file = tmp_path / "rec.avro"
    write(file, with_added(is_member=is_member))
    assert [one.broker for one in added_members(open_recording(file))] == [ADDED] * is_member
    warnings = " ".join(describe_recording(file)["warnings"])
    assert (ADDED in warnings) is not is_member


def test_telemetry_of_an_added_broker_is_aggregated(tmp_path: Path) -> None:
    """A member's telemetry counts, even in a span long after its record; an unknown broker's is refused."""
    first_ms, end_ms = START_MS + 20_000, START_MS + 40_000
    for is_member in (True, False):
        folder = tmp_path / str(is_member)
        folder.mkdir()
        write(folder / "rec.avro", with_added(is_member=is_member))
        found = aggregate_recording(open_recording(folder / "rec.avro"), folder, first_ms, end_ms, 5_000, BOUNDS)
        seen = {one.broker for window in read_windows_of(found) for one in window.marker.brokers}
        assert (ADDED in seen) is is_member
        assert (found.refused == 0) is is_member


def test_the_overlay_that_an_added_broker_joined_is_costed(tmp_path: Path) -> None:
    """A plan admitted it: each window has a known overlay, and the planner keeps to the brokers of the first."""
    file = tmp_path / "rec.avro"
    begun_ms = START_MS + 20_000
    messages = [at_epoch(1, one) if one.time_ms > begun_ms else one for one in with_added(is_member=True)]
    write(file, messages)
    recording = open_recording(file)
    kind = kind_of(recording.info.inventory, ControllerSettings(bootstrap="", inventory_path=Path()))
    present = recording.info.inventory.bootstrap
    repair = kind.repaired(present, RepairTask(BrokerChange(joined=frozenset({ADDED})), recorded_inventory(recording)))
    plan = replace(
        repair.plan(present, 1, begun_ms),
        phase=PlanPhase.COMPLETED,
        history=(PhaseChange(PlanPhase.COMPLETED, begun_ms, ""),),
    )
    file.unlink()
    write(file, [sent(plan, "plans", plan.plan, begun_ms), *messages])
    options = BacktestOptions(file, ("swap_links_cost",), closed_loop_s=0)
    found = run_backtest(options, Console(quiet=True))
    recorded = next(one for one in found.outcomes if one.planner == RECORDED)
    assert not found.errors
    assert not recorded.windows_unknown
    assert recorded.points[-1].end_ms > begun_ms + 5_000


def test_a_replay_knows_earlier_members(tmp_path: Path) -> None:
    """The job that aggregates again accepts its telemetry, and the loop knows its facts."""
    file = tmp_path / "rec.avro"
    write(file, with_added(is_member=True))
    recording = open_recording(file)
    assert set(recorded_inventory(recording).brokers) == {*BROKERS, ADDED}
    assert recorded_inventory(recording).bootstrap == recording.info.inventory.bootstrap
    inputs = read_inputs(recording, START_MS + 1_000)
    assert [(one.broker, one.facts is not None) for one in inputs.members_known] == [(ADDED, True)]
