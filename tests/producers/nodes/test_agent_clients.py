"""What a node keeps of clients beside agents while plans move them, and what of it outlives them: nothing."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from regraft.producers.brokers.broker_messages import SubscriberAwaited, SubscriberMoves, SubscriberTaken
from regraft.producers.brokers.broker_reports import BrokerPhase
from regraft.producers.brokers.match_content import Filter
from regraft.producers.nodes import agent_clients
from regraft.producers.nodes.agent_clients import AgentClients
from regraft.producers.nodes.connectors.agent_line import AgentLine
from regraft.producers.nodes.connectors.connector import LocalMessage
from regraft.schemas.agent_note import AgentNote, NoteKind, note_bytes, note_of
from regraft.schemas.command import Command, CommandPhase
from regraft.schemas.plan import ClientMove
from regraft.schemas.stay_reasons import StayReason

CLIENT = "web1.k3-1"
NAME, OTHER = f"{CLIENT}.1~0badcafe-1", f"{CLIENT}.2~0badcafe-2"
FILTER: Filter = ()


class Node:
    """One node's part: ``said`` are its notes, ``homes`` its registrations, None for an end."""

    def __init__(self) -> None:
        self.sent: list[LocalMessage] = []
        self.asked: list[Any] = []
        self.homes: list[tuple[str, Filter | None]] = []
        self.refused: list[str] = []
        self.line = AgentLine(self.sent.append, "regraft")
        self.clients = AgentClients("b02", self.asked.append, lambda *home: self.homes.append(home))
        self.clients.connect(self.line, self.refused.append)

    @property
    def said(self) -> list[NoteKind]:
        return [note.kind for message in self.sent if (note := note_of(message.payload))]

    def hear(self, kind: NoteKind, name: str = NAME, epoch: int = 1, client: str = CLIENT, reason: str = "") -> None:
        note = AgentNote(kind, name, epoch, reason=reason)
        assert self.line.receive(LocalMessage(f"_REGRAFT.agent.{client}", note_bytes(note)))

    def follow(self, epoch: int, phase: BrokerPhase) -> None:
        self.clients.follow(cast(Any, SimpleNamespace(epoch=epoch, phase=phase)))

    def is_empty(self) -> bool:
        clients = self.clients
        return not (clients._subscriptions or clients._moving or clients._left or len(clients._counted))


def arriving() -> Node:
    """Return the next home of a subscription, prepared."""
    node = Node()
    node.clients.begin(NAME, "group", FILTER, 1)
    node.clients.take_effect(SubscriberAwaited(NAME, 1))
    node.hear(NoteKind.READY)
    node.follow(0, BrokerPhase.PREPARED)
    return node


def leaving() -> Node:
    """Return the old home of a subscription that its next home has."""
    node = Node()
    node.clients.begin(NAME, "group", FILTER)
    node.clients.take_effect(SubscriberMoves(NAME, "b03", 1))
    node.hear(NoteKind.READY)
    node.follow(0, BrokerPhase.PREPARED)
    return node


def test_a_client_is_registered_again_when_where_it_may_go_changes() -> None:
    """All its subscriptions have the same; what is repeated changes nothing, and a client that left leaves nothing."""
    node = Node()
    for name in (NAME, OTHER):
        node.clients.begin(name, "group", FILTER)
    told = AgentNote(NoteKind.NEAREST, broker="b03", brokers=("b02", "b03"))
    for _ in range(2):
        assert node.line.receive(LocalMessage(f"_REGRAFT.agent.{CLIENT}", note_bytes(told)))
    assert node.homes == [(NAME, FILTER), (OTHER, FILTER)]
    assert node.clients.near(NAME) == node.clients.near(OTHER) == ("b03", ("b02", "b03"))
    for name in (NAME, OTHER):
        node.clients.end(name)
    node.clients.begin(NAME, "group", FILTER)
    assert node.clients.near(NAME) == ("", ())


