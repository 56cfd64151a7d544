"""The scenarios."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from overlay.chord_configuration import AnyConfiguration, ChordConfiguration
from overlay.configuration import Configuration, link
from tests.scenarios.model.overlay_model import DELIVER, STEP, OverlayModel, State
from tests.scenarios.model.plain_controller import PlannedChange, plan
from tests.scenarios.model.scripted_clients import (
    PublisherScript,
    ScriptedClient,
    Step,
    SubscriptionScript,
    UserScript,
    change,
    connect,
    disconnect,
    publish,
)

BITS = 6


@dataclass(frozen=True)
class Scenario:
    """``before``: how many steps each client has taken, one client after the other, before the search begins."""

    name: str
    text: str
    configuration: AnyConfiguration
    clients: Callable[[], tuple[ScriptedClient, ...]]
    plans: tuple[PlannedChange, ...]
    before: tuple[tuple[str, int], ...] = ()
    is_large: bool = False

    def model(self) -> tuple[OverlayModel, State]:
        """Return the model and the state in which the search begins."""
        clients = self.clients()
        model = OverlayModel(self.configuration, clients, self.plans)
        state = model.first
        for name, count in self.before:
            for _ in range(count):
                state = model.take(state, (STEP, model.client_at[name]))
                state = settle(model, state)
        return model, model.begin_plans(state)


def settle(model: OverlayModel, state: State) -> State:
    """Deliver all that is under way, without any new step."""
    while moves := [move for move in model.moves(state) if move[0] == DELIVER]:
        state = model.take(state, moves[0])
    return state


def tree(*links: tuple[str, str]) -> Configuration:
    """Return the first configuration of a tree."""
    brokers = sorted({broker for pair in links for broker in pair})
    return Configuration.of(0, brokers, [link(a, b) for a, b in links])


def ring(**ids: int) -> ChordConfiguration:
    """Return the first configuration of a ring."""
    return ChordConfiguration.of(0, BITS, ids)


def topic_at(configuration: ChordConfiguration, broker: str) -> str:
    """Return a topic whose rendezvous is this broker."""
    return next(topic for topic in "ABCDEFGHIJKLMNOPQRSTUVWXYZ" if configuration.rendezvous(topic) == broker)


def publisher(name: str, *script: Step, topic: str = "A") -> PublisherScript:
    """Return a publisher."""
    return PublisherScript(name, topic, script)


def subscription(name: str, *script: Step) -> SubscriptionScript:
    """Return a subscription on a tree."""
    return SubscriptionScript(name, "A", script)


def user(name: str, *script: Step) -> UserScript:
    """Return a user of a ring."""
    return UserScript(name, script)


TWO = tree(("b0", "b1"))
LINE = tree(("b0", "b1"), ("b1", "b2"))
BENT = (("b0", "b2"), ("b1", "b2"))
PAIR = ring(b0=3, b1=40)
TURNED = {"b0": 40, "b1": 3}
AT_1 = topic_at(PAIR, "b1")
TRIO = ring(b0=3, b1=20, b2=40)
AT_2 = topic_at(TRIO, "b2")
OVER = ("plan", 1)

TREES = (
    Scenario(
        "tree_early_end",
        "a publisher ends before it is confirmed, then a plan comes",
        TWO,
        lambda: (publisher("p", connect("b0"), disconnect()),),
        (plan(),),
    ),
    Scenario(
        "tree_reconnect",
        "a publisher ends and comes again elsewhere under its name",
        TWO,
        lambda: (
            publisher("p", connect("b0"), publish(), disconnect(), connect("b1"), publish()),
            subscription("s", connect("b1")),
        ),
        (),
        (("s", 1), ("p", 1)),
    ),
    Scenario(
        "tree_phantom_forward",
        "a publisher that is to move ends meanwhile; a later one comes",
        TWO,
        lambda: (
            publisher("p1", connect("b0")),
            publisher("p2", connect("b1"), disconnect()),
            publisher("p3", connect("b0", after=OVER), publish()),
            subscription("s", connect("b1")),
        ),
        (plan(moves=(("p1", "b0", "b1"), ("p2", "b1", "b0"))),),
        (("p1", 1), ("p2", 1), ("s", 1)),
    ),
    Scenario(
        "tree_move",
        "a publisher moves while it publishes, a subscription ends",
        TWO,
        lambda: (publisher("p", connect("b0"), publish(), publish()), subscription("s", connect("b1"), disconnect())),
        (plan(moves=(("p", "b0", "b1"),)),),
        (("p", 1), ("s", 1)),
    ),
    Scenario(
        "tree_move_subscribe",
        "a publisher moves while somebody subscribes",
        TWO,
        lambda: (publisher("p", connect("b0"), publish(), publish()), subscription("s", connect("b1"))),
        (plan(moves=(("p", "b0", "b1"),)),),
        (("p", 1),),
    ),
    Scenario(
        "tree_move_end",
        "a publisher ends while it moves",
        TWO,
        lambda: (
            publisher("p", connect("b0"), publish(), disconnect()),
            subscription("s", connect("b1"), disconnect()),
        ),
        (plan(moves=(("p", "b0", "b1"),)),),
        (("p", 1), ("s", 1)),
    ),
    Scenario(
        "tree_swap",
        "links are swapped while a publisher publishes",
        LINE,
        lambda: (publisher("p", connect("b0"), publish(), publish()), subscription("s", connect("b1"))),
        (plan(links=BENT),),
        (("p", 1), ("s", 1)),
    ),
    Scenario(
        "tree_swap_cancel",
        "links are swapped while a subscription ends",
        LINE,
        lambda: (publisher("p", connect("b0"), publish()), subscription("s", connect("b1"), disconnect())),
        (plan(links=BENT),),
        (("p", 1), ("s", 1)),
    ),
    Scenario(
        "tree_swap_subscribe",
        "links are swapped while somebody subscribes",
        LINE,
        lambda: (publisher("p", connect("b0"), publish()), subscription("s", connect("b1"))),
        (plan(links=BENT),),
        (("p", 1),),
    ),
    Scenario(
        "tree_swap_advertise",
        "links are swapped while a publisher comes",
        LINE,
        lambda: (publisher("p", connect("b0"), publish()), subscription("s", connect("b1"))),
        (plan(links=BENT),),
        (("s", 1),),
    ),
    Scenario(
        "tree_swap_abort",
        "links are swapped, perhaps called off, and swapped again",
        LINE,
        lambda: (publisher("p", connect("b0"), publish()), subscription("s", connect("b1"))),
        (plan(links=BENT, may_abort=True), plan(links=BENT)),
        (("p", 1), ("s", 1)),
    ),
    Scenario(
        "tree_swap_end",
        "links are swapped while a publisher and a subscription end",
        LINE,
        lambda: (publisher("p", connect("b0"), disconnect()), subscription("s", connect("b1"), disconnect())),
        (plan(links=BENT),),
        (("p", 1), ("s", 1)),
    ),
    Scenario(
        "tree_leak",
        "links are swapped, a publisher ends, another stays",
        LINE,
        lambda: (
            publisher("p", connect("b0"), disconnect()),
            publisher("q", connect("b2")),
            subscription("s", connect("b1")),
        ),
        (plan(links=BENT),),
        (("p", 1), ("q", 1), ("s", 1)),
    ),
)
RINGS = (
    Scenario(
        "ring_rejoin",
        "while a prepare is slow, a user ends a topic and another asks for it",
        PAIR,
        lambda: (
            publisher("p", connect("b1"), publish(after=OVER), topic=AT_1),
            user("u", connect("b0", AT_1), change()),
            user("v", connect("b0", AT_1)),
        ),
        (plan(),),
        (("p", 1), ("u", 1)),
    ),
    Scenario(
        "ring_retire_held",
        "a user comes while the old epoch is drained",
        PAIR,
        lambda: (
            publisher("p", connect("b0"), publish(), topic=AT_1),
            user("w", connect("b1", AT_1)),
            user("u", connect("b0", AT_1)),
        ),
        (plan(ids=TURNED),),
        (("p", 1), ("w", 1)),
    ),
    Scenario(
        "ring_reconnect",
        "a publisher ends and comes again elsewhere under its name",
        TRIO,
        lambda: (
            publisher("p", connect("b0"), disconnect(), connect("b1"), publish(), topic=AT_2),
            user("u", connect("b0", AT_2), disconnect()),
        ),
        (),
        (("p", 1), ("u", 1)),
    ),
    Scenario(
        "ring_move",
        "a user moves while a publisher publishes",
        PAIR,
        lambda: (
            publisher("p", connect("b1"), publish(), publish(), topic=AT_1),
            user("u", connect("b0", AT_1)),
        ),
        (plan(moves=(("u", "b0", "b1"),)),),
        (("p", 1), ("u", 1)),
    ),
    Scenario(
        "ring_move_leave",
        "a user leaves while it moves",
        PAIR,
        lambda: (
            publisher("p", connect("b0"), publish(), topic=AT_1),
            user("u", connect("b0", AT_1), disconnect()),
        ),
        (plan(moves=(("u", "b0", "b1"),)),),
        (("p", 1), ("u", 1)),
    ),
    Scenario(
        "ring_move_rejoin",
        "a user leaves while it is to move, and comes again",
        PAIR,
        lambda: (
            publisher("p", connect("b1"), publish(), topic=AT_1),
            user("u", connect("b0", AT_1), disconnect(), connect("b0", AT_1)),
        ),
        (plan(moves=(("u", "b0", "b1"),)),),
        (("p", 1), ("u", 1)),
    ),
    Scenario(
        "ring_turn",
        "IDs are exchanged while a publisher publishes",
        PAIR,
        lambda: (
            publisher("p", connect("b0"), publish(), publish(), topic=AT_1),
            user("u", connect("b0", AT_1)),
        ),
        (plan(ids=TURNED),),
        (("p", 1), ("u", 1)),
    ),
    Scenario(
        "ring_turn_subscribe",
        "IDs are exchanged while a user comes and leaves",
        PAIR,
        lambda: (
            publisher("p", connect("b0"), publish(), topic=AT_1),
            user("u", connect("b0", AT_1), disconnect()),
        ),
        (plan(ids=TURNED),),
        (("p", 1),),
    ),
    Scenario(
        "ring_turn_end",
        "IDs are exchanged while a publisher ends",
        PAIR,
        lambda: (
            publisher("p", connect("b0"), publish(), disconnect(), topic=AT_1),
            user("u", connect("b1", AT_1)),
        ),
        (plan(ids=TURNED),),
        (("p", 1), ("u", 1)),
    ),
    Scenario(
        "ring_turn_advertise",
        "IDs are exchanged while a publisher comes",
        PAIR,
        lambda: (
            publisher("p", connect("b0"), publish(), topic=AT_1),
            user("u", connect("b0", AT_1)),
        ),
        (plan(ids=TURNED),),
        (("u", 1),),
    ),
    Scenario(
        "ring_turn_abort",
        "IDs are exchanged, perhaps called off, and exchanged again, with a user that moves",
        PAIR,
        lambda: (
            publisher("p", connect("b0"), publish(), topic=AT_1),
            user("u", connect("b0", AT_1)),
        ),
        (plan(ids=TURNED, moves=(("u", "b0", "b1"),), may_abort=True), plan(ids=TURNED)),
        (("p", 1), ("u", 1)),
    ),
)
SCENARIOS = TREES + RINGS
