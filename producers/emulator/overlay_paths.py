"""Which path a notification takes in an overlay, and which overlay a prepare leads to, from configurations alone.

For judging brokers: their cores have their own tables, which must agree with these paths.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from regraft.overlay.overlay_configuration import OverlayConfiguration
from regraft.overlay.ring.ring_configuration import RingConfiguration
from regraft.overlay.scot.scot_configuration import ScotConfiguration
from regraft.overlay.tree.tree_configuration import TreeConfiguration
from regraft.producers.brokers.broker_messages import Notification
from regraft.producers.brokers.ring_tables import TOPIC
from regraft.schemas.command import Command

Hop = tuple[str, bool]  # A broker, and whether a notification reaches it from its topic's rendezvous.


def _tree_path(tree: TreeConfiguration, notification: Notification, home: str) -> list[Hop]:
    return [(broker, False) for broker in tree.path(notification.home, home)]


def _ring_path(ring: RingConfiguration, notification: Notification, home: str) -> list[Hop]:
    """Return the path to the topic's rendezvous, and from there down its tree."""
    root = ring.rendezvous(str(notification.content[TOPIC]))
    up = [(broker, False) for broker in ring.route(notification.home, root)]
    return up + [(broker, True) for broker in ring.route(root, home)[1:]]


def _scot_path(scot: ScotConfiguration, notification: Notification, home: str) -> list[Hop]:
    """Return the path of static routing; so this does not excuse a loss to a death on a detour."""
    return [(broker, False) for broker in scot.static_route(notification.home, home)]


PATHS: dict[str, Callable[[Any, Notification, str], list[Hop]]] = {
    TreeConfiguration.KIND: _tree_path,
    RingConfiguration.KIND: _ring_path,
    ScotConfiguration.KIND: _scot_path,
}


def path_in(overlay: OverlayConfiguration, notification: Notification, home: str) -> list[Hop]:
    """Return a notification's path to a subscription at ``home``; empty if one of its ends is not in the overlay."""
    if notification.home not in overlay.neighbours or home not in overlay.neighbours:
        return []
    return PATHS[overlay.KIND](overlay, notification, home)


def target_of(overlay: OverlayConfiguration, command: Command) -> OverlayConfiguration | None:
    """Return the overlay that a prepare leads to from this one, or None if no broker can execute it."""
    target = overlay.agreed_target(command)
    return None if isinstance(target, str) else target
