"""Each window of a ring gets what users wanted at its end, from the replayed register."""

from __future__ import annotations

import pytest
from confluent_kafka import Producer

import regraft.run_records.replay_register
from regraft.controller.settings.controller_settings import AssemblyLimits
from regraft.controller.state.closed_window import ClosedWindow
from regraft.infra.kafka.create_topics import create_topics
from regraft.infra.local.kafka_server import RunningKafka
from regraft.overlay.tree.tree_configuration import TreeConfiguration
from regraft.run_records.collect_run import (
    StoredRun,
    assemble_windows,
    compare_overlays,
    configurations_of,
    cost_shadows,
    first_full_window_cost,
    window_costs,
)
from regraft.run_records.read_topics import read_whole
from regraft.run_records.replay_register import ClientChange, read_client_changes, with_register
from regraft.run_records.run_record import ShadowRun
from regraft.schemas.client import Client
from regraft.schemas.codec import encode
from regraft.schemas.plan import ClientMove, Plan, PlanPhase, RingId
from regraft.schemas.topics import CLIENTS, topic_name
from tests.controller.scripted_ring import (
    BITS,
    BROKERS,
    OTHER,
    RING,
    TOPIC,
    published_rows,
    publisher,
    ring_inventory,
    user,
)
from tests.controller.scripted_windows import WINDOW_MS, marker_of
from tests.controller.small_kinds import ring_kind, tree_kind
from tests.overlay.small_overlays import inventory_of

INVENTORY = ring_inventory()
KIND = ring_kind(INVENTORY)


def change(client: Client) -> ClientChange:
    return ClientChange(client.time_ms, client.client, client)


def gone(name: str, time_ms: int) -> ClientChange:
    return ClientChange(time_ms, name, None)


# Fig. 2 of Zhao13: subscribers of t1 at IDs 0, 2, 4 and 6, cost 15 per notification. The plan moves u4 to the root.
CLIENTS_AT_FIRST = [
    change(publisher(TOPIC, "b00", TOPIC)),
    *(change(user(f"u{number}", f"b0{number}", TOPIC)) for number in (0, 2, 4, 6)),
]
MOVE = ClientMove("u4", "b04", "b01")
PLAN = Plan(
    "plan-1", 0, 1, 2000, (), (), (), (), 150.0, 110.0, PlanPhase.COMPLETED, (),
    moves=(MOVE,), ring_target=tuple(RingId(*pair) for pair in RING.id_of.items()),
)  # fmt: skip


def stored_run(changes: list[ClientChange], epochs: tuple[int, ...], plans: tuple[Plan, ...] = (PLAN,)) -> StoredRun:
    """Return a run with one window for each given epoch, with ten notifications of t1 each."""
    records: list[object] = []
    for turn, epoch in enumerate(epochs):
        rows = published_rows(turn * WINDOW_MS, {TOPIC: 10})
        records += [*rows, marker_of(BROKERS, turn * WINDOW_MS, rows, epoch)]
    windows = assemble_windows(records, INVENTORY, AssemblyLimits())  # type: ignore[arg-type]
    configurations = configurations_of(plans, INVENTORY)
    return StoredRun(with_register(windows, KIND, changes, configurations, 0.05), plans, configurations=configurations)


def users_of(window: ClosedWindow) -> dict[str, str]:
    assert window.interests is not None
    return {name: BROKERS[at] for name, at in zip(window.interests.users, window.interests.homes, strict=True)}


def test_each_window_knows_what_users_wanted_at_its_end() -> None:
    """A change at the end of a window counts in it, one a millisecond later does not; users that left are gone."""
    changes = [
        *CLIENTS_AT_FIRST,
        change(user("v", "b07", OTHER, time_ms=1000)),
        change(user("u0", "b03", TOPIC, time_ms=1001)),
        gone("u6", 2500),
    ]
    windows = stored_run(changes, (0, 0, 0), ()).windows
    at_first = {"u0": "b00", "u2": "b02", "u4": "b04", "u6": "b06", "v": "b07"}
    assert [users_of(window) for window in windows] == [
        at_first,
        at_first | {"u0": "b03"},
        {name: home for name, home in (at_first | {"u0": "b03"}).items() if name != "u6"},
    ]
    assert all(window.is_complete for window in windows)
    assert windows[0].topic_rates_per_s == {TOPIC: 10.0}


def test_windows_cost_what_their_users_cost_on_the_overlay_of_their_epoch() -> None:
    """150 before the plan, then without the path to ID 4; on the bootstrap, with u4 at its old home, 150 both times."""
    stored = stored_run([*CLIENTS_AT_FIRST, change(user("u4", "b01", TOPIC, time_ms=1500))], (0, 0, 1))
    costs = window_costs(stored, KIND, {1000: {"shadow": 7.0}})
    now = KIND.cost_per_s(RING, stored.windows[2])
    assert [cost.cost_per_s for cost in costs] == [150.0, now, now]
    assert [cost.cost_bootstrap_per_s for cost in costs] == [150.0, now, 150.0]  # Epoch 0 explains no move.
    assert [dict(cost.shadows_per_s) for cost in costs] == [{"shadow": 7.0}, {}, {}]
    assert first_full_window_cost(stored, KIND, -3000) == 150.0


