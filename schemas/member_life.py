"""Which orders about a member are allowed in which state, and the states they lead to.

In: an order's kind and its member. Out: the next state, or why the order cannot be followed. Following it belongs to
the controller.
"""

from __future__ import annotations

from regraft.schemas.member import BrokerFacts, Member, MemberState
from regraft.schemas.order import OrderKind
from regraft.schemas.topics import AGENT_PATTERN

TRANSITIONS: dict[OrderKind, dict[MemberState, MemberState]] = {
    OrderKind.DRAIN: {MemberState.IN_SERVICE: MemberState.LEAVING},
    OrderKind.DEAD: {
        MemberState.JOINING: MemberState.DEAD,
        MemberState.IN_SERVICE: MemberState.DEAD,
        MemberState.LEAVING: MemberState.DEAD,
    },
    OrderKind.REMOVE: {MemberState.JOINING: MemberState.LEFT, MemberState.DEAD: MemberState.LEFT},
    OrderKind.READMIT: {
        MemberState.LEAVING: MemberState.IN_SERVICE,
        MemberState.IN_SERVICE: MemberState.JOINING,  # It runs outside the overlay, though nothing has shown that.
        MemberState.DEAD: MemberState.JOINING,
        MemberState.LEFT: MemberState.JOINING,
    },
}
PARTICIPLES = {
    OrderKind.DRAIN: "drained",
    OrderKind.DEAD: "declared dead",
    OrderKind.REMOVE: "removed",
    OrderKind.READMIT: "readmitted",
}
HINTS: dict[tuple[OrderKind, MemberState], str] = {
    (OrderKind.DRAIN, MemberState.JOINING): "it is not in the overlay yet: remove it, or wait until it is in service",
    (OrderKind.REMOVE, MemberState.IN_SERVICE): "drain it, or declare it dead",
    (OrderKind.REMOVE, MemberState.LEAVING): "it is draining and will leave on its own: wait, or declare it dead",
}


def state_after(kind: OrderKind, member: Member | None) -> MemberState | None:
    """Return the state that an order about a member leads to, or None if it cannot be followed."""
    if kind is OrderKind.ADD:
        return MemberState.JOINING if member is None else None
    return None if member is None else TRANSITIONS.get(kind, {}).get(member.state)


def why_member_order_refused(kind: OrderKind, broker: str, member: Member | None, facts: BrokerFacts | None) -> str:
    """Return why an order about a member cannot be followed, "" if it can; ``member`` is None if it is unknown."""
    if state_after(kind, member) is not None:
        if kind is OrderKind.ADD and facts is None:
            return f"{broker} cannot be added: give its link costs or its position"
        if facts is not None and facts.agent and not AGENT_PATTERN.fullmatch(facts.agent):
            return (
                f"{broker} cannot be added: its agent is {facts.agent!r}, 1 to 64 letters, digits, _ or - are allowed"
            )
        return ""
    if member is None:
        return f"{broker} is not a member: `regraft members list` lists them"
    if kind is OrderKind.ADD:
        hint = (
            " (`regraft members readmit` lets it rejoin)"
            if member.state in (MemberState.DEAD, MemberState.LEFT)
            else ""
        )
        return f"{broker} is already a member and {_state_text(member.state)}{hint}"
    hint = HINTS.get((kind, member.state), "")
    return f"{broker} is {_state_text(member.state)} and cannot be {PARTICIPLES[kind]}{f': {hint}' if hint else ''}"


def _state_text(state: MemberState) -> str:
    return str(state).replace("_", " ")
