"""Partial-order reduction: when only one broker's moves need be tried, without losing any ending or any fault.

In: a state and its moves. Out: the moves that are tried, all of them or those of one broker. They are a persistent set
(Godefroid, 1996, chapter 4): whatever the others do before this broker acts commutes with what this broker may do now.
Every run then has an equivalent one that begins with one of these moves, and as runs are finite, no further proviso is
needed: all endings are reached, and so is a fault before the end, which is a fact about one part.

The moves of broker b are taken alone if

1. *no other move at b can become possible first*. Non-empty channels into b hide what comes after. Each empty one must
be out of reach: its source, and everything that could wake it without b, has nothing to do. New commands do not come
before b has answered the last ones; an abort may, then b is not taken alone.

2. *what b may do touches nothing that others touch*: messages at the end of its own channels, answers (a set), and of
clients and the account only what commutes with all others' moves: a delivery, since what is owed is settled when a
notification is published (unless the user is also served elsewhere), a confirmation if nothing is published any more,
the permission of a publisher that only publishes.

One thing does not commute but is safe: a message sent before a client's request to its receiver may be handled before
or after that, one sent after it only after. So sending first allows everything that sending later does.
"""

from __future__ import annotations

from typing import Any

from regraft.producers.brokers.broker_messages import Answer, Deliver
from regraft.schemas.command import CommandPhase, Outcome
from tests.scenarios.model.overlay_model import ABORT, CONTROL, DELIVER, Move, OverlayModel, Reaction, State
from tests.scenarios.model.rival_controls import RivalControls
from tests.scenarios.model.scripted_clients import PublisherScript, ScriptedClient


class ClientFacts:
    """What a client in one state may still do; ``homes`` is a mask of brokers to which it may send requests."""

    def __init__(self, model: OverlayModel, client: ScriptedClient) -> None:
        self.has_steps = bool(client.left)
        self.only_publishes = isinstance(client, PublisherScript) and all(one.kind == "publish" for one in client.left)
        self.publishes = client.may_publish_later
        moves = [move for change in model.plans for move in change.moves if move.client == client.name]
        homes = {step.home for step in client.script if step.home}
        homes |= {home for move in moves for home in (move.home_from, move.home_to)}
        self.homes = sum(1 << model.broker_at[home] for home in homes)
        self.moves = bool(moves)


