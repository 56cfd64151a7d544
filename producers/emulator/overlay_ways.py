"""Which way a notification goes in an overlay and to which overlay a prepare leads, by kind, from configurations alone.

For judging brokers: their cores have their own tables, which must agree.
"""

from __future__ import annotations

from typing import Any, Protocol

from regraft.overlay.chord_configuration import ChordConfiguration
from regraft.overlay.configuration import Configuration, link
from regraft.overlay.overlay_configuration import OverlayConfiguration
from regraft.overlay.scot_configuration import ScotConfiguration
from regraft.producers.brokers.broker_messages import Notification
from regraft.producers.brokers.chord_trees import TOPIC
from regraft.producers.brokers.epoch_change import change_asked, digest_mismatch
from regraft.schemas.command import Command

Passage = tuple[str, bool]  # A broker, and whether a notification comes to it from its topic's rendezvous.


class OverlayWays(Protocol):
    """What a kind of overlay says of ways and plans."""

    def way(self, overlay: Any, notification: Notification, home: str) -> list[Passage]:
        """Return the brokers from the notification's home to a subscription's, both included."""
        ...

    def target(self, overlay: Any, command: Command) -> OverlayConfiguration:
        """Return the overlay that a prepare leads to; raise ValueError when it cannot be."""
        ...


class _TreeWays:
    """The one path there is."""

    def way(self, overlay: Configuration, notification: Notification, home: str) -> list[Passage]:
        return [(broker, False) for broker in overlay.path(notification.home, home)]

    def target(self, overlay: Configuration, command: Command) -> OverlayConfiguration:
        removed = [link(a, b) for a, b in command.links_removed]
        added = [link(a, b) for a, b in command.links_added]
        return overlay.replaced(command.epoch_to, removed, added, change=change_asked(command, overlay))


class _RingWays:
    """To the topic's rendezvous, and from there down its tree."""

    def way(self, overlay: ChordConfiguration, notification: Notification, home: str) -> list[Passage]:
        root = overlay.rendezvous(str(notification.content[TOPIC]))
        up = [(broker, False) for broker in overlay.route(notification.home, root)]
        return up + [(broker, True) for broker in overlay.route(root, home)[1:]]

    def target(self, overlay: ChordConfiguration, command: Command) -> OverlayConfiguration:
        return overlay.replaced(command.epoch_to, command.id_moves, change=change_asked(command, overlay))


class _ScotWays:
    """The way of static routing: a detour around congestion may meet a death that this does not excuse."""

    def way(self, overlay: ScotConfiguration, notification: Notification, home: str) -> list[Passage]:
        return [(broker, False) for broker in overlay.static_way(notification.home, home)]

    def target(self, overlay: ScotConfiguration, command: Command) -> OverlayConfiguration:
        change = change_asked(command, overlay)
        exchanged = command.links_removed, command.links_added
        return overlay.replaced(command.epoch_to, command.id_moves, *exchanged, change)


WAYS: dict[str, OverlayWays] = {
    Configuration.KIND: _TreeWays(),
    ChordConfiguration.KIND: _RingWays(),
    ScotConfiguration.KIND: _ScotWays(),
}


def way_in(overlay: OverlayConfiguration, notification: Notification, home: str) -> list[Passage]:
    """Return the passages of a notification on its way to a subscription at ``home``; empty where an end is missing."""
    if notification.home not in overlay.neighbours or home not in overlay.neighbours:
        return []
    return WAYS[overlay.KIND].way(overlay, notification, home)


def target_of(overlay: OverlayConfiguration, command: Command) -> OverlayConfiguration | None:
    """Return the overlay that a prepare leads to from this one, None when no broker can carry it out."""
    try:
        target = WAYS[overlay.KIND].target(overlay, command)
    except ValueError:
        return None
    return None if digest_mismatch(command, target) else target
