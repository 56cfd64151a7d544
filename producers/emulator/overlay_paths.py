"""Which path a notification takes in an overlay, and which overlay a prepare leads to, from configurations alone.

For judging brokers: their cores have their own tables, which must agree.
"""

from __future__ import annotations

from typing import Any, Protocol

from regraft.overlay.overlay_configuration import OverlayConfiguration, link
from regraft.overlay.ring.ring_configuration import RingConfiguration
from regraft.overlay.scot.scot_configuration import ScotConfiguration
from regraft.overlay.tree.tree_configuration import TreeConfiguration
from regraft.producers.brokers.broker_messages import Notification
from regraft.producers.brokers.epoch_change import digest_mismatch, requested_change
from regraft.producers.brokers.ring_tables import TOPIC
from regraft.schemas.command import Command

Hop = tuple[str, bool]  # A broker, and whether a notification reaches it from its topic's rendezvous.


class OverlayPaths(Protocol):
    """The paths and plans of one kind of overlay."""

    def path(self, overlay: Any, notification: Notification, home: str) -> list[Hop]:
        """Return the brokers on the path from the notification's home to a subscription's, both included."""
        ...

    def target(self, overlay: Any, command: Command) -> OverlayConfiguration:
        """Return the overlay that a prepare leads to; raise ValueError if it is impossible."""
        ...


class _TreePaths:
    """The only path of a tree."""

    def path(self, overlay: TreeConfiguration, notification: Notification, home: str) -> list[Hop]:
        return [(broker, False) for broker in overlay.path(notification.home, home)]

    def target(self, overlay: TreeConfiguration, command: Command) -> OverlayConfiguration:
        removed = [link(a, b) for a, b in command.links_removed]
        added = [link(a, b) for a, b in command.links_added]
        return overlay.replaced(command.epoch_to, removed, added, change=requested_change(command, overlay))


class _RingPaths:
    """The path to the topic's rendezvous, and from there down its tree."""

    def path(self, overlay: RingConfiguration, notification: Notification, home: str) -> list[Hop]:
        root = overlay.rendezvous(str(notification.content[TOPIC]))
        up = [(broker, False) for broker in overlay.route(notification.home, root)]
        return up + [(broker, True) for broker in overlay.route(root, home)[1:]]

    def target(self, overlay: RingConfiguration, command: Command) -> OverlayConfiguration:
        return overlay.replaced(command.epoch_to, command.id_moves, change=requested_change(command, overlay))


class _ScotPaths:
    """The path of static routing; so this does not excuse a loss to a death on a detour."""

    def path(self, overlay: ScotConfiguration, notification: Notification, home: str) -> list[Hop]:
        return [(broker, False) for broker in overlay.static_route(notification.home, home)]

    def target(self, overlay: ScotConfiguration, command: Command) -> OverlayConfiguration:
        change = requested_change(command, overlay)
        exchanged = command.links_removed, command.links_added
        return overlay.replaced(command.epoch_to, command.id_moves, *exchanged, change)


PATHS: dict[str, OverlayPaths] = {
    TreeConfiguration.KIND: _TreePaths(),
    RingConfiguration.KIND: _RingPaths(),
    ScotConfiguration.KIND: _ScotPaths(),
}


def path_in(overlay: OverlayConfiguration, notification: Notification, home: str) -> list[Hop]:
    """Return a notification's path to a subscription at ``home``; empty if one of its ends is not in the overlay."""
    if notification.home not in overlay.neighbours or home not in overlay.neighbours:
        return []
    return PATHS[overlay.KIND].path(overlay, notification, home)


def target_of(overlay: OverlayConfiguration, command: Command) -> OverlayConfiguration | None:
    """Return the overlay that a prepare leads to from this one, or None if no broker can execute it."""
    try:
        target = PATHS[overlay.KIND].target(overlay, command)
    except ValueError:
        return None
    return None if digest_mismatch(command, target) else target
