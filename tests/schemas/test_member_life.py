"""Which orders a member accepts in each state, and what a signature over its facts covers."""

import json

import pytest
from msgspec import structs

from regraft.schemas.codec import decode, encode
from regraft.schemas.member import BrokerFacts, Member, MemberState, PeerCost, Position
from regraft.schemas.member_life import state_after, why_member_order_refused
from regraft.schemas.order import Order, OrderKind

ABOUT_MEMBERS = [kind for kind in OrderKind if kind.scope == "member"]
FACTS = BrokerFacts(2.0, (PeerCost("b01", 3.5),), position=Position(1.0, -2.0))


def member(state: MemberState) -> Member:
    return Member("b07", state, 1_000, "as said")


@pytest.mark.parametrize("kind", ABOUT_MEMBERS)
@pytest.mark.parametrize("state", [None, *MemberState])
def test_an_order_leads_to_another_state_or_is_refused(kind: OrderKind, state: MemberState | None) -> None:
    """It is always exactly one of the two, and a refusal names the broker."""
    about = None if state is None else member(state)
    after, refusal = state_after(kind, about), why_member_order_refused(kind, "b07", about, FACTS)
    assert (after is None) is bool(refusal)
    assert after != state or after is None
    assert refusal == "" or "b07" in refusal


def test_every_state_can_be_left_by_an_order() -> None:
    """No member is stuck in a state that no order can end."""
    for state in MemberState:
        assert any(state_after(kind, member(state)) for kind in ABOUT_MEMBERS), state


@pytest.mark.parametrize(
    ("kind", "state", "why"),
    [
        (OrderKind.DRAIN, None, "b07 is not a member"),
        (OrderKind.DRAIN, MemberState.DEAD, "b07 is dead and cannot be drained"),
        (OrderKind.DRAIN, MemberState.JOINING, "not in the overlay yet"),
        (OrderKind.REMOVE, MemberState.IN_SERVICE, "drain it, or declare it dead"),
        (OrderKind.ADD, MemberState.IN_SERVICE, "already a member and in service"),
        (OrderKind.ADD, MemberState.LEFT, "members readmit"),
        (OrderKind.READMIT, MemberState.JOINING, "cannot be readmitted"),
    ],
)
def test_an_impossible_order_is_refused_with_a_reason(kind: OrderKind, state: MemberState | None, why: str) -> None:
    """The sentence says why, and what would help."""
    assert why in why_member_order_refused(kind, "b07", None if state is None else member(state), FACTS)


def test_a_broker_without_facts_cannot_be_added() -> None:
    """No link to it would have a cost."""
    assert "its link costs" in why_member_order_refused(OrderKind.ADD, "b07", None, None)


def test_a_broker_whose_agent_can_have_no_topics_cannot_be_added() -> None:
    """A dot in the agent's name would give another topic, and no inventory could hold the broker."""
    facts = structs.replace(FACTS, agent="east.b07")
    assert "its agent is 'east.b07', 1 to 64" in why_member_order_refused(OrderKind.ADD, "b07", None, facts)
    assert not why_member_order_refused(OrderKind.ADD, "b07", None, structs.replace(FACTS, agent="east"))


def test_a_signature_covers_the_facts_of_an_added_broker() -> None:
    """A changed cost changes the signed text; fields that later versions add leave earlier signatures valid."""
    order = Order("b07", OrderKind.ADD, "ada", "more room", 1_000, facts=FACTS)
    dearer = structs.replace(order, facts=structs.replace(FACTS, link_costs=(PeerCost("b01", 4.0),)))
    assert order.signed_text("live") != dearer.signed_text("live")
    signed = json.loads(order.signed_text("live"))[2]["facts"]
    assert signed == {
        "processing_cost": 2.0,
        "link_costs": [{"peer": "b01", "cost": 3.5}],
        "position": {"x": 1.0, "y": -2.0},
    }
    assert decode(encode(order), Order).signed_text("live") == order.signed_text("live")
