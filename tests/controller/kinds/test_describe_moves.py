"""The effect of a move, in figures that can be computed by hand."""

from dataclasses import replace

from regraft.controller.kinds.tree.describe_moves import effect_text
from regraft.controller.kinds.tree.tree_state import TreeState
from regraft.controller.state.closed_window import ClosedWindow
from regraft.overlay.tree.configuration import TreeConfiguration
from regraft.schemas.plan import ClientMove
from tests.overlay.small_overlays import inventory_of, line_of, publishers_of

TREE = line_of(3)
MOVE = ClientMove("p", "b00", "b02")


def state_of(deliveries: dict[tuple[str, str], int]) -> TreeState:
    """p at b00 publishes 4 notifications/s, all for b02 and one for b00; links cost 10, brokers 1."""
    sets = publishers_of(TREE.brokers, {"p": ("b00", [{"b00", "b02"}, {"b02"}, {"b02"}, {"b02"}])})
    window = ClosedWindow(0, 1000, sets, homes={"p": "b00"}, local_deliveries=deliveries)
    placed = TreeConfiguration.of(0, TREE.brokers, TREE.links, {"p": "b00"})
    return TreeState(placed, inventory_of(TREE, {}), (window, replace(window)))


def test_messages_and_delay_before_and_after_are_reported() -> None:
    """From b00 four notifications pass three brokers each; from b02 four pass one, and one of them two more."""
    state = state_of({("p", "b00"): 1, ("p", "b02"): 8, ("q", "b01"): 99})
    assert effect_text(state, [MOVE]) == "messages 12 -> 6/s, delay 20.56 -> 3.444"


def test_without_deliveries_no_delay_is_reported() -> None:
    """Nothing has no mean."""
    assert effect_text(state_of({}), [MOVE]) == "messages 12 -> 6/s"
