"""What a node reads from its core: on which overlays it can run, and what its connector must ask for.

Nodes run on trees and on structured cyclic overlays. On a tree, a broker knows each subscription that wants something
of it. On a structured cyclic overlay it knows those of its own cluster; of another cluster only that it wants
something, so that the connector asks for everything then.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from regraft.overlay.inventory.inventory import Inventory
from regraft.overlay.scot.scot_configuration import ScotConfiguration
from regraft.overlay.tree.tree_configuration import TreeConfiguration
from regraft.producers.brokers.broker_messages import Message, Subscribe, VectorBit
from regraft.producers.brokers.broker_protocol import BrokerProtocol
from regraft.producers.brokers.match_content import Filter
from regraft.producers.brokers.scot_routing import ScotBroker
from regraft.producers.brokers.scot_tables import LOCAL as SCOT_LOCAL
from regraft.producers.brokers.tree_routing import TreeRouting
from regraft.producers.brokers.tree_tables import LOCAL as TREE_LOCAL

EVERYTHING: Filter = ()


@dataclass(frozen=True, slots=True)
class ListedSubscription:
    """A subscription in a core's tables; its name and home are empty if it stands for all of a cluster."""

    name: str
    home: str
    filter_: Filter
    is_elsewhere: bool


def kind_error(inventory: Inventory, *, has_groups_once: bool = False) -> str:
    """Return why nodes cannot run the inventory's overlay, as one sentence without an end; empty if they can."""
    kind = inventory.bootstrap.KIND
    if kind not in (TreeConfiguration.KIND, ScotConfiguration.KIND):
        return f"a {kind}: nodes are brokers of a tree or of a structured cyclic overlay (scot)"
    if kind == ScotConfiguration.KIND and has_groups_once:
        return (
            "a structured cyclic overlay (scot), but node.groups_once is set: there no broker knows the groups of "
            "other clusters, so leave it out"
        )
    if kind == ScotConfiguration.KIND and not inventory.clients_stay:
        return (
            'a structured cyclic overlay (scot) without "clients_stay": true: no plan can move its clients, so add it'
        )
    return ""


def subscriptions_in(core: BrokerProtocol) -> Iterator[ListedSubscription]:
    """Return what the tables of all live epochs hold about subscriptions."""
    if isinstance(core.routing, TreeRouting):
        for tables in core.state.epochs():
            for entry in tables.entries.values():
                is_elsewhere = entry.towards != TREE_LOCAL
                yield ListedSubscription(entry.subscription, entry.home, entry.filter_, is_elsewhere)
    elif isinstance(core, ScotBroker):
        for live in core.state.epochs():
            for name, one in live.entries.items():
                yield ListedSubscription(name, "", one.filter_, one.source != SCOT_LOCAL)
            if any(host.vector for host in (*live.hosted.values(), *live.earlier.values())):
                yield ListedSubscription("", "", EVERYTHING, is_elsewhere=True)


def is_subscribed(core: BrokerProtocol, subscription: str) -> bool:
    """Return True if a tree's core has a subscription in the tables of a live epoch that nobody has begun to release.

    Only queue groups need it, which nodes on other overlays refuse.
    """
    if not isinstance(core.routing, TreeRouting):
        return False
    entries = (tables.entries.get(subscription) for tables in core.state.epochs())
    return any(entry is not None and not entry.leaving for entry in entries)


def wishes_in(messages: Sequence[Message]) -> list[Filter]:
    """Return what a peer's messages, none of which is a bundle, say that others want."""
    wishes: list[Filter] = [each.filter_ for each in messages if isinstance(each, Subscribe)]
    if any(isinstance(each, VectorBit) and each.is_on for each in messages):
        wishes.append(EVERYTHING)
    return wishes