class Reduction:
    """Chooses which moves of a state are tried."""

    def __init__(self, model: OverlayModel) -> None:
        self._model = model
        self._facts: dict[int, ClientFacts] = {}
        self._incoming = [
            [(at, self._source(at)) for at in range(len(model.channels)) if model.goals[at] == broker]
            for broker in range(len(model.brokers))
        ]
        self._peers = [self._ever_linked(broker) for broker in range(len(model.brokers))]
        self._waking: dict[int, tuple[int, bool, bool]] = {}
        self._closed: dict[tuple[tuple[bool, ...], int, tuple[int, ...]], list[int]] = {}

    def _source(self, at: int) -> int:
        """Return the broker that a channel comes from, -1 for clients, -2 for commands."""
        name, model = self._model.channels[at][0], self._model
        return model.broker_at.get(name, -1 if at < len(model.brokers) else -2)

    def _ever_linked(self, broker: int) -> int:
        model = self._model
        name, configuration = model.brokers[broker], model.configuration
        all_of_them = [configuration]
        for change in model.plans:
            all_of_them.append(change.target(all_of_them[-1], all_of_them[-1].epoch + 1))
        return sum({1 << model.broker_at[peer] for one in all_of_them for peer in one.neighbours.get(name, ())})

    def chosen(self, state: State, moves: list[Move]) -> list[Move]:
        """Return the moves of one broker if they can be tried alone, otherwise all."""
        if len(moves) == 1 or moves[-1][0] > ABORT:
            return moves  # A death prevents any reduction.
        model = self._model
        is_filled = tuple(map(bool, state[model.first_channel :]))
        numbers = state[model.first_client : model.first_channel]
        key = is_filled, state[CONTROL], numbers
        closed = self._closed.get(key)
        if closed is None:
            filled = sum(1 << at for at, one in enumerate(is_filled) if one)
            clients = [self._facts.get(number) or self._learn(number) for number in numbers]
            brokers = range(len(model.brokers))
            closed = [one for one in brokers if self._is_closed(filled, state[CONTROL], one, clients)]
            self._closed[key] = closed
        for broker in closed:
            own = [move for move in moves if move[0] == DELIVER and model.goals[move[1]] == broker]
            if own and self._are_private(state, own, [self._facts[number] for number in numbers]):
                return own
        return moves

    def _learn(self, number: int) -> ClientFacts:
        found = self._facts[number] = ClientFacts(self._model, self._model.clients.copy_of(number))
        return found

    # --- what else may come first ------------------------------------------------------------------------------------

    def _is_closed(self, filled: int, control: int, broker: int, clients: list[ClientFacts]) -> bool:
        own = 1 << broker
        awake = self._awake(filled, broker, clients)
        for at, source in self._incoming[broker]:
            if filled >> at & 1:
                continue
            if source >= 0:
                if awake >> source & 1 and self._peers[source] & own:
                    return False
            elif source == -1:
                for client in clients:
                    if client.homes & own and (client.has_steps or (client.moves and awake & client.homes)):
                        return False
        return not self._may_be_commanded(control, broker, awake)

    def _awake(self, filled: int, broker: int, clients: list[ClientFacts]) -> int:
        """Return the mask of brokers that may act before ``broker`` does."""
        awake = 0
        for at, goal in enumerate(self._model.goals):
            if filled >> at & 1:
                awake |= 1 << goal
        for client in clients:
            if client.has_steps:
                awake |= client.homes
        own = 1 << broker
        awake &= ~own
        frontier = awake
        while frontier:
            reached = 0
            for at, peers in enumerate(self._peers):
                if frontier >> at & 1:
                    reached |= peers
            for client in clients:
                if client.moves and client.homes & frontier:
                    reached |= client.homes
            frontier = reached & ~awake & ~own
            awake |= frontier
        return awake

    def _may_be_commanded(self, number: int, broker: int, awake: int) -> bool:
        """Return True if a command for ``broker`` may be sent before it acts."""
        known = self._waking.get(number)
        if known is None:
            known = self._waking[number] = self._learn_control(number)
        missing, may_abort, is_under_way = known
        if not is_under_way:
            return False
        return may_abort or (not missing >> broker & 1 and missing & awake == missing)

    def _learn_control(self, number: int) -> tuple[int, bool, bool]:
        """Return who has not answered, whether an abort may come, and whether a plan is under way."""
        control = self._model.controls.values[number]
        if isinstance(control, RivalControls):
            return 0, True, True  # One's commands do not wait for answers to the other: nothing is left out.
        under_way = control.under_way
        asked = () if under_way is None else control.asked
        missing = sum(1 << self._model.broker_at[name] for name in asked if not control.has_answered(name))
        may_abort = False
        if control.phase is CommandPhase.PREPARE and under_way is not None:
            may_abort = under_way.may_abort or (bool(under_way.moves) and not self._model.is_ring)
        return missing, may_abort, control.phase is not None

    # --- what others see ---------------------------------------------------------------------------------------------

    def _are_private(self, state: State, own: list[Move], clients: list[ClientFacts]) -> bool:
        may_abort = self._model.controls.values[state[CONTROL]].can_abort
        for move in own:
            reaction: Reaction = self._model.reaction_to(state, move[1])
            for effect in reaction.effects:
                if not self._is_private(effect, clients, may_abort=may_abort):
                    return False
        return True

    def _is_private(self, effect: Any, clients: list[ClientFacts], *, may_abort: bool) -> bool:
        if isinstance(effect, Answer):
            return not may_abort and effect.result.outcome is not Outcome.REFUSED
        is_ring = self._model.is_ring
        if isinstance(effect, Deliver):
            return not is_ring or not any(self._owner(name, clients).moves for name in effect.subscriptions)
        kind = type(effect).__name__
        if kind == "Cancelled":
            return is_ring or not any(client.publishes for client in clients)
        if kind == "Confirmed":
            if any(client.publishes for client in clients):
                return False
            owner = self._owner(effect.subscription, clients)
            return not is_ring or not (owner.has_steps or owner.moves)
        if kind == "AdvertiseConfirmed":
            owner = self._owner(effect.publisher, clients)
            return owner.only_publishes and not owner.moves
        return False

    def _owner(self, name: str, clients: list[ClientFacts]) -> ClientFacts:
        return clients[self._model.client_at[name.split("#")[0]]]
