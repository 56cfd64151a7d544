"""How a text describes a broker that will join, and what the inventory has of it."""

import pytest

from regraft.overlay.inventory.inventory import InventoryError
from regraft.producers.emulator.newcomers import Newcomer, newcomer_of, with_newcomers
from regraft.schemas.member import BrokerFacts, PeerCost, Position
from tests.overlay.small_overlays import inventory_of, line_of


@pytest.mark.parametrize(
    ("text", "newcomer"),
    [
        (
            "x01 at 30 by b03=2.5,b07=4",
            Newcomer("x01", 30.0, BrokerFacts(link_costs=(PeerCost("b03", 2.5), PeerCost("b07", 4.0)))),
        ),
        (
            "x01 at 0.5 near -11.6,48 through north",
            Newcomer("x01", 0.5, BrokerFacts(position=Position(-11.6, 48.0), agent="north")),
        ),
    ],
)
def test_a_text_gives_broker_time_and_costs_or_position(text: str, newcomer: Newcomer) -> None:
    """What its links cost, or where it is."""
    assert newcomer_of(text) == newcomer


@pytest.mark.parametrize(
    "text",
    [
        "x01",
        "x01 at 30",
        "x01 at soon by b03=2",
        "x01 at 30 by b03",
        "x01 at 30 by b03=near",
        "x01 at 30 by b03=-1",
        "x01 at 30 near 1",
        "x01 at 30 near a,b",
        "x01 at 30 by b03=1 through no.rth",
    ],
)
def test_an_incomplete_text_is_refused_with_the_expected_form(text: str) -> None:
    """The message quotes the text."""
    with pytest.raises(ValueError, match=r"write NAME at SECONDS by PEER=COST") as caught:
        newcomer_of(text)
    assert repr(text) in str(caught.value)


def test_newcomers_are_in_the_inventory_but_not_in_its_first_overlay() -> None:
    """Their link costs are the given ones, their processing cost is the median; a name in use is refused."""
    inventory = inventory_of(line_of(3), {}, processing=3.0)
    found = with_newcomers(inventory, [newcomer_of("x01 at 30 by b00=2.5")])
    assert found.brokers == (*inventory.brokers, "x01")
    assert found.bootstrap is inventory.bootstrap
    assert found.cost_of_link("b00", "x01") == 2.5
    assert found.processing_cost.tolist() == [3.0] * 4
    assert with_newcomers(inventory, []) is inventory
    with pytest.raises(InventoryError, match="newcomers name b01, which are already in the inventory"):
        with_newcomers(inventory, [newcomer_of("b01 at 30 by b00=2.5")])