def test_what_agents_send_behind_their_clients_messages_waits_for_a_plan_that_holds_these_back() -> None:
    """Of its epoch, any may be held back anywhere until it is over here, too."""

    def is_early(epoch: int, phase: BrokerPhase, at: int, subject: str = f"REGRAFT_FLUSH.{CLIENT}") -> bool:
        message, core = SimpleNamespace(subject=subject, epoch=epoch), SimpleNamespace(epoch=at, phase=phase)
        return Node().clients.is_early(cast(Any, message), cast(Any, core))

    assert not is_early(0, BrokerPhase.PREPARED, 0)
    assert is_early(1, BrokerPhase.PREPARED, 0)  # Another node has switched.
    assert is_early(1, BrokerPhase.DRAINING, 1)
    assert is_early(1, BrokerPhase.DRAINED, 1)
    assert not is_early(1, BrokerPhase.STEADY, 1)
    assert not is_early(1, BrokerPhase.DRAINED, 1, "data.b01")


def test_what_an_arriving_client_leaves_behind_goes_to_nobody() -> None:
    """What is held back for it would reach others here a second time."""
    node = arriving()
    assert node.clients.arriving_among([NAME]) == ((NAME,), True)
    assert node.clients.end(NAME) == (True, False)
    assert node.clients.arriving_among([NAME]) == ((), True)
    assert node.clients.arriving_among([NAME, "b02.1.s.1"]) == ((), False)
    node.follow(0, BrokerPhase.STEADY)
    assert node.clients.arriving_among([NAME]) == ((), False)
    assert not node.homes
    assert node.is_empty()


def test_a_client_that_ends_before_its_next_home_has_switched_is_registered_no_longer() -> None:
    """Its old home has handed it over by then; if that is aborted, it still is where it was."""
    node = arriving()
    node.clients.end(NAME)
    node.follow(1, BrokerPhase.DRAINING)
    node.follow(1, BrokerPhase.STEADY)
    assert node.homes == [(NAME, None)]
    assert node.is_empty()


def test_a_client_that_an_aborted_plan_brought_late_is_not_registered_as_gone_by_the_next_plan() -> None:
    """It may be at its old home, or the next plan brings it here: neither is an end."""
    node = Node()
    node.follow(0, BrokerPhase.PREPARING)  # The plan after the aborted one.
    for name in (NAME, OTHER):
        node.clients.begin(name, "group", FILTER, 1)
        node.clients.end(name)
    node.clients.begin(NAME, "group", FILTER, 2)
    assert node.clients.arriving_among([NAME]) == ((NAME,), True)
    node.follow(2, BrokerPhase.DRAINING)
    node.follow(2, BrokerPhase.STEADY)
    assert not node.homes
    assert node.clients.end(NAME) == (True, True)


def test_a_subscription_that_an_aborted_plan_brought_late_has_not_come_by_the_next_plan() -> None:
    """Its agent learns that the plan is over, and its end here is not the end of what is at the old home."""
    node = Node()
    node.clients.begin(NAME, "group", FILTER, 1)
    node.follow(0, BrokerPhase.PREPARING)
    node.follow(2, BrokerPhase.DRAINING)
    assert node.said[-1] is NoteKind.ABORTED
    assert node.clients.end(NAME) == (False, False)
    node.follow(2, BrokerPhase.STEADY)
    assert not node.homes
    assert node.is_empty()


def test_a_client_that_ends_while_its_old_home_drains_is_registered_no_longer() -> None:
    node = arriving()
    node.clients.take_effect(SubscriberTaken(NAME, 1))
    node.follow(1, BrokerPhase.DRAINING)
    assert node.homes == [(NAME, FILTER)]
    assert node.clients.end(NAME) == (True, True)
    node.follow(1, BrokerPhase.STEADY)
    assert node.is_empty()


@pytest.mark.parametrize("has_switched", [False, True])
def test_the_old_home_ends_a_client_that_it_still_has(has_switched: bool) -> None:
    node = leaving()
    if has_switched:
        node.follow(1, BrokerPhase.DRAINING)
    assert node.clients.end(NAME) == (not has_switched, not has_switched)
    node.follow(1, BrokerPhase.STEADY)
    assert node.is_empty()


