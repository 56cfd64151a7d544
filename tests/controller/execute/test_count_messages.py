"""What brokers report to have sent for a plan: none makes later plans expensive, no number stops a controller."""

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from regraft.controller.execute.transition import FREE, MEAN_FACTOR, SUM_FACTOR, believed_total
from regraft.schemas.bounds import PLAN_MESSAGES_MAX
from regraft.schemas.codec import decode, encode
from regraft.schemas.command import CommandPhase, CommandResult, Outcome
from regraft.schemas.plan import Plan, PlanPhase
from tests.controller.execute.test_transition import BROKERS, answer, run_to

FLEET = tuple(f"b{number:02}" for number in range(12))
AGENTS = {broker: ("east", "west", "north", "")[number % 4] for number, broker in enumerate(FLEET)}
COUNTS = st.integers(min_value=0, max_value=PLAN_MESSAGES_MAX)


@given(
    honest=st.lists(st.integers(min_value=20, max_value=200), min_size=12, max_size=12),
    agent=st.sampled_from(["east", "west", "north", None]),
    lies=st.lists(COUNTS, min_size=12, max_size=12),
)
def test_no_agent_and_no_broker_multiplies_the_total(honest: list[int], agent: str | None, lies: list[int]) -> None:
    """Whatever all brokers of one agent report, or a single broker where there are no agents."""
    agents = AGENTS if agent else {}
    liars = [one for one in FLEET if AGENTS[one] == agent] if agent else ["b03"]
    counts = dict(zip(FLEET, honest, strict=True))
    others = sum(count for broker, count in counts.items() if broker not in liars)
    counts |= {broker: lies[FLEET.index(broker)] for broker in liars}
    most = FREE + (1 + SUM_FACTOR + MEAN_FACTOR * len(liars) / (len(FLEET) - len(liars))) * others
    assert believed_total(counts, agents) <= most + sum(min(counts[one], 200) for one in liars)


@given(st.lists(st.integers(min_value=10, max_value=150), min_size=2, max_size=12))
def test_honest_counts_are_added_up(counts: list[int]) -> None:
    """A hub sends many times as much as a leaf."""
    assert believed_total(dict(zip(FLEET, counts, strict=False)), {}) == sum(counts)
    assert believed_total({"b00": 1, "b01": 3, "b02": 4, "b03": 12, "b04": 74, "b05": 78}, {}) == 172


@given(st.lists(COUNTS, min_size=3, max_size=3))
def test_whatever_brokers_count_the_plan_can_be_read_again(counts: list[int]) -> None:
    """A value that no plan can hold would stop this controller, and each that follows."""
    transition = run_to(PlanPhase.PREPARING)
    for broker, sent in zip(BROKERS, counts, strict=True):
        result = answer(broker, CommandPhase.PREPARE, Outcome.PREPARED, sent=sent)
        transition.on_result(decode(encode(result), CommandResult), 10)
    assert decode(encode(transition.plan), Plan) == transition.plan


def test_a_count_that_no_broker_reaches_is_refused_as_a_record() -> None:
    """By its sender; a reader would make a dead letter of it."""
    result = answer("a", CommandPhase.PREPARE, Outcome.PREPARED)
    bounds = {one.name: one.type for one in msgspec.inspect.type_info(CommandResult).fields}  # type: ignore[attr-defined]
    assert bounds["control_messages"].le * len(FLEET) < 1 << 63
    assert decode(encode(msgspec.structs.replace(result, control_messages=PLAN_MESSAGES_MAX)), CommandResult)
