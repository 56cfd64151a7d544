"""Brokers obey only the highest term that they have seen, and only one plan in each epoch."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from regraft.overlay.overlay_configuration import OverlayConfiguration
from regraft.overlay.ring.ring_configuration import RingConfiguration
from regraft.overlay.tree.tree_configuration import TreeConfiguration
from regraft.producers.brokers.broker_messages import Answer, End
from regraft.producers.brokers.broker_reports import BrokerPhase
from regraft.producers.brokers.command_fence import PLANS_KEPT_MAX
from regraft.producers.emulator.starting_point import core_of
from regraft.schemas.command import Command, CommandPhase, CommandResult, Outcome, Refusal
from tests.scenarios.model.frozen_states import frozen

TREE = TreeConfiguration.of(0, ("a", "b"), [("a", "b")])
RING = RingConfiguration.of(0, 4, {"a": 1, "b": 9})
PREPARE, ACTIVATE, RETIRE, ABORT, INSTALL, REPORT = CommandPhase
OF_PLANS = (PREPARE, ACTIVATE, RETIRE, ABORT)
TERM = 3
WAYS: dict[str, tuple[CommandPhase, ...]] = {
    "prepared": (PREPARE,),
    "active": (PREPARE, ACTIVATE),
    "in force": (PREPARE, ACTIVATE, RETIRE),
    "aborted": (PREPARE, ABORT),
    "aborted unseen": (ABORT,),
}
BOTH = pytest.mark.parametrize("overlay", [TREE, RING], ids=["tree", "ring"])


class FencedBroker:
    """Broker a of two; no plan changes either."""

    def __init__(self, overlay: OverlayConfiguration) -> None:
        self.overlay = overlay
        self.core: Any = core_of("a", overlay, 0)

    def command(self, phase: CommandPhase, epoch: int = 1, epoch_from: int = 0, **changes: Any) -> Command:
        digest = self.overlay.at_epoch(epoch).digest + "-mine"
        command = Command(f"plan-{epoch}", phase, "a", epoch_from, epoch, digest=digest, term=TERM)
        return msgspec.structs.replace(command, **changes)

    def obey(self, command: Command) -> list[CommandResult]:
        """Return the answers; the neighbour ends its flows at once."""
        effects = self.core.handle(None, command, 1.0)
        if isinstance(self.overlay, TreeConfiguration) and self.core.phase is BrokerPhase.DRAINING:
            effects = effects + self.core.handle("b", End(command.epoch_from), 1.0)
        return [effect.result for effect in effects if isinstance(effect, Answer)]

    def go(self, phases: tuple[CommandPhase, ...], epoch: int = 1, epoch_from: int = 0) -> None:
        """Obey these commands, none of which may be refused."""
        for phase in phases:
            outcomes = [answer.outcome for answer in self.obey(self.command(phase, epoch, epoch_from))]
            assert outcomes
            assert Outcome.REFUSED not in outcomes


@BOTH
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("phase", OF_PLANS)
@pytest.mark.parametrize("foreign", ["plan", "digest", "overlay", "no digest"])
def test_another_plan_of_the_same_epoch_is_refused_in_every_phase(
    overlay: OverlayConfiguration, way: str, phase: CommandPhase, foreign: str
) -> None:
    """For any command and phase of the first plan the answer names the epoch's plan, and nothing changes."""
    broker = FencedBroker(overlay)
    broker.go(WAYS[way])
    before = frozen(broker.core)
    mine = broker.command(phase)
    changes = {
        "plan": {"plan": "plan-77"},
        "digest": {"digest": mine.digest + "-theirs"},
        "overlay": {"digest": "another-mine"},
        "no digest": {"digest": ""},
    }
    command = broker.command(phase, **changes[foreign])
    (answer,) = broker.obey(command)
    assert (answer.outcome, answer.refusal) == (Outcome.REFUSED, Refusal.PLAN)
    assert (answer.plan, answer.digest, answer.term) == (command.plan, command.digest, TERM)
    assert f"belongs to plan-1 (digest {mine.digest})" in answer.reason
    assert "another controller" in answer.reason
    assert frozen(broker.core) == before


@BOTH
def test_a_plan_that_ended_long_ago_is_still_distinguished_from_another(overlay: OverlayConfiguration) -> None:
    """Its own commands are answered as done; those of another plan of that epoch are not."""
    broker = FencedBroker(overlay)
    for epoch in range(1, 6):
        broker.go((PREPARE, ACTIVATE, RETIRE), epoch, epoch - 1)
    assert [answer.outcome for answer in broker.obey(broker.command(ACTIVATE, 2, 1))] == [
        Outcome.ACTIVATED,
        Outcome.DRAINED,
    ]
    assert [answer.outcome for answer in broker.obey(broker.command(RETIRE, 2, 1))] == [Outcome.RETIRED]
    for phase in OF_PLANS:
        (answer,) = broker.obey(broker.command(phase, 2, 1, digest="another"))
        assert (answer.outcome, answer.refusal) == (Outcome.REFUSED, Refusal.PLAN)


@BOTH
def test_the_plans_that_brokers_remember_are_bounded(overlay: OverlayConfiguration) -> None:
    """The plan in force is never forgotten; a forgotten plan is refused, not answered as done."""
    broker = FencedBroker(overlay)
    broker.go((PREPARE, ACTIVATE, RETIRE), 1)
    broker.go((PREPARE, ACTIVATE, RETIRE), 2, 1)
    for epoch in range(3, 3 + 2 * PLANS_KEPT_MAX):
        broker.go((ABORT,), epoch, 2)
    assert len(broker.core.state.fence._owners) <= PLANS_KEPT_MAX + 2
    broker.go((RETIRE,), 2, 1)
    for phase in OF_PLANS:
        (answer,) = broker.obey(broker.command(phase, 1))
        assert (answer.outcome, answer.refusal) == (Outcome.REFUSED, Refusal.EPOCH)
        assert "holds epoch 2; the plan that led to 1 is unknown here" in answer.reason


