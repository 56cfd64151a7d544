"""The contents of a channel as small integers: messages in order, each with a barrier before which it must wait.

In: messages by number. Out: contents by number, and the content after a message is added or taken. Which channels exist
and who takes from them belongs to :mod:`tests.scenarios.model.overlay_model`.
"""

from __future__ import annotations

from tests.scenarios.model.forget_times import Ranks
from tests.scenarios.model.frozen_states import Numbers

BARRIERS = 64  # More than a queue holds in any scenario.


class Contents:
    """The contents of channels by number: messages with barriers, as message * BARRIERS + barrier; 0 is empty."""

    def __init__(self, messages: Ranks) -> None:
        self._messages = messages
        self._numbers: Numbers[tuple[int, ...]] = Numbers()
        self._pushed: dict[tuple[int, int], int] = {}
        self._lowered: dict[int, int] = {0: 0}
        self._ranked: dict[tuple[int, int], int] = {}
        self.heads: list[int] = []  # -1: empty, or the first message is behind a barrier.
        self.tails: list[int] = []
        self.lengths: list[int] = []
        self.held: list[int] = []  # The mask of the notifications among them.
        self._of(())

    def _of(self, content: tuple[int, ...]) -> int:
        number = self._numbers.of(content)
        if number == len(self.heads):
            is_ready = bool(content) and content[0] % BARRIERS == 0
            self.heads.append(content[0] // BARRIERS if is_ready else -1)
            self.lengths.append(len(content))
            held = 0
            for one in content:
                held |= self._messages.held(one // BARRIERS)
            self.held.append(held)
            self.tails.append(0)
            self.tails[number] = self._of(content[1:])
        return number

    def pushed(self, number: int, message: int, barrier: int) -> int:
        """Return the content with one more message."""
        key = number, message * BARRIERS + barrier
        found = self._pushed.get(key)
        if found is None:
            found = self._pushed[key] = self._of((*self._numbers.values[number], key[1]))
        return found

    def lowered(self, number: int) -> int:
        """Return the content after the broker has handled one request of a client."""
        found = self._lowered.get(number)
        if found is None:
            content = self._numbers.values[number]
            lower = tuple(one - 1 if one % BARRIERS else one for one in content)
            found = self._lowered[number] = self._of(lower)
        return found

    def ranked(self, number: int, mask: int) -> int:
        """Return the content with only the notifications of the mask counted in times."""
        if not number:
            return 0
        found = self._ranked.get((number, mask))
        if found is None:
            content = self._numbers.values[number]
            made = tuple(self._messages.of(one // BARRIERS, mask) * BARRIERS + one % BARRIERS for one in content)
            found = self._ranked[number, mask] = self._of(made)
        return found
