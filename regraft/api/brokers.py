"""The protocol of a broker: messages, routing, epochs. Pure: no clock, no network.

The driver's duties are in :mod:`producers.brokers.broker_protocol`.
"""

from regraft.producers.brokers.broker_messages import (
    Bundle,
    ClientRequest,
    Deliver,
    Effect,
    End,
    Message,
    Notification,
    Send,
    Subscribe,
)
from regraft.producers.brokers.broker_protocol import BrokerProtocol
from regraft.producers.brokers.broker_reports import BrokerPhase
from regraft.producers.brokers.broker_state import BrokerState
from regraft.producers.brokers.match_content import Content, Filter, Operator, Predicate, intersects, matches
from regraft.producers.brokers.ring_broker_state import RingPlanUnderWay, RingState
from regraft.producers.brokers.ring_routing import RingRouting
from regraft.producers.brokers.ring_tables import RingTables
from regraft.producers.brokers.scot_routing import ScotBroker
from regraft.producers.brokers.tree_routing import TreeRouting
from regraft.producers.brokers.tree_tables import LOCAL, RoutingTables, TreePlanUnderWay, TreeState
from regraft.producers.brokers.two_epochs import TwoEpochBroker

__all__ = [
    "LOCAL",
    "BrokerPhase",
    "BrokerProtocol",
    "BrokerState",
    "Bundle",
    "ClientRequest",
    "Content",
    "Deliver",
    "Effect",
    "End",
    "Filter",
    "Message",
    "Notification",
    "Operator",
    "Predicate",
    "RingPlanUnderWay",
    "RingRouting",
    "RingState",
    "RingTables",
    "RoutingTables",
    "ScotBroker",
    "Send",
    "Subscribe",
    "TreePlanUnderWay",
    "TreeRouting",
    "TreeState",
    "TwoEpochBroker",
    "intersects",
    "matches",
]
