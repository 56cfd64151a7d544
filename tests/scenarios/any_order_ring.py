"""The scheduler of :mod:`tests.scenarios.any_order` for a Chord ring: users with topics, who move, on ChordCores."""

from __future__ import annotations

import random
from typing import Any

import simpy

from controller.transition import PersistPlan, Transition, TransitionLimits
from overlay.chord_configuration import ChordConfiguration, id_moves_between
from producers.broker_messages import (
    UNSTAMPED_EPOCH,
    AdvertiseRequest,
    Confirmed,
    Notification,
    UserDrained,
    UserMoves,
    UserStays,
    UserTaken,
)
from producers.chord_core import ChordCore
from producers.ledger import Ledger
from producers.match_content import Filter
from producers.user_clients import UserClients, topic_filter
from schemas.plan import ClientMove, Plan, PlanPhase, RingId
from tests.scenarios.any_order import AnyOrderOverlay, Publisher, Subscription

TOPICS = ("A", "B", "C", "D")
BITS = 6


class _Account(Ledger):
    """Stands where the users' ledger does, and writes the account of the scheduler."""

    def __init__(self, overlay: AnyOrderRing) -> None:
        super().__init__(settle_ms=1.0)
        self._overlay = overlay

    def confirm(self, subscription: str, filter_: Filter, now_ms: float) -> None:
        self._overlay.subscriptions[subscription] = Subscription("", filter_, confirmed_ms=now_ms)

    def cancel(self, subscription: str, now_ms: float) -> None:
        if subscription in self._overlay.subscriptions:
            self._overlay.subscriptions[subscription].cancelled_ms = now_ms


