"""The benchmark of transitions counts everything, and its counts add up."""

import pytest

from lab.benchmarks.bench_transition import Values, figures_of
from lab.benchmarks.transition_meter import message_bytes
from lab.benchmarks.transition_runs import RingRun, TransitionRun, TreeRun
from regraft.api.brokers import End, Subscribe
from regraft.api.emulation import topic_filter
from regraft.api.programs import Figure

BROKERS = 12


@pytest.mark.parametrize("make", [lambda: TreeRun(BROKERS, 49, seed=1), lambda: RingRun(BROKERS, 2, seed=1)])
def test_every_scenario_is_executed_and_its_costs_add_up(make) -> None:  # type: ignore[no-untyped-def]
    """Every broker is asked for each phase in order and answers, and the ledger finds no error."""
    run: TransitionRun = make()
    for scenario in run.scenarios:
        cost = run.measure(scenario)
        assert list(cost.reached_ms) == ["prepared_ms", "activated_ms", "drained_ms", "retired_ms"]
        assert list(cost.reached_ms.values()) == sorted(cost.reached_ms.values())
        assert cost.commands["prepare"] == cost.commands["retire"] == BROKERS
        for outcome in ("prepared", "retired"):
            assert cost.answers[outcome] == BROKERS
        assert 0 < cost.messages_of_plan <= cost.messages.total() < cost.message_bytes.total()
        assert len(cost.held_ms) <= cost.deliveries
        values = {figure.name: figure.value for figure in figures_of(cost, {}) if "kind" not in figure.where}
        assert values["held_ms_p50"] <= values["held_ms_p95"] <= values["held_ms_max"]
        assert values["messages"] == cost.messages.total()
    assert run.finish().is_clean


def test_equal_seeds_cost_the_same() -> None:
    """A run repeats exactly, except for the time it takes."""
    costs = [RingRun(BROKERS, 2, seed=3).measure("10 users") for _ in range(2)]
    assert costs[0].messages == costs[1].messages
    assert costs[0].reached_ms == costs[1].reached_ms
    assert costs[0].held_ms == costs[1].held_ms


def test_the_size_of_a_message_is_that_of_its_name_and_fields() -> None:
    """Two bytes of framing for three letters and a small number, and the filter's parts at their own size."""
    assert message_bytes(End(3)) == 1 + 4 + 1
    message = Subscribe(3, "s1", "b1", topic_filter("t1"), 3)
    assert message_bytes(message) == 1 + 10 + 1 + 3 + 3 + (1 + 1 + 6 + 3 + 3) + 1


def test_figures_are_shown_next_to_those_of_an_earlier_run() -> None:
    """With the change in per cent, a dash if there was no value, and every kind of message that either run has."""
    place = {"overlay": "ring", "brokers": 40}
    earlier = [Figure("messages", place, 2_000, "1"), Figure("messages", place | {"kind": "Old"}, 5, "1")]
    now = [Figure("messages", place, 1_500, "1"), Figure("messages", place | {"kind": "New"}, 7, "1")]
    values = Values(now, earlier)
    assert values.text("messages", place) == "2,000 → 1,500 (-25 %)"
    assert values.text("messages", place | {"kind": "New"}) == "- → 7"
    assert values.kinds(place) == ["New", "Old"]
    assert Values(now, []).text("messages", place) == "1,500"
