"""Telemetry of a broker that was added while a run was recorded is no stranger's."""

from pathlib import Path

import pytest
from msgspec.structs import replace

from producers.recordings.read_recording import open_recording
from regraft.recordings.describe_recording import describe_recording
from regraft.recordings.recorded_members import added_members
from schemas.codec import decode, encode
from schemas.member import BrokerFacts, Member, MemberState, PeerCost
from schemas.telemetry import TelemetryBatch
from tests.producers.recorded_messages import BROKERS, START_MS, Sent, sent, telemetry, write

ADDED = "b99"


def with_added(*, is_member: bool) -> list[Sent]:
    """Telemetry of which a part is of a broker that the inventory does not have, and perhaps its record."""
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


@pytest.mark.parametrize("is_member", [True, False])
def test_who_was_added_is_known(tmp_path: Path, *, is_member: bool) -> None:
    """By the topic of members; without it, the broker is a stranger and the description says so."""
    file = tmp_path / "rec.avro"
    write(file, with_added(is_member=is_member))
    assert [one.broker for one in added_members(open_recording(file))] == [ADDED] * is_member
    warnings = " ".join(describe_recording(file)["warnings"])
    assert (ADDED in warnings) is not is_member
