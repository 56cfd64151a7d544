"""Orders: the newest about each subject is in force until it expires."""

import pytest

from regraft.schemas.order import WHOLE_OVERLAY, Order, OrderKind
from regraft.schemas.order_book import BROKER_ORDERS_KEPT_MAX, OrderBook, OrderInForce, order_text


def order(kind: OrderKind, subject: str = WHOLE_OVERLAY, until_ms: int = 0, *, evacuate: bool = False) -> Order:
    return Order(subject, kind, "ada", "because", 1_000, until_ms, evacuate)


def test_the_newest_order_about_a_subject_is_in_force() -> None:
    """Resuming ends a pause, and a broker's return ends only its own maintenance."""
    book = OrderBook([order(OrderKind.PAUSE), order(OrderKind.MAINTAIN, "b1"), order(OrderKind.MAINTAIN, "b2")])
    assert book.paused(2_000) is not None
    assert list(book.maintained(2_000)) == ["b1", "b2"]
    book.take(order(OrderKind.RESUME))
    book.take(order(OrderKind.RETURN, "b1"))
    assert book.paused(2_000) is None
    assert list(book.maintained(2_000)) == ["b2"]


def test_an_order_with_an_end_expires() -> None:
    """A forgotten pause or maintenance ends at its time, not before."""
    book = OrderBook([order(OrderKind.PAUSE, until_ms=5_000), order(OrderKind.MAINTAIN, "b1", until_ms=6_000)])
    assert book.paused(4_999) is not None
    assert book.paused(5_000) is None
    assert list(book.maintained(5_999)) == ["b1"]
    assert book.maintained(6_000) == {}


def test_orders_of_different_scopes_do_not_replace_each_other() -> None:
    """A broker may have the name of a plan: the key of the topic keeps them apart."""
    book = OrderBook([order(OrderKind.MAINTAIN, "plan-1"), order(OrderKind.APPROVE, "plan-1")])
    assert list(book.maintained(2_000)) == ["plan-1"]
    about = book.about_plan("plan-1")
    assert about is not None
    assert about.kind is OrderKind.APPROVE
    assert {order(kind).key.split("/")[0] for kind in OrderKind} == {"plan", "adaptation", "broker", "member"}


@pytest.mark.parametrize("kind", [kind for kind in OrderKind if kind.scope == "member"])
def test_orders_about_members_do_not_stay_in_force(kind: OrderKind) -> None:
    """They are executed once and then part of the member's record; they affect no plan and no maintenance."""
    book = OrderBook([order(kind, "b1")])
    assert book.about_plan("b1") is None
    assert book.maintained(2_000) == {}


def test_orders_in_force_are_shown_with_author_and_reason() -> None:
    """The view shows who paused adaptation, which brokers are in maintenance, and since when."""
    book = OrderBook([order(OrderKind.PAUSE), order(OrderKind.MAINTAIN, "b1", evacuate=True)])
    shown = book.in_force(2_000)
    assert shown.paused == OrderInForce(by="ada", reason="because", since_ms=1_000, until_ms=0)
    assert [(one.broker, one.evacuate) for one in shown.maintenance] == [("b1", True)]
    assert order_text(order(OrderKind.PAUSE)) == "pause adaptation, by ada: because"


def test_the_oldest_orders_about_brokers_are_dropped_beyond_the_limit() -> None:
    """Anybody can invent names of brokers; a repeated order counts as new."""
    book = OrderBook(order(OrderKind.MAINTAIN, f"b{number}") for number in range(BROKER_ORDERS_KEPT_MAX))
    book.take(order(OrderKind.MAINTAIN, "b0"))
    book.take(order(OrderKind.MAINTAIN, "one more"))
    kept = book.maintained(2_000)
    assert len(kept) == BROKER_ORDERS_KEPT_MAX
    assert {"b0", "one more"} <= set(kept)
    assert "b1" not in kept


def test_an_order_without_a_reason_names_its_author() -> None:
    """The text does not give the order itself as its reason."""
    approval = Order("plan-1", OrderKind.APPROVE, "ada", "", 1_000)
    assert order_text(approval) == "approve plan-1, by ada"
    assert approval.by_and_why == "ada"
    assert order(OrderKind.APPROVE, "plan-1").by_and_why == "ada: because"
