"""The line between a node and the agents at its broker: notes, and messages for one subscription alone.

In: what a connector receives, what the node has to say. Out: messages for the broker, notes for the node. Both travel
through the client's own connection, behind everything that the node has handed over before.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from regraft.producers.nodes.connectors.connector import LocalMessage
from regraft.schemas.agent_names import ALL_AGENTS, ORDERS, PRIVATE, client_of, number_in
from regraft.schemas.agent_note import AgentNote, NoteKind, note_bytes, note_of

ASKED = f"{ORDERS}>"


class AgentLine:
    """``send`` hands a message to the broker, without any check of its subject; ``overlay`` is in messages' stamps."""

    def __init__(self, send: Callable[[LocalMessage], None], overlay: str) -> None:
        self.overlay = overlay
        self.on_note: Callable[[str, AgentNote], None] = lambda _client, _note: None
        self.on_beside: Callable[[AgentNote], None] = lambda _note: None
        self.on_open: Callable[[], None] = lambda: None
        self._send = send

    def write(self, subscription: str, note: AgentNote) -> None:
        """Send a note to the client of a subscription.

        It comes as messages for one subscription alone do: where an agent may not read these, no move is ever ready.
        """
        self._send(LocalMessage(_place_of(subscription), note_bytes(note)))

    def receive(self, message: LocalMessage) -> bool:
        """Return True if a message was an agent's; pass on the note that it holds, if it holds one."""
        if not message.subject.startswith(ORDERS):
            return False
        note, client = note_of(message.payload), message.subject.removeprefix(ORDERS)
        if note is not None and note.kind is not NoteKind.BESIDE:
            self.on_note(client, note)
        elif note is not None and client_of(note.subscription) == client:
            self.on_beside(note)
        return True

    def ask_all(self) -> None:
        """Ask all agents which subscriptions here are theirs."""
        self._send(LocalMessage(ALL_AGENTS, note_bytes(AgentNote(NoteKind.WHO))))

    @staticmethod
    def private(subscription: str, message: LocalMessage) -> LocalMessage:
        """Return a message as it is handed to one subscription alone."""
        return replace(message, subject=f"{_place_of(subscription)}.{message.subject}")


def _place_of(subscription: str) -> str:
    return f"{PRIVATE}{client_of(subscription)}.{number_in(subscription)}"
