"""Orders about members: judged by the member's state, forwarded once, and not again after a restart."""

from regraft.controller.execute.take_orders import OrderTaker
from regraft.controller.ports.memory_ports import MemoryAudit, MemoryEvents, MemoryOrders
from regraft.controller.state.plan_log import PlanLog
from regraft.schemas.audit import AuditOutcome, GivenOrder
from regraft.schemas.event import EventKind
from regraft.schemas.member import BrokerFacts, Member, MemberState
from regraft.schemas.order import Order, OrderKind
from tests.overlay.small_overlays import inventory_of, line_of

MEMBERS = {broker: Member(broker, MemberState.IN_SERVICE, 0, "so") for broker in ("b00", "b01", "b02")}


class Site:
    def __init__(self) -> None:
        self.orders, self.events, self.audit = MemoryOrders(), MemoryEvents(), MemoryAudit()
        self.taker = OrderTaker(self.orders, self.events, self.audit)
        self.taker.members = MEMBERS

    def give(self, kind: OrderKind, broker: str, facts: BrokerFacts | None = None, *, is_new: bool = True) -> None:
        order = Order(broker, kind, "ada", "because", 1_000, facts=facts)
        self.orders.records.append(GivenOrder(order, 1_000, is_new=is_new))

    def read(self) -> list[tuple[str, str]]:
        self.taker.read(PlanLog(inventory_of(line_of(3), {})), 2_000)
        return [(order.kind, order.subject) for order in self.taker.take_about_members()]


def test_an_accepted_order_is_forwarded_once() -> None:
    """The component that keeps the members gets each accepted order once, oldest first."""
    site = Site()
    site.give(OrderKind.DRAIN, "b01")
    site.give(OrderKind.ADD, "x1", BrokerFacts(1.0))
    assert site.read() == [("drain", "b01"), ("add", "x1")]
    assert site.read() == []
    assert [entry.outcome for entry in site.audit.entries] == [AuditOutcome.ACCEPTED] * 2


def test_an_impossible_order_is_refused_reported_and_audited() -> None:
    """An order about an unknown broker, and one to add a present member, change nothing."""
    site = Site()
    site.give(OrderKind.DRAIN, "b09")
    site.give(OrderKind.ADD, "b00", BrokerFacts(1.0))
    assert site.read() == []
    assert [entry.outcome for entry in site.audit.entries] == [AuditOutcome.REFUSED] * 2
    assert [event.kind for event in site.events.emitted] == [EventKind.ORDER_REFUSED] * 2


def test_an_order_executed_before_a_restart_is_not_executed_again() -> None:
    """A broker that was drained and has rejoined since is not drained by the old order."""
    site = Site()
    site.give(OrderKind.DRAIN, "b01", is_new=False)
    assert site.read() == []
