"""Replay the register of clients to add to stored windows what users wanted at the time.

The topic is compacted: in a long run, earlier records of a client may be gone, and old windows then lack interests. A
demo ends before compaction begins.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import structlog

from regraft.controller.kinds.overlay_kind import AnyKind
from regraft.controller.state.closed_window import ClosedWindow
from regraft.infra.kafka.kafka_access import KafkaAccess
from regraft.infra.kafka.read_messages import read_messages
from regraft.overlay.overlay_configuration import OverlayConfiguration
from regraft.overlay.registered_clients import RegisteredClients
from regraft.schemas.client import Client
from regraft.schemas.codec import UndecodableRecordError, decode
from regraft.schemas.topics import CLIENTS, topic_name

SUBSCRIPTIONS_KEPT_MAX = 50_000_000  # In all windows, some 400 MB; beyond it the oldest are not costed.

log = structlog.get_logger(__name__)


@dataclass(frozen=True)
class ClientChange:
    """A client's state from ``time_ms`` on; ``client`` is None if it left."""

    time_ms: int
    name: str
    client: Client | None


def read_client_changes(kafka: KafkaAccess, namespace: str, wait_s_max: float) -> Iterator[ClientChange]:
    """Yield all records of the register, oldest first. Raises UnreadableTopicError.

    The time is that of the client's record or, for a departure, the time at which it was written.
    """
    for message in read_messages(kafka, [topic_name(CLIENTS, namespace)], wait_s_max):
        name, value = (message.key() or b"").decode(errors="replace"), message.value()
        try:
            client = None if value is None else decode(value, Client)
        except UndecodableRecordError as error:
            log.warning("record_skipped", topic=message.topic(), offset=message.offset(), reason=str(error))
            continue
        yield ClientChange(message.timestamp()[1] if client is None else client.time_ms, name, client)


def with_register(
    windows: Sequence[ClosedWindow],
    kind: AnyKind,
    changes: Iterable[ClientChange],
    configurations: Mapping[int, OverlayConfiguration],
    unknown_share_max: float,
) -> tuple[ClosedWindow, ...]:
    """Return the windows (oldest first), each with the register as of its end.

    ``configurations``: those that brokers may have stamped, by epoch. Each change is processed once, in the topic's
    order. To bound memory, the oldest windows lose their interests beyond SUBSCRIPTIONS_KEPT_MAX subscriptions.
    """
    register = RegisteredClients()
    coming = iter(changes)
    waiting = next(coming, None)
    replayed: list[ClosedWindow] = []
    kept = oldest = 0
    for window in windows:
        while waiting is not None and waiting.time_ms <= window.end_ms:
            if waiting.client is None:
                register.remove(waiting.name)
            else:
                register.put(waiting.client)
            waiting = next(coming, None)
        overlays = [_overlay_at(configurations, epoch) for epoch in (window.epoch_min, window.epoch_max)]
        interests = register.interests(window.sets.brokers)
        kept += 0 if replayed and replayed[-1].interests is interests else interests.subscription_count
        attached = kind.attach_clients(window, interests, register.topic_of, overlays, unknown_share_max)
        replayed.append(attached[0])
        while kept > SUBSCRIPTIONS_KEPT_MAX and oldest < len(replayed) - 1:
            gone, replayed[oldest] = replayed[oldest].interests, replayed[oldest].without_interests()
            oldest += 1
            kept -= 0 if gone is None or replayed[oldest].interests is gone else gone.subscription_count
    if oldest:
        log.warning("windows_not_costed", count=oldest, reason=f"more than {SUBSCRIPTIONS_KEPT_MAX} subscriptions")
    return tuple(replayed)


def _overlay_at(configurations: Mapping[int, OverlayConfiguration], epoch: int) -> OverlayConfiguration:
    numbers = [number for number in configurations if number <= epoch] or [min(configurations)]
    return configurations[max(numbers)]
