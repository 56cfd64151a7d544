"""The brokers that were added while a run was recorded, if the recording includes the topic of members.

In: a recording. Out: the newest record of each broker that has its own facts. This reads the whole recording: ask only
if telemetry names brokers that the recorded inventory does not list.
"""

from __future__ import annotations

from dataclasses import replace

import msgspec

from regraft.overlay.inventory.inventory import Inventory
from regraft.overlay.inventory.members import FleetView
from regraft.producers.recordings.read_recording import Recording
from regraft.schemas.codec import UndecodableRecordError, decode
from regraft.schemas.member import Member, MemberState
from regraft.schemas.topics import MEMBERS


def added_members(recording: Recording) -> list[Member]:
    """Return the brokers with facts, sorted by name, all as in service; the plans show which were in the overlay.

    They have no agents: a recording keeps the records of all agents in one topic.
    """
    members: dict[str, Member] = {}
    if MEMBERS.suffix not in recording.info.topics:
        return []
    for message in recording.messages([MEMBERS.suffix]):
        try:
            member = None if message.value is None else decode(message.value, Member)
        except UndecodableRecordError:
            continue
        if member is not None and member.facts is not None:
            facts = msgspec.structs.replace(member.facts, agent="")
            members[member.broker] = Member(member.broker, MemberState.IN_SERVICE, 0, member.reason, facts=facts)
    return [members[broker] for broker in sorted(members)]


def recorded_inventory(recording: Recording) -> Inventory:
    """Return the inventory of all brokers that may have telemetry in the recording, with the initial overlay.

    Reads the whole recording.
    """
    fleet = FleetView.of(recording.info.inventory, added_members(recording))
    return replace(fleet.inventory, agent_of={})
