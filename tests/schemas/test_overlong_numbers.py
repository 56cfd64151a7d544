"""Numbers of more than 64 bits are found, and texts with the same bytes are not taken for numbers."""

import pytest
from fastavro import parse_schema

from regraft.schemas.client import Client, Role
from regraft.schemas.codec import decode, encode
from regraft.schemas.overlong_numbers import SUSPECT, OverlongNumberError, check_numbers

OVERLONG = b"\x80" * 9 + b"\x02"


@pytest.mark.parametrize(
    ("kind", "body"),
    [
        ("long", OVERLONG),
        ("string", OVERLONG),
        (["null", "long"], b"\x02" + OVERLONG),
        ({"type": "array", "items": "long"}, b"\x04\x02" + OVERLONG + b"\x00"),
        ({"type": "array", "items": "long"}, b"\x01" + OVERLONG),
        ({"type": "map", "values": "long"}, b"\x02\x02a" + OVERLONG + b"\x00"),
        ({"type": "enum", "name": "e", "symbols": ["a"]}, OVERLONG),
    ],
)
@pytest.mark.parametrize("name", ["double", "boolean", {"type": "fixed", "name": "f", "size": 8}])
def test_every_number_is_checked(kind: object, body: bytes, name: object) -> None:
    """This includes lengths and enum indexes, after fields of any size."""
    fields = [{"name": "first", "type": name}, {"name": "second", "type": kind}]
    schema = parse_schema({"type": "record", "name": "r", "namespace": "n", "fields": fields})
    before = b"\xff" * (1 if name == "boolean" else 8)
    with pytest.raises(OverlongNumberError):
        check_numbers(before + body, schema)


def test_texts_may_contain_such_bytes() -> None:
    """A name in another script is accepted."""
    client = Client("発行者クライアント", Role.SUBSCRIBER, "b1", (), 0.0, 1_000)
    assert SUSPECT.search(encode(client))
    assert decode(encode(client), Client) == client