def test_a_client_that_has_left_keeps_nobody_from_moving() -> None:
    """The command comes again, or late; any other client of the broker stays, and its plan is refused."""
    node = leaving()

    def may_obey(*names: str) -> bool:
        moves = tuple(ClientMove(name, "b02", "b03") for name in names)
        return node.clients.may_obey(Command("p1", CommandPhase.PREPARE, "b02", 0, 1, (), (), "", moves=moves))

    assert may_obey(NAME, OTHER)
    assert not may_obey(NAME, "b02.1764.s.3")
    node.clients.end(NAME)
    assert may_obey(NAME, OTHER)
    node.clients.begin(OTHER, "group", FILTER)
    node.hear(NoteKind.STAYS)
    assert not may_obey(NAME, OTHER)


def test_notes_about_others_change_nothing() -> None:
    """Another client's, of another plan, about what does not move; READY counts once."""
    node = leaving()
    asked, said = list(node.asked), list(node.said)
    for kind in NoteKind:
        node.hear(kind, epoch=7)
        node.hear(kind, OTHER)
        node.hear(kind, client="web2.k3-1")
    node.hear(NoteKind.READY)
    assert (node.asked, node.said) == (asked, said)
    assert node.clients.may_move(NAME) is False  # Its own agent says so, about whichever of its subscriptions.
    assert not node.refused


def test_a_plan_whose_agent_is_late_is_refused_with_what_was_awaited(monkeypatch: pytest.MonkeyPatch) -> None:
    """An agent's log holds nothing about that: it may wait behind what a broker or a node has not handed over."""
    node = Node()
    node.clients.begin(NAME, "group", FILTER)
    node.clients.take_effect(SubscriberMoves(NAME, "b03", 1))
    node.clients.note_time()
    assert not node.refused
    monkeypatch.setattr(agent_clients, "READY_S_MAX", -1.0)
    node.clients.note_time()
    (reason,) = node.refused
    assert all(each in reason for each in (NAME, "ready at b03", "broker_takes_few"))
    assert "log" not in reason


def test_a_client_that_stays_is_forgotten_once_it_has_left(monkeypatch: pytest.MonkeyPatch) -> None:
    """One that only restarts stays; what nobody here has sent is not remembered at all."""
    node = leaving()
    node.hear(NoteKind.STAYS, client="forged.k3-1")
    assert not node.clients._staying
    node.hear(NoteKind.STAYS)
    node.clients.end(NAME)
    node.clients.begin(OTHER, "group", FILTER)
    assert not node.clients.may_move(OTHER)
    node.clients.end(OTHER)
    monkeypatch.setattr(agent_clients, "REST_S", -1.0)
    node.clients.begin(NAME, "group", FILTER)
    node.clients.end(NAME)
    node.clients.note_time()
    assert not node.clients._staying


def test_a_client_is_registered_with_why_it_stays() -> None:
    """An older agent gives no reason and a later one another: both read as none. What lasts longer counts."""
    node = Node()
    for name in (NAME, OTHER):
        node.clients.begin(name, "group", FILTER)
    for reason, expected, registrations in (
        ("", None, 1), ("a later one's", None, 1), ("qos_2", StayReason.QOS_2, 2), ("qos_2", StayReason.QOS_2, 2)
    ):  # fmt: skip
        node.hear(NoteKind.STAYS, reason=reason)
        assert node.clients.reason_to_stay(OTHER) is expected
        assert len(node.homes) == 2 * registrations
    assert node.clients.reason_to_stay("b02.1764.s.3") is None
    node.clients._refuse(NAME, "")
    assert node.clients.reason_to_stay(NAME) is StayReason.QOS_2
    resting = leaving()
    resting.hear(NoteKind.REFUSED)
    assert resting.clients.reason_to_stay(NAME) is StayReason.REFUSED
    resting.clients._staying[CLIENT] = resting.clients._staying[CLIENT]._replace(until_s=-1.0)
    resting.clients.note_time()
    assert resting.clients.reason_to_stay(NAME) is None


