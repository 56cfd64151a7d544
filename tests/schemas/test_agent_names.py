"""Which client a subscription belongs to, and that clients of earlier versions stay."""

import pytest

from regraft.schemas.agent_names import client_beside, client_of, is_client, publishing_client
from regraft.schemas.agent_note import AgentNote, NoteKind, note_bytes, note_of
from regraft.schemas.client import Client, Role
from regraft.schemas.codec import decode
from regraft.schemas.plan import ClientMove, moves_of_clients
from regraft.schemas.stay_reasons import StayReason, reason_of
from tests.schemas.old_versions import encode_as


@pytest.mark.parametrize(
    ("subscription", "client"),
    [
        ("east.c7.1", "east.c7"),
        ("east.c7.12~3", "east.c7"),
        ("east.my.app.2~1", "east.my.app"),
        ("east.c7.1~2.5", "east.c7"),
        ("s1", "s1"),
        ("s1~4", "s1"),
        (".1", ".1"),
    ],
)
def test_a_client_is_all_before_the_last_dot(subscription: str, client: str) -> None:
    """Stays do not count; a subscription without a dot is named after its client."""
    assert client_of(subscription) == client


@pytest.mark.parametrize(
    ("name", "client"),
    [
        ("web1.mx1-7.2", "web1.mx1-7"),
        ("web1.mx1-7.2~56a7-1", "web1.mx1-7"),
        ("web1.mx1-7", ""),
        ("web1.2", ""),
        ("b02.1795.s.3", ""),
        ("s1", ""),
    ],
)
def test_only_what_an_agent_has_named_is_beside_one(name: str, client: str) -> None:
    assert client_beside(name) == client
    assert not client or is_client(client)


@pytest.mark.parametrize(
    ("name", "client"),
    [("b02.1795.p.web1.mx1-7", "web1.mx1-7"), ("b02.1795.p.stocks", ""), ("b02.1795", ""), ("web1.mx1-7", "")],
)
def test_only_a_node_names_a_publisher_after_a_client(name: str, client: str) -> None:
    assert publishing_client(name) == client


def test_a_clients_subscriptions_are_one_move() -> None:
    """Each client counts once for each way that it goes; others are their own clients."""
    moves = [ClientMove(name, "b1", "b2") for name in ("web1.mx1-7.1~a-1", "web1.mx1-7.2~a-2", "s1", "s2")]
    assert [move.client for move in moves_of_clients(moves)] == ["web1.mx1-7", "s1", "s2"]
    assert len(moves_of_clients([*moves, ClientMove("web1.mx1-7.3", "b3", "b2")])) == 4


def test_a_client_of_an_earlier_version_stays() -> None:
    """Its record does not say whether it may move."""
    old = encode_as(Client("s", Role.SUBSCRIBER, "b0", (), 0.0, 0, may_move=True), 802)
    assert decode(old, Client) == Client("s", Role.SUBSCRIBER, "b0", (), 0.0, 0)


def test_a_client_of_0_3_0_stays_for_no_reason() -> None:
    old = encode_as(Client("s", Role.SUBSCRIBER, "b0", (), 0.0, 0, nearest="b1", stays_because="qos_2"), 803)
    assert decode(old, Client) == Client("s", Role.SUBSCRIBER, "b0", (), 0.0, 0, nearest="b1")


def test_notes_of_stays_are_read_across_versions() -> None:
    """Agents of 0.3.0 give no reason; a reason that a later version adds is none here, and no error."""
    assert note_of(b'{"kind":"stays"}') == AgentNote(NoteKind.STAYS)
    later = note_of(note_bytes(AgentNote(NoteKind.STAYS, reason="of a later version")))
    assert later is not None
    assert reason_of(later.reason) is None
    assert note_of(b'{"kind":"stays","reason":"a\\nb"}') is None


def test_every_reason_has_one_label() -> None:
    assert [reason_of(reason.label) for reason in StayReason] == list(StayReason)
    assert reason_of("") is None
    assert reason_of(StayReason.QOS_2) is None  # The text for people is no label.
