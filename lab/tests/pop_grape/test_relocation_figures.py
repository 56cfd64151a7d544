"""Cuts and differences on hand-made outcomes."""

import pytest

from regraft.api.programs import Figure
from regraft_lab.claim_evidence import Measured
from regraft_lab.pop_grape.placement_measures import Measures
from regraft_lab.pop_grape.relocation_figures import SPREAD, relocation_figures
from regraft_lab.pop_grape.relocation_outcome import Draw, Outcome, TaskResult
from regraft_lab.pop_grape.relocation_tasks import Task

WHERE = {"measured": "clock", "testbed": "planetlab", "workload": "clustered", "predicates": "shared"}


def measures(rate: float, delay_ms: float, hops: float = 1.0, busiest: float = 0.5) -> Measures:
    """Return measures that differ in a few values only; load and cost follow the rate."""
    return Measures(rate, rate / 100, 0.0, delay_ms, delay_ms + 10, hops, rate * 2, [busiest, busiest / 2])


def outcome(way: str, found: Measures, home: str, cost_decided: float) -> Outcome:
    """Return the outcome of one publisher that started at a, three links from b and one from c."""
    hops = {"a": 0, "b": 3, "c": 1}[home]
    return Outcome(way, found, {"p": home}, int(hops > 0), int(hops > 0), hops, cost_decided)


def task(x: int, draw: int) -> Task:
    """Return a task as the figures need it."""
    return Task("emulated", "planetlab", "clustered", "shared", x, 1, draw, (), 1)


def draw_of(load100: Measures, delay100: Measures, ours_cost: float, subscribers: list[str]) -> TaskResult:
    """Return a draw: the start has 20 messages/s and 100 ms; load100 moves to b, delay100 to c, ours to b."""
    outcomes = [
        outcome("baseline", measures(20.0, 100.0, 4.0, busiest=0.8), "a", 40.0),
        outcome("load100", load100, "b", 10.0),
        outcome("delay100", delay100, "c", 16.0),
        outcome("ours", load100, "b", ours_cost),
    ]
    return TaskResult([Draw(outcomes, {"p": subscribers})])


def figures() -> list[Figure]:
    """Return the figures of two draws at X = 2 and one at X = 1."""
    return relocation_figures(
        [
            (task(2, 0), draw_of(measures(5.0, 80.0), measures(10.0, 40.0, busiest=0.6), 10.0, ["b", "c"])),
            (task(2, 1), draw_of(measures(7.0, 90.0), measures(12.0, 50.0, busiest=0.7), 9.0, ["b", "c"])),
            (task(1, 0), draw_of(measures(2.0, 10.0, 0.0), measures(2.0, 10.0, 0.0), 10.0, ["b"])),
        ]
    )


def test_a_cut_is_what_is_saved_in_each_draw() -> None:
    """load100 saves 1 - 5/20 and 1 - 7/20 of the messages; its delay between clients 1 - 90/110 and 1 - 100/110."""
    found = Measured(figures())
    at: dict[str, str | int | float] = {**WHERE, "x": 2, "way": "load100"}
    assert found.value("message_rate_cut", **at) == pytest.approx((0.75 + 0.65) / 2)
    assert found.value("load_cut", **at) == pytest.approx(0.70)
    assert found.value("cost_cut", **at) == pytest.approx(0.70)
    assert found.value("client_delay_cut", **at) == pytest.approx((1 - 90 / 110 + 1 - 100 / 110) / 2)
    assert found.value("message_rate_cut_ci95", **at) == pytest.approx(12.706 * 0.05)
    assert found.value("output_cut", **at) is None  # Nothing was sent over a limited link.
    assert found.value("hops_moved", **at) == 3
    assert found.value("at_subscribers_share", **at) == 1
    assert found.value("at_subscribers_share", **{**at, "x": 1, "way": "delay100"}) == 0  # It moved to c.


def test_differences_are_taken_within_a_draw() -> None:
    """delay100 sends 5 of 20 messages more than load100 in both draws, and is 40 ms of 110 faster."""
    found = Measured(figures())
    at: dict[str, str | int | float] = {**WHERE, "x": 2, "way": "delay100"}
    above = found.interval("message_rate_above_load100", **at)
    assert above is not None
    assert (above.mean, above.half) == pytest.approx((0.25, 0.0))
    delay = found.interval("client_delay_above_delay100", **{**at, "way": "load100"})
    assert delay is not None
    assert delay.mean == pytest.approx(40 / 110)


def test_spread_takes_every_x_but_one() -> None:
    """The draws at X = 2 alone: at X = 1 all methods are equal."""
    found = Measured(figures())
    assert found.value("message_rate_above_load100", **WHERE, **SPREAD, way="delay100") == pytest.approx(0.25)
    assert found.value("same_home_share", **WHERE, **SPREAD, way="load100", other="delay100") == 0


def test_brokers_busier_than_the_busiest_of_load100_are_counted() -> None:
    """load100's busiest is at 0.5: one broker of delay100 exceeds it, and one of the start."""
    found = Measured(figures())
    for way, count in (("baseline", 1), ("delay100", 1), ("load100", 0)):
        assert found.value("brokers_above_load100", **WHERE, x=2, way=way) == count


def test_ours_is_compared_with_the_cheapest_of_the_paper() -> None:
    """On the traffic decided on: 10 and 9 against load100's 10, of the start's 40."""
    found = Measured(figures())
    assert found.value("cost_above_best_of_paper_max", **WHERE, x=2) == pytest.approx(0.0)
    assert found.value("cost_above_best_of_paper_mean", **WHERE, x=2) == pytest.approx(-0.0125)


def test_sessions_are_reported_with_their_own_messages() -> None:
    """8 of 20 messages are left, plus 2 of the session itself: 0.4 and 0.5 of the baseline's."""
    sessions = Task("sessions", "cluster", "clustered", "shared", 16, 1, 0, (), 1, steps=(10,))
    start, after = measures(20.0, 100.0, 4.0), measures(8.0, 50.0, 3.0)
    outcomes = [
        Outcome("baseline", start, {"p": "a"}, 10, 0, 0, 0.0, step=10),
        Outcome("load100", after, {"p": "b"}, 10, 5, 9, 0.0, step=10, overhead_per_s=2.0),
    ]
    found = Measured(relocation_figures([(sessions, TaskResult([Draw(outcomes, {"p": ["b"]})]))]))
    where: dict[str, str | int | float] = {"notifications_min": 10, "way": "load100"}
    assert found.value("message_rate_vs_baseline", **where) == pytest.approx(0.4)
    assert found.value("message_rate_with_own_vs_baseline", **where) == pytest.approx(0.5)
    assert found.value("hops_vs_baseline", **where) == pytest.approx(0.75)
    assert found.value("moves_per_session", **where) == pytest.approx(0.5)
