"""The JSON schema agrees with the reader: what the reader takes is valid, what the schema refuses is refused."""

import json
from typing import Any

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st

from regraft.overlay.inventory.inventory import InventoryError
from regraft.overlay.inventory.inventory_schema import FIELDS, PRICES, inventory_schema
from regraft.overlay.read_inventory import parse_inventory
from tests.overlay.small_overlays import inventory_of, line_of

SCHEMA = jsonschema.Draft202012Validator(inventory_schema())
SMALL = json.loads(inventory_of(line_of(3), {}).to_json())
FULL: dict[str, Any] = SMALL | {
    "load_max_per_s": [5, 5, 5.5],
    "positions": [[8.5, 47.4], [2.3, 48.9], [-3, 40]],
    "agents": {"b00": "west"},
    "clients_stay": True,
    "prices": {
        "currency": "USD",
        "link_per_gb": [[0, 1, 1], [1, 0, 1], [1, 1, 0]],
        "access_per_gb": [1, 1, 1],
        "message_bytes": 500,
    },
}
SCALARS = (
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=4) | st.sampled_from(SMALL["brokers"])
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=3) | st.sampled_from(["b00"]), inner),
    max_leaves=12,
)


@st.composite
def spoiled(draw: st.DrawFn) -> Any:
    """Return an inventory of which a few values, of any depth, are replaced, removed or added."""
    document = json.loads(json.dumps(FULL))
    for _ in range(draw(st.integers(0, 3))):
        holder: Any = document
        while True:
            places = list(holder) if isinstance(holder, dict) else list(range(len(holder)))
            if not places:
                break
            place = draw(st.sampled_from(places))
            if isinstance(holder[place], dict | list) and draw(st.booleans()):
                holder = holder[place]
                continue
            if isinstance(holder, dict) and draw(st.booleans()):
                del holder[place]
            else:
                holder[place] = draw(VALUES)
            break
    if draw(st.integers(0, 4)) == 0:
        document[draw(st.sampled_from(["ring", "regions", "region_links", "extra"]))] = draw(VALUES)
    return document


@given(spoiled() | VALUES)
def test_any_json_is_an_inventory_by_the_schema_or_a_list_of_sentences(document: Any) -> None:
    """The reader never fails otherwise, and takes nothing that the schema refuses."""
    text = json.dumps(document)
    errors = _errors(text)
    assert all(errors)
    assert errors or SCHEMA.is_valid(json.loads(text))


def _errors(text: str) -> tuple[str, ...]:
    try:
        parse_inventory(text, "any.json")
    except InventoryError as error:
        return (str(error).removeprefix("any.json is not an inventory: "), *error.errors)
    return ()


@pytest.mark.parametrize("name", [name for name in FULL if name in FIELDS])
def test_the_schema_refuses_what_no_reader_takes(name: str) -> None:
    """A field of a wrong type, a missing or a misspelt one is refused by both."""
    wrong = [FULL | {name: 5.5}, FULL | {f"{name}x": FULL[name]}]
    if name in ("brokers", "processing_cost", "link_cost", "degree_max", "links"):
        wrong.append({other: value for other, value in FULL.items() if other != name})
    for document in wrong:
        assert not SCHEMA.is_valid(document)
        with pytest.raises(InventoryError):
            parse_inventory(json.dumps(document), "test")


def test_the_schema_takes_a_full_inventory_and_describes_each_field() -> None:
    """Its texts are what editors show."""
    SCHEMA.check_schema(inventory_schema())
    SCHEMA.validate(FULL)
    parse_inventory(json.dumps(FULL), "test")
    assert all(field["description"] for field in (*FIELDS.values(), *PRICES.values()))
