"""How the control messages that one step of a broker sends to one neighbour become one message. Pure."""

from __future__ import annotations

from regraft.producers.brokers.broker_messages import Bundle, ControlMessage, Effect, Notification, Send


def bundled(effects: list[Effect]) -> list[Effect]:
    """Return the effects with the control messages to each neighbour bundled, as far as their order allows.

    Notifications stay as they are, and nothing overtakes another message on its link.
    """
    sends = [effect for effect in effects if isinstance(effect, Send)]
    if len(sends) == len({effect.peer for effect in sends}):
        return effects
    found: list[Effect | tuple[str, list[ControlMessage]]] = []
    growing: dict[str, list[ControlMessage]] = {}
    for effect in effects:
        if not isinstance(effect, Send) or isinstance(effect.message, Bundle):
            found.append(effect)
        elif isinstance(effect.message, Notification):
            growing.pop(effect.peer, None)
            found.append(effect)
        elif effect.peer in growing:
            growing[effect.peer].append(effect.message)
        else:
            growing[effect.peer] = [effect.message]
            found.append((effect.peer, growing[effect.peer]))
    return [_as_one(*each) if isinstance(each, tuple) else each for each in found]


def _as_one(peer: str, messages: list[ControlMessage]) -> Send:
    return Send(peer, messages[0] if len(messages) == 1 else Bundle(tuple(messages)))
