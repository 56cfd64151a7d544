"""A counterexample for people: the moves that lead to a fault, numbered, with the effects on brokers and clients.

In: a model, the state in which the search began, and moves. Out: lines of text. One line is one move, followed by its
effects.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

from regraft.producers.brokers.broker_messages import Answer, Deliver, Notification
from regraft.producers.brokers.match_content import Predicate
from regraft.schemas.command import Command
from tests.scenarios.model.kept_account import Violation
from tests.scenarios.model.mortal_brokers import DECLARE, DIE, NOTICE
from tests.scenarios.model.overlay_model import CLIENTS, DELIVER, STEP, Move, OverlayModel, State


def trace_lines(model: OverlayModel, state: State, moves: Sequence[Move], fault: str) -> list[str]:
    """Return one line for each move and one for the fault."""
    lines = []
    for number, move in enumerate(moves, 1):
        lines.append(f"{number:4d}. {_line_of(model, state, move)}")
        try:
            state = model.take(state, move)
        except Violation:
            break
    return [*lines, f"  ==> {fault}"]


def _line_of(model: OverlayModel, state: State, move: Move) -> str:
    if move[0] == STEP:
        client = model.clients.copy_of(state[model.first_client + move[1]])
        step = client.left[0]
        return f"client {client.name}: {' '.join([step.kind, *([step.home] if step.home else []), *step.topics])}"
    if move[0] == DIE:
        lost = ", and what it had sent is lost" if move[1] % 2 else ""
        return f"{model.brokers[move[1] // 2]} dies{lost}"
    if move[0] == NOTICE:
        return "{1} notices that {0} is dead".format(*model.channels[move[1]])
    if move[0] == DECLARE:
        return f"controller: knows that {model.brokers[move[1]]} is dead"
    if move[0] != DELIVER:
        return "controller: calls the plan off"
    source, broker = model.channels[move[1]]
    message = model.messages.values[model.contents.heads[state[model.first_channel + move[1]]]]
    reaction = model.reaction_to(state, move[1])
    done = [_effect_text(effect) for effect in reaction.effects]
    done += [f"{model.channels[at][1]} <- {message_text(model.messages.values[sent])}" for at, sent in reaction.pushes]
    origin = {CLIENTS: "its client"}.get(source, source)
    text = f"{broker} takes from {origin}: {message_text(message)}"
    return text + (f"\n        => {'; '.join(done)}" if done else "")


def _effect_text(effect: Any) -> str:
    if isinstance(effect, Answer):
        reason = f" ({effect.result.reason})" if effect.result.reason else ""
        return f"answers {effect.result.outcome}{reason}"
    if isinstance(effect, Deliver):
        return f"HANDS OVER {message_text(effect.notification)} to {', '.join(effect.subscriptions)}"
    return message_text(effect)


def message_text(message: Any) -> str:
    """Return a message in short: its type and what distinguishes it from others."""
    if isinstance(message, Command):
        return f"{message.phase.upper()} {message.plan}"
    if isinstance(message, Notification):
        down = ", from the rendezvous" if message.from_rendezvous else ""
        epoch = "" if message.epoch < 0 else f", epoch {message.epoch}"
        return f"notification {message.publisher}/{message.sequence}{epoch}{down}"
    if not dataclasses.is_dataclass(message):
        return repr(message)
    fields = [(field.name, getattr(message, field.name)) for field in dataclasses.fields(message)]
    shown = [f"{name}={_value(value)}" for name, value in fields if not _is_filter(value)]
    return f"{type(message).__name__}({', '.join(shown)})"


def _is_filter(value: Any) -> bool:
    return isinstance(value, tuple) and bool(value) and isinstance(value[0], Predicate)


def _value(value: Any) -> str:
    if isinstance(value, tuple):
        return f"[{', '.join(message_text(one) for one in value)}]"
    return str(value)
