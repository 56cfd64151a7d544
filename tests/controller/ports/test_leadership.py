"""Leader election on a real broker: one leader at a time, another when it leaves or is silent, never two writers."""

from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial

import msgspec
import pytest

from regraft.controller.control_ports import DeposedError
from regraft.controller.ports.leader_basis import LeaderBasis
from regraft.controller.ports.leadership import HeldTerm, Leadership, SessionRefusedError
from regraft.infra.kafka.kafka_access import KafkaAccess
from regraft.infra.local.kafka_server import RunningKafka
from regraft.schemas.plan import PlanPhase
from tests.controller.state.test_plan_log import plan_at
from tests.wait_until import wait_until

pytestmark = pytest.mark.stack
SESSION_MS = 3_000
Seats = Callable[..., Leadership]


@pytest.fixture
def seats() -> Iterator[Seats]:
    """Return a factory of candidates and close all of them: an unclosed one waits for its Kafka when collected."""
    made: list[Leadership] = []

    def make(
        access: KafkaAccess, namespace: str, name: str, session_ms: int = SESSION_MS, **more: object
    ) -> Leadership:
        made.append(Leadership(access, namespace, name, session_ms, **more))  # type: ignore[arg-type]
        return made[-1]

    yield make
    for leadership in made:
        with suppress(RuntimeError):  # already closed
            leadership.close()


def led(leadership: Leadership, *others: Leadership) -> HeldTerm:
    """Wait until the candidate leads while the others take part in the group."""
    found: list[HeldTerm] = []

    def leads() -> bool:
        for other in others:
            other.poll()
        leadership.poll()
        term = leadership.take_over(0)
        found.extend([] if term is None else [term])
        return bool(found)

    wait_until(leads)
    return found[0]


def test_one_leads_until_it_leaves(kafka: RunningKafka, namespace: str, seats: Seats) -> None:
    """A later candidate does not take over, learns who leads, and leads at once when that one leaves, a term later."""
    first = seats(kafka.access, namespace, "first")
    term = led(first)
    assert (term.term.term, term.term.leader) == (1, "first")
    second = seats(kafka.access, namespace, "second")
    for _ in range(100):
        second.poll()
        first.check()
        assert not second.is_chosen
        if second.newest == term.term:
            break
    wait_until(lambda: second.poll() is None and second.newest == term.term)
    wait_until(lambda: term.plans.commit(plan_at(1, PlanPhase.PREPARING), []))
    term.plans.close()
    first.close()
    following = led(second)
    assert following.term.term == 2
    assert following.plans.load() == [plan_at(1, PlanPhase.PREPARING)]
    following.plans.close()
    second.close()


def test_a_silent_leader_is_replaced_and_can_no_longer_write(kafka: RunningKafka, namespace: str, seats: Seats) -> None:
    """Its session expires; what it writes has no effect, and it learns that it is on standby."""
    first = seats(kafka.access, namespace, "first")
    term = led(first)
    first._consumer.unsubscribe()  # As after a suspension: the group has lost it, but it still believes that it leads.
    first._is_chosen = True
    second = seats(kafka.access, namespace, "second")
    following = led(second)
    assert following.term.term == 2
    assert first.take_over(0) is None  # It is not a member, so it does not even fence off the other one.
    wait_until(lambda: following.plans.commit(plan_at(1, PlanPhase.PREPARING), []))
    with pytest.raises(DeposedError):
        term.plans.commit(plan_at(2, PlanPhase.PREPARING), [])
    assert following.plans.load() == [plan_at(1, PlanPhase.PREPARING)]
    for one in (term.plans, following.plans, first, second):
        one.close()


def test_a_candidate_with_another_inventory_or_without_keys_does_not_lead(
    kafka: RunningKafka, namespace: str, seats: Seats
) -> None:
    """Nor does it keep another one from leading; once it has what the leader before had, it leads."""
    right = LeaderBasis("one", has_keys=True)
    first = seats(kafka.access, namespace, "first", basis_of=lambda: right)
    led(first)
    first.close()
    own = {"basis": LeaderBasis("other", has_keys=True)}
    wrong = seats(kafka.access, namespace, "wrong", basis_of=lambda: own["basis"])
    wait_until(lambda: (wrong.poll(), wrong.objection)[1] != "")
    assert "its inventory (other: brokers and initial overlay) differs from that of first" in wrong.objection
    second = seats(kafka.access, namespace, "second", basis_of=lambda: right)
    assert led(second, wrong).term.term == 2
    second.close()
    own["basis"] = LeaderBasis("one")
    wait_until(lambda: (wrong.poll(), "no trusted keys" in wrong.objection)[1])
    for _ in range(100):
        wrong.poll()
        assert wrong.take_over(0) is None
    own["basis"] = right
    assert led(wrong).term.term == 3


def test_recovery_adopts_another_inventory_on_request(kafka: RunningKafka, namespace: str, seats: Seats) -> None:
    """Otherwise it keeps that of the leader before, whichever it has itself."""
    first = seats(kafka.access, namespace, "first", basis_of=lambda: LeaderBasis("one", has_keys=True))
    led(first)
    first.close()
    for inventory, wanted in (("", "one"), ("other", "other")):
        recovery = seats(kafka.access, namespace, "recover", inventory=inventory)
        led(recovery)
        recovery.close()
        after = seats(kafka.access, namespace, "after", basis_of=partial(LeaderBasis, wanted, has_keys=True))
        led(after)
        after.close()


def test_terms_continue_above_those_of_plans(kafka: RunningKafka, namespace: str, seats: Seats) -> None:
    """Even if the topic of terms was recreated: brokers obey no lower term."""
    first = seats(kafka.access, namespace, "first")
    term = led(first)
    wait_until(lambda: term.plans.commit(msgspec.structs.replace(plan_at(1, PlanPhase.COMPLETED), term=41), []))
    first._is_chosen = True
    assert led(first).term.term == 42
    first.close()


def test_a_session_refused_by_kafka_stops_the_start(kafka: RunningKafka, namespace: str, seats: Seats) -> None:
    """The error names the setting and its limits."""
    leadership = seats(kafka.access, namespace, "first", 500)
    with pytest.raises(SessionRefusedError, match=r"session of 500 ms: set controller\.session_ms"):
        wait_until(lambda: leadership.poll() is not None)
    leadership.close()


def test_without_kafka_there_is_no_leader(seats: Seats) -> None:
    """And nothing exits."""
    leadership = seats(KafkaAccess("127.0.0.1:1"), "nowhere", "first")
    leadership.poll()
    assert not leadership.is_chosen
    assert leadership.take_over(0) is None
    leadership.close()