class AnyOrderRing(AnyOrderOverlay):
    """Brokers of a ring, links, users, publishers and one controller under a random but repeatable schedule."""

    def __init__(self, broker_count: int, rng: random.Random, limits: TransitionLimits) -> None:
        super().__init__(broker_count, rng, limits)
        ids = rng.sample(range(1 << BITS), broker_count)
        self.ring = ChordConfiguration.of(0, BITS, dict(zip(self.brokers, ids, strict=True)))
        self.cores: dict[str, Any] = {broker: ChordCore(broker, self.ring, 0) for broker in self.brokers}
        self._clock = simpy.Environment()
        self.users = UserClients(
            self._clock,
            _Account(self),
            lambda home, request: self.inboxes[home].append((None, request)),
            lambda *_: None,
            lambda *_: None,
        )
        self.user_names: list[str] = []

    # --- clients -----------------------------------------------------------------------------------------------

    def advertise(self) -> None:
        """A new publisher of a random topic comes to a random broker."""
        name = f"p{self.publisher_count}"
        self.publisher_count += 1
        home, topic = self.rng.choice(self.brokers), self.rng.choice(TOPICS)
        self.publishers[name] = Publisher(home, topic)
        self.inboxes[home].append((None, AdvertiseRequest(name, topic_filter(topic))))

    def connect(self) -> None:
        """A user comes to a random broker, sometimes one that was here before."""
        self._set_clock()
        gone = [name for name in self.user_names if self.users.home_of(name) is None]
        if gone and self.rng.random() < 0.3:
            name = self.rng.choice(gone)
        else:
            name = f"u{len(self.user_names)}"
            self.user_names.append(name)
        self.users.connect(name, self.rng.choice(self.brokers), self._some_topics())

    def change(self) -> None:
        """A random user wants other topics."""
        name = self._a_user()
        if name is not None:
            self.users.change_topics(name, self._some_topics())

    def disconnect(self) -> None:
        """A random user leaves."""
        name = self._a_user()
        if name is not None:
            self.users.disconnect(name)

    def disconnect_all(self) -> None:
        """Everybody leaves."""
        self._set_clock()
        for name in self.user_names:
            self.users.disconnect(name)

    def publish(self) -> None:
        """A random publisher hands a notification to its home."""
        ready = [name for name, one in self.publishers.items() if one.may_publish]
        if ready:
            self._set_clock()
            name = self.rng.choice(ready)
            publisher = self.publishers[name]
            content = {"topic": publisher.symbol}
            notification = Notification(
                name, publisher.sequence, self.now_ms, publisher.home, UNSTAMPED_EPOCH, content, 100
            )
            self.published[name, publisher.sequence] = notification
            publisher.sequence += 1
            self.inboxes[publisher.home].append((None, notification))

    def _a_user(self) -> str | None:
        self._set_clock()
        here = [name for name in self.user_names if self.users.home_of(name) is not None]
        return self.rng.choice(here) if here else None

    def _some_topics(self) -> list[str]:
        return self.rng.sample(TOPICS, self.rng.randint(0, 3))

    def _set_clock(self) -> None:
        """No two things that clients do happen at the same time."""
        self.now_ms += 1
        self._clock = self.users._env = simpy.Environment(initial_time=self.now_ms)

    # --- the controller ----------------------------------------------------------------------------------------

    def plan_ring(self, id_count: int, move_count: int) -> None:
        """Start a plan of a random reassignment of IDs and moves of users, if none is under way."""
        if any(plan.phase not in (PlanPhase.VERIFYING, PlanPhase.ABORTED) for plan in self.plans.values()):
            return
        if self.controller is not None or self.effects:
            return
        epoch = self.epoch_max + 1
        chosen = self.rng.sample(self.brokers, min(id_count, len(self.brokers)))
        ids = self.ring.id_of | dict(
            zip(chosen, self.rng.sample([self.ring.id_of[one] for one in chosen], len(chosen)), strict=True)
        )
        target = ChordConfiguration.of(epoch, BITS, ids)
        id_moves, moves = id_moves_between(self.ring, target), self._random_user_moves(move_count)
        if not id_moves and not moves:
            return
        self.epoch_max = epoch
        ring = tuple(RingId(broker, number) for broker, number in target.id_of.items())
        plan = Plan(
            f"plan-{epoch}", self.ring.epoch, epoch, 0, (), (), (), (), 0.0, 0.0, PlanPhase.PREPARING, (),
            moves=moves, id_moves=id_moves, ring_target=ring,
        )  # fmt: skip
        self.controller = Transition(plan, self.brokers, self.limits, BITS)
        self.effects.extend(self.controller.start(self.now_ms))

    def target_of(self, plan: Plan) -> ChordConfiguration:
        """Return the ring that a plan leads to."""
        return ChordConfiguration.of(plan.epoch_to, BITS, {one.broker: one.ring_id for one in plan.ring_target})

    def _random_user_moves(self, move_count: int) -> tuple[ClientMove, ...]:
        """Choose users and where they go; now and then the controller is mistaken about where one is."""
        chosen = self.rng.sample(self.user_names, min(move_count, len(self.user_names)))
        moves = []
        for name in sorted(chosen):
            home = self.users.home_of(name)
            if home is None or self.rng.random() < 0.05:
                home = self.rng.choice(self.brokers)
            others = [broker for broker in self.brokers if broker != home]
            moves.append(ClientMove(name, home, self.rng.choice(others)))
        return tuple(moves)

    def restart_controller(self) -> None:
        """A new controller resumes the unfinished plan from what was persisted."""
        if self.controller is not None:
            return
        for plan in self.plans.values():
            if plan.phase not in (PlanPhase.VERIFYING, PlanPhase.ABORTED):
                self.controller = Transition(plan, self.brokers, self.limits, BITS)
                self.effects.extend(self.controller.resume(self.now_ms))

    def carry_out_effect(self) -> None:
        """Carry out one effect of the controller."""
        effect = self.effects[0] if self.effects else None
        if isinstance(effect, PersistPlan) and effect.plan.phase is PlanPhase.VERIFYING:
            self.effects.popleft()
            self.plans[effect.plan.plan] = effect.plan
            self.ring = self.target_of(effect.plan)
            if not self.effects and self.controller is not None and self.controller.is_done:
                self.controller = None
            return
        super().carry_out_effect()

    # --- the schedule ------------------------------------------------------------------------------------------

    def _carry_out(self, broker: str, effect: Any) -> None:
        match effect:
            case Confirmed(name):
                self._set_clock()
                self.users.confirm(name)
            case UserMoves(user, connection, home_to, epoch):
                self._set_clock()
                self.users.move(user, connection, home_to, epoch)
            case UserStays(user, connection):
                self._set_clock()
                self.users.stay(user, connection)
            case UserTaken(user):
                self._set_clock()
                self.users.take(user, broker)
            case UserDrained(user, subscription, home_to):
                self.users.drain(user, subscription, home_to)
            case _:
                super()._carry_out(broker, effect)
