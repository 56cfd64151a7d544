import pytest

from regraft.api.cyclic import LENGTH, ScotBroker
from regraft_lab.octopia.octopia_tasks import OctopiaTask, run_task
from regraft_lab.octopia.route_copies import Copy
from regraft_lab.octopia.run_queues import Pace, QueueRun, Stream

A, B = ScotBroker("a", 0), ScotBroker("a", 1)


def one_link(shared_sender: bool, other: ScotBroker | None = None) -> QueueRun:
    """Return a run of two simultaneous notifications from A to B; ``other``, if given, gets a copy of each first."""
    copies = [Copy(each) for each in (other, B) if each]
    stream = Stream(A, frozenset([B]), 0, lambda at, *_: copies if at == A else [], [0.0, 0.0])
    return QueueRun([stream], Pace(1.0, 10.0, 5.0, shared_sender), LENGTH, A)


def test_copies_wait_for_the_broker_and_for_the_sender() -> None:
    """Matched after 1 and 2 ms, sent by 11 and 21, arrived at 16 and 26, matched 1 ms later."""
    outcome = one_link(shared_sender=False).run()
    assert outcome.delays_ms == [17.0, 27.0]
    assert (outcome.messages, outcome.last_ms, outcome.out_of_order) == (2, 27.0, 0)


def test_a_sender_for_the_whole_broker_is_slower() -> None:
    """Each copy for B waits for the copy to the other broker."""
    other = ScotBroker("a", 2)
    assert one_link(shared_sender=False, other=other).run().delays_ms == [17.0, 27.0]
    assert one_link(shared_sender=True, other=other).run().delays_ms == [27.0, 47.0]


@pytest.mark.parametrize("sender", ["link", "broker"])
def test_dynamic_routing_delivers_a_burst_earlier(sender: str) -> None:
    """In a burst, with the same deliveries; without one, both routings do the same."""
    found = {}
    for routing in ("snr", "idr"):
        for workload in ("stable", "burst_100k"):
            task = OctopiaTask(3, 0, 400, routing, workload, sender)
            found[routing, workload] = {each.name: each.value for each in run_task(task).samples}
    assert found["idr", "stable"] == found["snr", "stable"]
    assert found["idr", "burst_100k"]["delay_ms_mean"] < found["snr", "burst_100k"]["delay_ms_mean"]
    assert found["snr", "burst_100k"]["out_of_order_share"] == 0


def test_shared_trees_carry_some_of_a_burst_over_other_paths() -> None:
    """With the same deliveries, each once, over few more links: at most brokers no other tree leads to a target."""
    messages = {}
    for routing in ("tid", "tid_dynamic"):
        found = {each.name: each.value for each in run_task(OctopiaTask(1, 0, 400, routing, "burst_100k")).samples}
        messages[routing] = found["messages"]
    assert messages["tid"] < messages["tid_dynamic"] < 1.01 * messages["tid"]
