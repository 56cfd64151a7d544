"""Properties of any stream of records: no alert is raised twice, restarts and the order of records change nothing."""

import random
from collections.abc import Sequence

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from regraft.alerts.read_rules import RuleBook
from regraft.schemas.alert import Alert, AlertStatus
from regraft.schemas.event import EventKind
from regraft.schemas.order import Order, OrderKind
from regraft.schemas.plan import ClientMove, PlanPhase
from tests.alerts.scripted_alerts import BEGIN_MS, WINDOW_MS, Scene, StampedRecord, book, event, plan, queue_of, window

RULES = book(
    """
[[rule]]
name = "congestion"
on = "queue.congestion"
above = 10
for_windows = 2
clear_below = 5
clear_for_windows = 3
[[rule]]
name = "growth"
on = "queue.growth"
for_windows = 2
factor = 1.5
length_min = 4
clear_for_windows = 2
[[rule]]
name = "silent"
on = "broker.silent"
for_windows = 2
clear_for_windows = 2
forget_after_s = 6
[[rule]]
name = "incomplete"
on = "window.incomplete"
above = 0.2
for_windows = 2
clear_below = 0.0
clear_for_windows = 2
[[rule]]
name = "aborted"
on = "plan.aborted"
count = 2
span_s = 6
clear_after_s = 4
[[rule]]
name = "stalled"
on = "plan.stalled"
for_s = 4
[[rule]]
name = "flapping"
on = "flapping"
flips = 2
span_s = 8
clear_after_s = 5
[[rule]]
name = "blast"
on = "blast_radius"
brokers_above = 2
share_above = 0.5
brokers_min = 2
clear_below = 0.9
clear_for_windows = 3
"""
)
BROKERS = ("b00", "b01", "b02", "b03")
LOOKBACK_WINDOWS = RULES.windows_memory + 2
LOOKBACK_MS = int(RULES.span_s_memory * 1000)
PHASES = (PlanPhase.PREPARING, PlanPhase.ACTIVATING, PlanPhase.DRAINING, PlanPhase.COMPLETED, PlanPhase.ABORTED)

one_queue = st.tuples(st.sampled_from([0.0, 4.0, 7.0, 11.0, 20.0]), st.integers(0, 12))
one_window = st.tuples(
    st.lists(one_queue, min_size=4, max_size=4),
    st.sets(st.sampled_from(BROKERS), min_size=1),
    st.sampled_from(["", "abort", "stall", "phase", "move", "back", "maintain", "return", "lost"]),
)
streams = st.lists(one_window, min_size=1, max_size=24)
Step = list[StampedRecord]


def steps_of(drawn: Sequence[tuple[list[tuple[float, int]], set[str], str]]) -> list[Step]:
    """Return one step for each window: its rows and marker, and what else happens in its second."""
    steps = []
    for number, (figures, brokers, happening) in enumerate(drawn):
        queues = [
            queue_of(broker, congestion=congestion, length=length)
            for broker, (congestion, length) in zip(BROKERS, figures, strict=True)
            if broker in brokers
        ]
        lost = {"b00": 2} if happening == "lost" else {}
        stamped = window(number, queues, sorted(brokers), lost=lost)
        steps.append([*_happening(happening, number), *stamped])
    return steps


def _happening(what: str, number: int) -> list[StampedRecord]:
    second, name = number + 1.0, number // 3 + 1
    order = Order("b01", OrderKind.MAINTAIN if what == "maintain" else OrderKind.RETURN, "ana", "", BEGIN_MS)
    there, back = ClientMove("p1", "b00", "b01"), ClientMove("p1", "b01", "b00")
    return {
        "abort": [event(EventKind.PLAN_ABORTED, second)],
        "stall": [event(EventKind.PLAN_STALLED, second, f"plan-{name}")],
        "phase": [plan(name, PHASES[number % 5], second)],
        "move": [plan(100 + number, PlanPhase.ACTIVATING, second, moves=(there,), links_removed=(("b00", "b01"),))],
        "back": [plan(100 + number, PlanPhase.ACTIVATING, second, moves=(back,), links_added=(("b00", "b01"),))],
        "maintain": [StampedRecord(order, BEGIN_MS + int(second * 1000))],
        "return": [StampedRecord(order, BEGIN_MS + int(second * 1000))],
    }.get(what, [])


def second_of(number: int) -> float:
    return (number + 1) * WINDOW_MS / 1000 + 0.1


def take(scene: Scene, steps: Sequence[Step], first: int) -> list[Alert]:
    """Feed steps, advancing the clock after each, and return the changes."""
    before = len(scene.changes)
    for number, step in enumerate(steps, first):
        scene.feed(*step)
        scene.tick(second_of(number))
    return scene.changes[before:]


def restarted(scene: Scene, rules: RuleBook, steps: Sequence[Step], count: int) -> Scene:
    """Return a new engine with what the first one stored after ``count`` steps; it rereads as far as its rules look."""
    stored = msgspec.convert(msgspec.to_builtins(list(scene.engine.book.alerts.values())), list[Alert])
    fresh = Scene(rules, stored, scene.engine.calm_windows)
    now_ms = BEGIN_MS + count * WINDOW_MS
    for number, step in enumerate(steps[:count]):
        for stamped in step:
            is_window = type(stamped.record).__name__ in ("StateRow", "WindowClosed")
            is_event = type(stamped.record).__name__ == "AdaptationEvent"
            if is_window and number < count - LOOKBACK_WINDOWS:
                continue
            if is_event and stamped.time_ms < now_ms - LOOKBACK_MS:
                continue
            fresh.feed(stamped, is_known=True)
    assert fresh.changes == []
    return fresh


@given(streams)
@settings(max_examples=60)
def test_nothing_is_raised_twice_without_an_end(drawn: list[tuple[list[tuple[float, int]], set[str], str]]) -> None:
    """For each rule and subject, raised and cleared alternate, beginning with raised."""
    scene = Scene(RULES)
    last: dict[str, AlertStatus] = {}
    for alert in take(scene, steps_of(drawn), 0):
        assert last.get(alert.key, AlertStatus.CLEARED) is not alert.status
        last[alert.key] = alert.status
        assert alert.raised_ms <= alert.changed_ms


@given(streams, st.integers(0, 24))
@settings(max_examples=120)
def test_a_restart_at_any_point_changes_nothing(
    drawn: list[tuple[list[tuple[float, int]], set[str], str]], place: int
) -> None:
    """An engine that has only the stored alerts and the rules' look-back reports the same as one that kept running."""
    steps = steps_of(drawn)
    count = min(place, len(steps))
    scene = Scene(RULES)
    take(scene, steps[:count], 0)
    fresh = restarted(scene, RULES, steps, count)
    assert take(fresh, steps[count:], count) == take(scene, steps[count:], count)


@given(streams, st.integers(0, 2**32))
@settings(max_examples=40)
def test_the_order_of_a_windows_rows_and_marker_does_not_matter(
    drawn: list[tuple[list[tuple[float, int]], set[str], str]], seed: int
) -> None:
    """Rows and markers come from different topics; the outcome is the same in any order."""
    steps = steps_of(drawn)
    rng = random.Random(seed)
    shuffled = []
    for step in steps:
        windows = [stamped for stamped in step if type(stamped.record).__name__ in ("StateRow", "WindowClosed")]
        others = [stamped for stamped in step if stamped not in windows]
        rng.shuffle(windows)
        shuffled.append([*others, *windows])
    assert take(Scene(RULES), shuffled, 0) == take(Scene(RULES), steps, 0)
