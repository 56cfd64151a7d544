"""Brokers of two versions: what old ones do not report affects their own clients, not those of others."""

import random

import msgspec
import pytest

from regraft.controller.controller_settings import AssemblyLimits
from regraft.controller.kinds.tree.tree_kind import TreeKind
from regraft.controller.kinds.tree.tree_state import TreeContext, TreeState
from regraft.controller.planners.relocate_publishers_joint import JointSettings, relocate_publishers_joint
from regraft.controller.state.closed_window import ClosedWindow
from regraft.controller.windows.assemble_state import WindowAssembler
from regraft.schemas.codec import decode, encode
from regraft.schemas.plan import ClientMove
from regraft.schemas.telemetry import Delivery, TelemetryBatch
from regraft.streaming.reference_aggregator import ReferenceAggregator
from tests.overlay.small_overlays import NO_CAP, brokers_named, inventory_of, line_of
from tests.schemas.old_versions import encode_as

BROKERS = brokers_named(5)
TREE = line_of(5)
INVENTORY = inventory_of(TREE, dict.fromkeys(TREE.links, 1.0))
KIND = TreeKind(INVENTORY, NO_CAP)
WINDOW_MS = 1_000
V1, V2 = 101, 102


def batch_of(broker: str, second: int, homes: dict[str, str]) -> TelemetryBatch:
    """Return one second of a broker: each publisher publishes 8 notifications, all wanted at both ends of the line."""
    place, cells = BROKERS.index(broker), []
    for number, publisher in enumerate(sorted(homes)):
        wanted = place == (4 if number < 3 else 0)
        published = homes[publisher] == broker
        if wanted or published:
            bits = 0xFF << 8 * (second % 8)
            mask, own = bits if wanted else 0, bits if published else 0
            cells.append(Delivery(publisher, second // 8, second, mask, 8 * wanted, 80, own))
    return TelemetryBatch(broker, 1, second, second * 1_000 + 500, 0, tuple(cells))


def written_by(batch: TelemetryBatch, schema_id: int) -> TelemetryBatch:
    """Return the batch as it is read from a broker of that version; version 1 has one mask for both kinds of bits."""
    if schema_id == V2:
        return decode(encode(batch), TelemetryBatch)
    cells = tuple(msgspec.structs.replace(cell, mask=cell.mask | cell.published) for cell in batch.deliveries)
    return decode(encode_as(msgspec.structs.replace(batch, deliveries=cells), V1), TelemetryBatch)


def windows_of(homes: dict[str, str], versions: dict[str, int], seconds: range = range(3)) -> list[ClosedWindow]:
    """Return the windows that the controller assembles from the streaming stage's output for these brokers."""
    aggregator, assembler = ReferenceAggregator(WINDOW_MS, 0), WindowAssembler(BROKERS, AssemblyLimits())
    for second in seconds:
        for broker in BROKERS:
            batch = written_by(batch_of(broker, second, homes), versions.get(broker, V2))
            aggregator.take(msgspec.to_builtins(batch))
    for window in aggregator.finish():
        for record in (*window.rows, window.marker):
            assembler.add(record, 10_000)
    found = assembler.closed(10_000)
    assert len(found) == len(seconds)
    assert all(window.is_complete for window in found)
    return found


def moves_on(windows: list[ClosedWindow]) -> list[ClientMove]:
    state: TreeState = KIND.state_of(KIND.with_homes(TREE, windows), windows)
    found = relocate_publishers_joint(state, JointSettings(), TreeContext(), random.Random(1))
    return sorted(move for proposal in found for move in proposal.moves)


HOMES = {f"p{number}": broker for number, broker in enumerate(BROKERS)}
ALL = [
    ClientMove("p0", "b00", "b04"),
    ClientMove("p1", "b01", "b04"),
    ClientMove("p2", "b02", "b04"),
    ClientMove("p3", "b03", "b00"),
    ClientMove("p4", "b04", "b00"),
]


@pytest.mark.parametrize("old", BROKERS)
def test_publishers_at_other_brokers_move_while_one_sends_version_1(old: str) -> None:
    """A mixed fleet decides what a uniform one does, except for the old broker's client."""
    assert moves_on(windows_of(HOMES, {})) == ALL
    assert moves_on(windows_of(HOMES, {old: V1})) == [move for move in ALL if move.home_from != old]


def test_a_publisher_that_moved_to_an_old_broker_is_not_moved_from_its_old_home() -> None:
    """The broker would refuse such a plan, and with it the moves of all others."""
    gone = HOMES | {"p1": "b02"}
    windows = windows_of(HOMES, {"b02": V1}, range(3)) + windows_of(gone, {"b02": V1}, range(3, 6))
    assert moves_on(windows) == [ALL[0], ALL[3], ALL[4]]


def test_after_the_upgrade_its_clients_move_once_the_old_windows_have_left_the_horizon() -> None:
    """Until then too little is known about them."""
    before, after = windows_of(HOMES, {"b02": V1}, range(3)), windows_of(HOMES, {}, range(3, 6))
    assert moves_on(before + after) == [move for move in ALL if move.home_from != "b02"]
    assert moves_on(after) == ALL