@pytest.mark.parametrize("is_aborted", [False, True])
def test_a_refused_client_is_registered_as_one_that_stays_once_its_plan_is_aborted(is_aborted: bool) -> None:
    """If the plan has not heard of the refusal in time, its next home registers the client."""
    node = leaving()
    node.hear(NoteKind.REFUSED)
    (reason,) = node.refused
    assert NAME in reason
    assert "the agent's log" in reason
    assert not node.homes
    node.follow(0 if is_aborted else 1, BrokerPhase.STEADY if is_aborted else BrokerPhase.DRAINING)
    assert node.homes == ([(NAME, FILTER)] if is_aborted else [])
    assert not node.clients.may_move(NAME)


def test_a_node_says_again_how_far_a_move_is() -> None:
    """Its connection to the broker was cut, and notes may have been lost; marks and counts are the same."""
    node = Node()
    node.clients.begin(NAME, "group", FILTER)
    for step, again in (
        (lambda: None, [NoteKind.HOME]),
        (lambda: node.clients.take_effect(SubscriberMoves(NAME, "b03", 1)), [NoteKind.MOVE]),
        (lambda: node.hear(NoteKind.READY), []),
        (lambda: node.follow(1, BrokerPhase.DRAINING), [NoteKind.SWITCHED]),
        (lambda: node.follow(1, BrokerPhase.DRAINED), [NoteKind.SWITCHED, NoteKind.DRAINED]),
    ):
        step()
        node.sent.clear()
        node.line.on_open()
        assert node.said == again
    is_over = [NoteKind.SWITCHED, NoteKind.DRAINED]
    assert node_of_next_says_again() == [NoteKind.AWAITED, NoteKind.COUNTING, NoteKind.SWITCHED, *is_over]


def node_of_next_says_again() -> list[NoteKind]:
    node, said = Node(), list[NoteKind]()
    node.clients.begin(NAME, "group", FILTER, 1)
    for step in (
        lambda: node.clients.take_effect(SubscriberAwaited(NAME, 1)),
        lambda: node.hear(NoteKind.READY),
        lambda: node.clients.take_effect(SubscriberTaken(NAME, 1)),
        lambda: node.follow(1, BrokerPhase.STEADY),
    ):
        step()
        node.sent.clear()
        node.line.on_open()
        said += node.said
    return said


def test_a_next_home_says_that_a_plan_is_not_over_until_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its controller may be away, and the agent must wait for what is held back; an old home holds nothing."""
    now = SimpleNamespace(s=1_000.0)
    monkeypatch.setattr(agent_clients, "time", SimpleNamespace(monotonic=lambda: now.s))
    node, old = arriving(), leaving()
    said = list[list[NoteKind]]()
    for step in (
        lambda: None,
        lambda: node.clients.take_effect(SubscriberTaken(NAME, 1)),
        lambda: None,
        lambda: node.follow(1, BrokerPhase.STEADY),
    ):
        step()
        old.follow(1, BrokerPhase.DRAINING)
        node.sent.clear()
        old.sent.clear()
        now.s += agent_clients.SAY_AGAIN_S + 1
        for each in (node, node, old):
            each.clients.note_time()
        said.append(node.said)
        assert not old.said
    assert said == [[NoteKind.COUNTING], [NoteKind.SWITCHED], [NoteKind.SWITCHED], []]


def test_an_aborted_plan_leaves_nothing_at_the_next_home_and_a_later_one_moves_again() -> None:
    for node in (arriving(), leaving()):
        node.follow(0, BrokerPhase.STEADY)
        assert node.said[-1] is NoteKind.ABORTED
        node.hear(NoteKind.READY)
        node.hear(NoteKind.REFUSED)
        assert not node.refused
    node.clients.take_effect(SubscriberMoves(NAME, "b03", 2))
    node.hear(NoteKind.READY, epoch=1)
    node.hear(NoteKind.READY, epoch=2)
    assert [request.epoch for request in node.asked] == [1, 2]
    node.follow(0, BrokerPhase.PREPARED)
    node.follow(2, BrokerPhase.DRAINING)
    node.follow(2, BrokerPhase.DRAINED)
    assert node.said[-2:] == [NoteKind.SWITCHED, NoteKind.DRAINED]
    node.clients.end(NAME)
    assert node.is_empty()
