"""A scenario: an overlay, clients with scripts, and plans, written in short and turned into a model.

A script is a text of steps: ``@b0`` connect to b0 (a user to the topic of the scenario, ``@b0:A,B`` to these), ``*``
publish, ``-`` end, ``=`` a user wants nothing, ``=A,B`` or ``=+`` (the topic of the scenario) it wants these. A step
may name what it comes after: ``*>plan1`` when one plan is over, ``@b0>p2`` when p has taken two steps. Steps before
``|`` are performed and settled before the search begins, client after client. Publishers are called p, q, r,
subscriptions of a tree s, t, users of a ring u, v, w, with or without a digit.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from regraft.overlay.overlay_configuration import OverlayConfiguration, link
from regraft.overlay.ring.chord_configuration import RingConfiguration
from regraft.overlay.tree.configuration import TreeConfiguration
from tests.scenarios.model.kept_account import Rules
from tests.scenarios.model.overlay_model import DELIVER, STEP, OverlayModel, State
from tests.scenarios.model.plain_controller import PlannedChange
from tests.scenarios.model.scripted_clients import (
    PublisherScript,
    ScriptedClient,
    Step,
    SubscriptionScript,
    UserScript,
)

BITS = 6


def tree(*links: str) -> TreeConfiguration:
    """Return the first configuration of a tree; links are written "b0-b1"."""
    pairs = links_of(*links)
    return TreeConfiguration.of(
        0, sorted({broker for pair in pairs for broker in pair}), [link(*pair) for pair in pairs]
    )


def links_of(*links: str) -> tuple[tuple[str, str], ...]:
    """Return links written "b0-b1" as pairs."""
    return tuple((pair.split("-")[0], pair.split("-")[1]) for pair in links)


def ring(**ids: int) -> RingConfiguration:
    """Return the first configuration of a ring."""
    return RingConfiguration.of(0, BITS, ids)


def topic_at(configuration: RingConfiguration, broker: str) -> str:
    """Return a topic whose rendezvous is this broker."""
    return next(topic for topic in "ABCDEFGHIJKLMNOPQRSTUVWXYZ" if configuration.rendezvous(topic) == broker)


@dataclass(frozen=True)
class Scenario:
    """``scripts`` by client; ``topic`` is that of publishers and subscribers that do not name one.

    ``is_repeating``: every command reaches its broker twice, at any times. ``rival``: the change of a second controller
    that does not know the first. ``mortals`` die, each at any time; no client is at home there.
    """

    name: str
    text: str
    configuration: OverlayConfiguration
    scripts: Mapping[str, str]
    plans: tuple[PlannedChange, ...] = ()
    topic: str = "A"
    is_large: bool = False
    is_repeating: bool = False
    rival: PlannedChange | None = None
    mortals: tuple[str, ...] = ()

    def model(self, rules: Rules | None = None) -> tuple[OverlayModel, State]:
        """Return the model and the state in which the search begins."""
        clients = tuple(self._client(name, script.replace("|", " ")) for name, script in self.scripts.items())
        model = OverlayModel(
            self.configuration, clients, self.plans, rules or Rules(),
            is_repeating=self.is_repeating, rival=self.rival, mortals=self.mortals,
        )  # fmt: skip
        state = model.first
        for at, script in enumerate(self.scripts.values()):
            before, bar, _ = script.partition("|")
            for _ in before.split() if bar else ():
                state = _settled(model, model.take(state, (STEP, at)))
        return model, model.begin_plans(state)

    def _client(self, name: str, script: str) -> ScriptedClient:
        steps = tuple(self._step(text) for text in script.split())
        if name[0] in "pqr":
            return PublisherScript(name, self.topic, steps)
        if name[0] in "st":
            return SubscriptionScript(name, self.topic, steps)
        return UserScript(name, steps)

    def _step(self, text: str) -> Step:
        text, _, behind = text.partition(">")
        after = (behind[:-1], int(behind[-1])) if behind else None
        assert after is None or after[0] in {"plan", *self.scripts}, f"{self.name}: nobody is called {after[0]}"
        kind = {"@": "connect", "*": "publish", "-": "disconnect", "=": "change"}[text[0]]
        home, _, topics = text[1:].partition(":") if kind == "connect" else ("", "", text[1:])
        named = tuple(topic for topic in topics.split(",") if topic)
        if named == ("+",) or (kind == "connect" and not named):
            named = (self.topic,)
        return Step(kind, home, named, after)


def _settled(model: OverlayModel, state: State) -> State:
    """Deliver everything that is under way, without any new step."""
    while moves := [move for move in model.moves(state) if move[0] == DELIVER]:
        state = model.take(state, moves[0])
    return state
