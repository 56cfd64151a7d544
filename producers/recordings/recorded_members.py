"""The brokers that were added while a run was recorded, as far as the recording has the topic of members.

In: a recording. Out: the newest record of each broker that has its own facts. It takes a whole reading: ask only
where telemetry names brokers that the recorded inventory does not have.
"""

from __future__ import annotations

from dataclasses import replace

import msgspec

from regraft.overlay.inventory import Inventory
from regraft.overlay.members import FleetView
from regraft.producers.recordings.read_recording import Recording
from regraft.schemas.codec import UndecodableRecordError, decode
from regraft.schemas.member import Member, MemberState
from regraft.schemas.topics import MEMBERS


def added_members(recording: Recording) -> list[Member]:
    """Return the brokers with facts, by name, all as in service: which were in the overlay, the plans say.

    They have no agents: a recording holds in one topic what all agents said.
    """
    found: dict[str, Member] = {}
    if MEMBERS.suffix not in recording.info.topics:
        return []
    for message in recording.messages([MEMBERS.suffix]):
        try:
            member = None if message.value is None else decode(message.value, Member)
        except UndecodableRecordError:
            continue
        if member is not None and member.facts is not None:
            facts = msgspec.structs.replace(member.facts, agent="")
            found[member.broker] = Member(member.broker, MemberState.IN_SERVICE, 0, member.reason, facts=facts)
    return [found[broker] for broker in sorted(found)]


def recorded_inventory(recording: Recording) -> Inventory:
    """Return the inventory of all brokers with telemetry possibly in the recording; its first overlay has the first.

    It takes a whole reading.
    """
    fleet = FleetView.of(recording.info.inventory, added_members(recording))
    return replace(fleet.inventory, agent_of={})
