"""Read the announcements of brokers that are not members, to list or add them."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import TYPE_CHECKING

import structlog

from regraft.commands.describe_broker import since_text
from regraft.schemas.announcement import EXPIRY_MS, Announcement, announcement_error, how_to_admit, may_announce
from regraft.schemas.member import Member

if TYPE_CHECKING:
    from regraft.settings.run_settings import Settings

READ_S_MAX = 30.0

log = structlog.get_logger(__name__)


def read_announced(settings: Settings, known: Mapping[str, Member]) -> list[Announcement]:
    """Return the current announcements by broker, except those of members and of other agents.

    Raises StackError if Kafka is unavailable.
    """
    from regraft.infra.kafka.read_messages import find_names, read_messages
    from regraft.schemas.codec import UndecodableRecordError, decode
    from regraft.schemas.topics import ANNOUNCEMENTS

    kafka, namespace = settings.kafka.access, settings.kafka.namespace
    announcements: dict[tuple[str, str], Announcement] = {}
    since_ms = time.time_ns() // 1_000_000 - EXPIRY_MS
    names = find_names(kafka, ANNOUNCEMENTS, namespace)
    for message in read_messages(kafka, names, READ_S_MAX, since_ms) if names else ():  # No topic before an upgrade.
        if message.value() is None:
            continue
        try:
            announcement = decode(message.value(), Announcement)
        except UndecodableRecordError as error:
            log.warning("record_skipped", topic=message.topic(), offset=message.offset(), reason=str(error))
            continue
        if not announcement_error(namespace, message.topic() or "", announcement, None) and may_announce(
            known.get(announcement.broker)
        ):
            announcements[announcement.broker, announcement.facts.agent] = announcement
    return [announcement for _, announcement in sorted(announcements.items())]


def announced_row(one: Announcement, known: Mapping[str, Member]) -> tuple[str, str, str, str]:
    """Return a broker that asks to join as a table row: name, state, time of the last request, and how to admit it."""
    parts = [f"agent {one.facts.agent}"] if one.facts.agent else []
    parts += [one.facts.address] if one.facts.address else []
    parts.append(how_to_admit(one, known, has_left=one.broker in known))
    return one.broker, "asks to join", since_text(one.time_ms), "; ".join(parts)
