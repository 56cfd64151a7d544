"""Which client a subscription belongs to, and that clients of earlier versions stay."""

import pytest

from regraft.schemas.agent_names import client_of
from regraft.schemas.client import Client, Role
from regraft.schemas.codec import decode
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


def test_a_client_of_an_earlier_version_stays() -> None:
    """Its record does not say whether it may move."""
    old = encode_as(Client("s", Role.SUBSCRIBER, "b0", (), 0.0, 0, may_move=True), 802)
    assert decode(old, Client) == Client("s", Role.SUBSCRIBER, "b0", (), 0.0, 0)