def test_overlays_are_compared_with_users_at_their_homes_on_each() -> None:
    """The bootstrap with u4 at its first home, the final ring with it at its last, a shadow's wherever it put it."""
    stored = stored_run([*CLIENTS_AT_FIRST, change(user("u4", "b01", TOPIC, time_ms=900))], (1, 1))
    comparison = compare_overlays(stored, KIND, 2000)
    assert comparison is not None
    now = KIND.cost_per_s(RING, stored.windows[0])
    assert (comparison.before.total_per_s, comparison.after.total_per_s) == pytest.approx((150.0, now))
    assert comparison.final.home_of == {"u4": "b01"}
    assert comparison.after.link_notifications_per_s.keys() <= set(RING.links)
    turned = dict(zip(BROKERS, [7, *range(7)], strict=True))
    shadows = [
        ShadowRun("stays", overlay=RING.shown_fields()),
        ShadowRun("places", overlay=RING.shown_fields(), homes={"u4": "b01"}),
        ShadowRun("turns", overlay={"ring": list(turned.items())}),
    ]
    costed = [shadow.final_cost_per_s for shadow in cost_shadows(shadows, stored, KIND, 2000)]
    other = RING.of(0, BITS, turned, {"u4": "b04"})
    assert costed == pytest.approx([150.0, now, KIND.cost_per_s(other, stored.windows[0])])


def test_the_delay_weight_is_the_controllers() -> None:
    """Seven messages per notification without the hops."""
    stored = stored_run(CLIENTS_AT_FIRST, (0,), ())
    assert window_costs(stored, ring_kind(INVENTORY, delay_weight=0.0))[0].cost_per_s == 70.0


def test_a_user_that_went_elsewhere_is_there_on_every_overlay() -> None:
    """u4 has left the home that the plan gave it, so the final overlay saves nothing by it."""
    stored = stored_run([*CLIENTS_AT_FIRST, change(user("u4", "b05", TOPIC, time_ms=900))], (1, 1))
    comparison = compare_overlays(stored, KIND, 2000)
    assert comparison is not None
    assert comparison.cost_reduction_share == 0.0
    assert stored.windows[0].strayed == {"u4"}


def test_memory_is_bounded_and_old_windows_are_not_costed_then(monkeypatch: pytest.MonkeyPatch) -> None:
    """Windows that share a snapshot count once; the newest keep theirs."""
    monkeypatch.setattr(regraft.run_records.replay_register, "SUBSCRIPTIONS_KEPT_MAX", 9)
    changes = [*CLIENTS_AT_FIRST, change(user("v", "b07", TOPIC, time_ms=2500))]
    stored = stored_run(changes, (0, 0, 0, 0), ())
    assert [window.interests is None for window in stored.windows] == [False] * 4
    changes.append(gone("v", 3500))
    stored = stored_run(changes, (0, 0, 0, 0), ())
    assert [window.interests is None for window in stored.windows] == [True, True, False, False]
    assert [cost.end_ms for cost in window_costs(stored, KIND)] == [3000, 4000]
    comparison = compare_overlays(stored, KIND, 4000)
    assert comparison is not None
    assert comparison.window_count == 2


def test_a_tree_does_not_use_the_register() -> None:
    """Its windows stay as they are if the register is applied anyway."""
    tree = TreeConfiguration.of(0, BROKERS, [(BROKERS[0], other) for other in BROKERS[1:]])
    windows = stored_run(CLIENTS_AT_FIRST, (0,), ()).windows
    kind = tree_kind(inventory_of(tree, {}))
    assert with_register(windows, kind, CLIENTS_AT_FIRST, {0: tree}, 0.05) == windows


@pytest.mark.stack
def test_the_register_is_read_with_its_tombstones(kafka: RunningKafka) -> None:
    """They are in the order of the topic; a client's record has its own time, a tombstone the time of writing."""
    create_topics(kafka.access, namespace="replay")
    producer = Producer({"bootstrap.servers": kafka.bootstrap})
    topic = topic_name(CLIENTS, "replay")
    first, again = user("u", "b00", "a", time_ms=5), user("u", "b01", "b", time_ms=7)
    for key, value, stamp in (
        ("u", encode(first), 100),
        ("x", b"rubbish", 101),
        ("u", encode(again), 102),
        ("u", None, 103),
    ):
        producer.produce(topic, value, key=key.encode(), timestamp=stamp)
    assert producer.flush(30) == 0
    found = list(read_client_changes(kafka.access, "replay", 30))
    assert found == [ClientChange(5, "u", first), ClientChange(7, "u", again), ClientChange(103, "u", None)]
    assert list(read_whole(kafka.access, "replay", {CLIENTS: Client}, 30)) == [first, again]