@BOTH
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("phase", CommandPhase)
def test_a_lower_term_is_refused_with_both_terms(overlay: OverlayConfiguration, way: str, phase: CommandPhase) -> None:
    """A deposed leader changes nothing, not even its own plan; the answer names the leader's term."""
    broker = FencedBroker(overlay)
    broker.go(WAYS[way])
    before = frozen(broker.core)
    (answer,) = broker.obey(broker.command(phase, term=TERM - 1))
    assert (answer.outcome, answer.refusal, answer.term) == (Outcome.REFUSED, Refusal.TERM, TERM)
    assert answer.reason == "has term 2, but the leader has term 3"
    assert frozen(broker.core) == before


@BOTH
def test_a_higher_term_continues_the_same_plan(overlay: OverlayConfiguration) -> None:
    """The successor takes over in any phase, and all answers have its term from then on."""
    for way, next_phase, outcome in (
        ("prepared", ACTIVATE, Outcome.ACTIVATED),
        ("active", RETIRE, Outcome.RETIRED),
        ("prepared", ABORT, Outcome.ABORTED),
    ):
        broker = FencedBroker(overlay)
        broker.go(WAYS[way])
        answers = broker.obey(broker.command(next_phase, term=TERM + 1))
        assert outcome in [answer.outcome for answer in answers]
        assert {(answer.term, answer.digest) for answer in answers} == {(TERM + 1, broker.command(PREPARE).digest)}
        (late,) = broker.obey(broker.command(next_phase))
        assert late.refusal is Refusal.TERM


def test_a_later_answer_has_the_highest_term_seen_by_then() -> None:
    """DRAINED follows without a command, so a successor that has commanded meanwhile can accept it."""
    core = core_of("a", TREE, 0)
    broker = FencedBroker(TREE)
    for phase in (PREPARE, ACTIVATE):
        core.handle(None, broker.command(phase), 1.0)
    core.handle(None, broker.command(PREPARE, term=TERM + 1), 2.0)
    (drained,) = [one.result for one in core.handle("b", End(0), 3.0) if isinstance(one, Answer)]
    assert (drained.outcome, drained.term, drained.digest) == (
        Outcome.DRAINED,
        TERM + 1,
        broker.command(PREPARE).digest,
    )


@BOTH
def test_an_aborted_plan_is_never_answered_as_executed(overlay: OverlayConfiguration) -> None:
    """Even if a later plan is in force, late commands of the aborted one are refused, except the abort itself."""
    broker = FencedBroker(overlay)
    broker.go(WAYS["aborted"])
    broker.go((PREPARE, ACTIVATE, RETIRE), 2)
    for phase in (PREPARE, ACTIVATE, RETIRE):
        (answer,) = broker.obey(broker.command(phase))
        assert (answer.outcome, answer.reason) == (Outcome.REFUSED, "epoch 1 was aborted")
    assert [answer.outcome for answer in broker.obey(broker.command(ABORT))] == [Outcome.ABORTED]


@BOTH
def test_an_epoch_before_an_aborted_one_cannot_be_prepared(overlay: OverlayConfiguration) -> None:
    """This includes plans unknown here: early messages for that epoch were dropped with those of the later one."""
    broker = FencedBroker(overlay)
    broker.go((ABORT,), 2)
    (answer,) = broker.obey(broker.command(PREPARE))
    assert (answer.outcome, answer.refusal) == (Outcome.REFUSED, Refusal.PHASE)


@BOTH
def test_a_plan_of_a_later_epoch_is_refused_while_one_is_under_way(overlay: OverlayConfiguration) -> None:
    """The answer says that the broker executes another plan, or that it is in another epoch."""
    broker = FencedBroker(overlay)
    broker.go((PREPARE,))
    (answer,) = broker.obey(broker.command(PREPARE, 2))
    assert (answer.outcome, answer.refusal) == (Outcome.REFUSED, Refusal.PLAN)
    (answer,) = broker.obey(broker.command(PREPARE, 3, 2))
    assert (answer.outcome, answer.refusal) == (Outcome.REFUSED, Refusal.EPOCH)


@BOTH
def test_a_report_gives_the_state_that_the_broker_holds(overlay: OverlayConfiguration) -> None:
    """Before and after a plan: epoch, plan, digest and phase; its term counts like that of any command."""
    broker = FencedBroker(overlay)
    (answer,) = broker.obey(broker.command(REPORT, 0))
    assert (answer.outcome, answer.epoch_to, answer.reason) == (Outcome.REPORTED, 0, "steady")
    assert bool(answer.links_held) is isinstance(overlay, TreeConfiguration)
    assert bool(answer.ring_held) is isinstance(overlay, RingConfiguration)
    broker.go((PREPARE, ACTIVATE, RETIRE), 1)
    (answer,) = broker.obey(broker.command(REPORT, 0, term=TERM + 1))
    prepare = broker.command(PREPARE, 1)
    assert (answer.epoch_to, answer.plan_held, answer.digest) == (1, prepare.plan, prepare.digest)
    assert answer.term == broker.core.state.fence.term == TERM + 1
