"""The desk, a store and a target, killed between any two steps: nothing is sent twice, nothing is lost unnoticed."""

import itertools
from dataclasses import dataclass, field

import pytest

from regraft.alerts.alert_desk import AlertDesk, DeliveryAction
from regraft.alerts.alert_engine import AlertEngine
from regraft.alerts.deliver_messages import DeliveryReport
from regraft.alerts.notify_targets import Silencer
from regraft.alerts.read_rules import parse_rules
from regraft.schemas.alert import Alert, DeliveryState
from regraft.schemas.event import AdaptationEvent
from tests.alerts.scripted_alerts import BEGIN_MS, StampedRecord, queue_of, window

RULES = parse_rules('[[rule]]\nname = "c"\non = "queue.congestion"\nabove = 10\nclear_below = 5\n')
TARGET = "hook"
STREAM: list[list[StampedRecord]] = [
    window(number, [queue_of("b01", congestion=first), queue_of("b02", congestion=second)])
    for number, (first, second) in enumerate([(20, 1), (20, 20), (1, 20), (1, 1)])
]


class KilledError(Exception):
    """The process was killed."""


@dataclass
class World:
    """What outlives a process: Kafka's content and what the target received; ``steps_left`` counts down to the kill."""

    steps_left: int
    alerts: dict[str, Alert] = field(default_factory=dict)
    events: list[AdaptationEvent] = field(default_factory=list)
    position: int = 0
    received: list[str] = field(default_factory=list)
    is_resending: bool = False

    def step(self) -> None:
        """Take a step, or raise KilledError if none is left."""
        if self.steps_left == 0:
            raise KilledError
        self.steps_left -= 1


class Process:
    """One run of the stage, in the steps of its loop."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._engine = AlertEngine(RULES, BEGIN_MS, world.alerts.values())
        self._desk = AlertDesk(self._engine, Silencer(RULES.by_name), (TARGET,), "lab", "lab.alerts")
        for stamped in STREAM[: world.position]:
            self._feed(stamped, is_known=True)
        self._position = world.position
        self._desk.resume(BEGIN_MS, resend_uncertain=world.is_resending)
        self._queue: list[DeliveryAction] = []

    def run(self) -> None:
        """Process the stream to its end, delivering on the way."""
        self._store()
        self._deliver()
        while self._position < len(STREAM):
            self._feed(STREAM[self._position], is_known=False)
            self._position += 1
            self._desk.notify(BEGIN_MS)
            self._store()
            self._deliver()

    def _feed(self, stamped: list[StampedRecord], *, is_known: bool) -> None:
        for each in stamped:
            self._desk.note(self._engine.take(each.record, each.time_ms, each.time_ms, is_known=is_known))

    def _store(self) -> None:
        """Store a batch entirely or not at all: the kill comes before or after."""
        self._world.step()
        batch = self._desk.stored()
        self._world.alerts |= batch.alerts
        self._world.events += batch.events
        self._world.position = self._position
        self._queue += batch.offers
        self._granted = batch.grants
        self._world.step()

    def _deliver(self) -> None:
        while self._queue:
            job = self._queue.pop(0)
            self._report(job, DeliveryState.SENDING)
            assert [grant.message.message for grant in self._granted] == [job.message.message]
            self._world.step()
            self._world.received.append(job.message.message)
            self._world.step()
            self._report(job, DeliveryState.SENT)

    def _report(self, job: DeliveryAction, state: DeliveryState) -> None:
        self._desk.report(DeliveryReport(job.message, job.target, state), BEGIN_MS)
        self._store()


def live(world: World) -> bool:
    """Run one process; return True if it reached the end of the stream."""
    try:
        Process(world).run()
    except KilledError:
        return False
    return True


def steps_in_all() -> int:
    world = World(steps_left=1_000)
    assert live(world)
    return 1_000 - world.steps_left


@pytest.mark.parametrize("is_resending", [False, True])
def test_killed_at_any_step_nothing_is_sent_twice_and_nothing_is_lost_unnoticed(is_resending: bool) -> None:
    """Killed at each step, and again in its second run: the same events as without a kill, every message at most once
    (or under the same key), and one that did not arrive is marked uncertain.
    """
    whole = World(steps_left=1_000)
    assert live(whole)
    assert len(whole.received) == len(set(whole.received)) == 4
    count = steps_in_all()
    for first, second in itertools.product(range(count), (0, 1, 3, 6, 1_000)):
        world = World(steps_left=first, is_resending=is_resending)
        assert not live(world)
        for steps_left in (second, 1_000):
            world.steps_left = steps_left
            if live(world):
                break
        assert [event.details["message"] for event in world.events] == [
            event.details["message"] for event in whole.events
        ]
        missed = set(whole.received) - set(world.received)
        if is_resending:
            assert missed == set()
            continue
        assert len(world.received) == len(set(world.received))
        # An alert only stores its newest message: an older one that was uncertain is no longer in the record.
        newest = {alert.message: alert.deliveries[0].state for alert in world.alerts.values()}
        assert all(newest.get(message, DeliveryState.UNCERTAIN) is DeliveryState.UNCERTAIN for message in missed)
