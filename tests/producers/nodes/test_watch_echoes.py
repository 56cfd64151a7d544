"""What circulates is distinguished from what a client repeats, with the times of the watch, none of the machine."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace

import pytest

from regraft.producers.nodes.connectors.connector import LocalMessage
from regraft.producers.nodes.mqtt import watch_echoes
from regraft.producers.nodes.mqtt.watch_echoes import HOLD_S, LATE_MAX, REPEATS_MAX, TRIALS, EchoWatch
from tests.scenarios.agents.wires import AnyOrderLoop, running

OTHER = LocalMessage("other", b"1")
BURST = [LocalMessage("e", b"0")] * (3 * REPEATS_MAX)
CIRCULATING = LocalMessage("c", b"x")


class Site:
    """A watch with what it has passed on and refused."""

    def __init__(self, loop: AnyOrderLoop) -> None:
        self.loop = loop
        self.passed: list[LocalMessage] = []
        self.refused: list[LocalMessage] = []
        self.carried = 0
        self.watch = EchoWatch(self.passed.append, self.refused.append)

    def take(self, *messages: LocalMessage) -> None:
        for message in messages:
            self.watch.take(message)

    def return_for(self, seconds: float, late_s: float = 0.0) -> None:
        """Let the network deliver, and the broker send again, what is passed on; starve the node between."""
        end_s = self.loop.now_s + seconds
        while self.loop.now_s < end_s:
            returning, self.carried = self.passed[self.carried :], len(self.passed)
            for message in returning:
                self.watch.note_handed_over(message)
                self.watch.take(message)
            self.loop.now_s += late_s
            self.loop.pass_time(HOLD_S / 100)


@pytest.fixture(name="site")
def site_fixture(monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    with running(AnyOrderLoop()) as loop:
        monkeypatch.setattr(watch_echoes, "time", SimpleNamespace(monotonic=loop.time))
        yield Site(loop)
        assert loop.failures == []


def test_what_a_sensor_repeats_is_passed_on_in_order(site: Site) -> None:
    sent = [LocalMessage("a" if number % 3 else "b", b"%d" % (number % 2)) for number in range(10 * REPEATS_MAX)]
    for message in sent:
        site.take(message)
        site.loop.pass_time(0.01)
    site.loop.pass_time(2 * HOLD_S)
    assert (site.passed, site.refused) == (sent, [])


def test_what_a_sensor_repeats_to_a_starved_node_is_passed_on_in_order(site: Site) -> None:
    """A node that gets no processor meets few copies in the time of a trial: they are no echoes."""
    sent = [LocalMessage("a", b"1")] * (3 * REPEATS_MAX)
    for number, message in enumerate(sent):
        site.take(message)
        if number >= REPEATS_MAX:  # It is suspected now.
            site.loop.now_s += HOLD_S if number == REPEATS_MAX else 0.4 * HOLD_S
        site.loop.pass_time(0.01)
    site.loop.pass_time(2 * HOLD_S)
    assert (site.passed, site.refused) == (sent, [])


def test_a_burst_that_ends_before_anything_is_decided_is_passed_on(site: Site) -> None:
    site.take(*BURST, OTHER)
    site.loop.pass_time(3 * HOLD_S)
    assert (site.passed.count(BURST[0]), site.passed.count(OTHER), site.refused) == (len(BURST), 1, [])


def test_a_burst_during_a_trial_is_passed_on(site: Site) -> None:
    site.take(*BURST)
    site.loop.pass_time(1.2 * HOLD_S)  # The next burst comes while one message is on trial.
    site.take(*BURST, OTHER)
    site.loop.pass_time(4 * HOLD_S)
    assert (site.passed.count(BURST[0]), site.passed.count(OTHER), site.refused) == (2 * len(BURST), 1, [])


@pytest.mark.parametrize("late_s", [0.0, HOLD_S])
def test_what_circulates_is_stopped(site: Site, late_s: float) -> None:
    """A message that returns whenever it is carried on ends, also if trials are late; what returned with it ends, too.

    For a while, that is: what differs from it is passed on.
    """
    site.take(CIRCULATING, LocalMessage("d", b"y"))
    while not site.watch.is_suspected:
        site.return_for(HOLD_S / 100)
    for _ in range(5):
        site.return_for(HOLD_S / 100, late_s)
    site.return_for(8 * HOLD_S)
    assert set(site.refused) >= {CIRCULATING}
    refused = len(site.refused)
    site.return_for(8 * HOLD_S)
    assert len(site.refused) == refused  # Nothing is left that circulates.
    site.take(LocalMessage("d", b"z"))
    assert site.passed[-1] == LocalMessage("d", b"z")


def test_a_node_that_is_always_late_passes_on_what_it_holds(site: Site) -> None:
    site.take(*BURST[: REPEATS_MAX + TRIALS + LATE_MAX])
    for _ in range(2 * LATE_MAX):
        site.loop.now_s += HOLD_S
        site.loop.pass_time(0.01)
        site.take(BURST[0])
    assert site.passed == BURST[:1] * (REPEATS_MAX + TRIALS + 3 * LATE_MAX)
