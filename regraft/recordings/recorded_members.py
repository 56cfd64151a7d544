"""The brokers that were added while a run was recorded, as far as the recording has the topic of members.

In: a recording. Out: the newest record of each broker that has facts of its own. It takes a whole reading: ask only
where telemetry names brokers that the recorded inventory does not have.
"""

from __future__ import annotations

from producers.recordings.read_recording import Recording
from schemas.codec import UndecodableRecordError, decode
from schemas.member import Member, MemberState
from schemas.topics import MEMBERS


def added_members(recording: Recording) -> list[Member]:
    """Return the brokers with facts, by name, all as in service: which were in the overlay, the plans say."""
    found: dict[str, Member] = {}
    if MEMBERS.suffix not in recording.info.topics:
        return []
    for message in recording.messages([MEMBERS.suffix]):
        try:
            member = None if message.value is None else decode(message.value, Member)
        except UndecodableRecordError:
            continue
        if member is not None and member.facts is not None:
            found[member.broker] = Member(member.broker, MemberState.IN_SERVICE, 0, member.reason, facts=member.facts)
    return [found[broker] for broker in sorted(found)]
