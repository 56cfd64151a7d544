"""Which topics the overlay has handed over to an MQTT broker as retained: it carries their changes there, too.

So no broker shows forever what is no longer true elsewhere.

The file keeps them for the node's next incarnation, as the broker keeps their messages.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import structlog

from regraft.schemas.parse_text import parse_json
from regraft.schemas.status_file import replace_file
from regraft.schemas.wire_grammar import subject_error

log = structlog.get_logger(__name__)

RETAINED_MAX = 10_000  # Each is an interest of the node, which all others know.
TOO_MANY = "not_retained"


class RetainedTopics:
    """The topics of one broker, as subjects; ``on_interest(subject, wanted)`` is called when one is added or forgotten.

    Times are of the wall clock, in seconds, as they outlast the process.
    """

    def __init__(self, on_interest: Callable[[str, bool], None], file: Path | None, counts: Counter[str]) -> None:
        self._on_interest, self._file, self._counts = on_interest, file, counts
        self._until_s: dict[str, float | None] = {}  # When the broker forgets the message, None for never.
        self._is_changed = False

    def may_retain(self, subject: str) -> bool:
        """Return True if a message may be handed over as retained; else its changes could not be followed."""
        if subject in self._until_s or len(self._until_s) < RETAINED_MAX:
            return True
        self._counts[TOO_MANY] += 1
        if self._counts[TOO_MANY] == 1:
            log.warning("not_retained", subject=subject, reason=f"at most {RETAINED_MAX} topics are retained here")
        return False

    def note(self, subject: str, *, is_deleted: bool, expiry_s: int | None, now_s: float) -> None:
        """Note that a message was handed over as retained, or is deleted: an empty one is."""
        if is_deleted:
            self.forget(subject)
            return
        is_new, self._is_changed = subject not in self._until_s, True
        self._until_s[subject] = None if expiry_s is None else now_s + expiry_s
        if is_new:
            self._on_interest(subject, True)

    def forget(self, subject: str) -> None:
        """Note that the broker retains nothing for a subject any more."""
        if subject in self._until_s:
            del self._until_s[subject]
            self._is_changed = True
            self._on_interest(subject, False)

    def expire(self, now_s: float) -> None:
        """Forget topics whose messages have expired."""
        for subject in [each for each, until_s in self._until_s.items() if until_s is not None and until_s < now_s]:
            self.forget(subject)

    def restore(self) -> None:
        """Restore the topics of the node's former incarnation."""
        if self._file is None or not self._file.exists():
            return
        try:
            stored = dict(parse_json(self._file.read_text(encoding="utf-8")))
            kept = {subject: None if until_s is None else float(until_s) for subject, until_s in stored.items()}
        except (OSError, ValueError, TypeError) as error:
            log.warning("retained_not_restored", file=str(self._file), reason=str(error))
            return
        for subject, until_s in list(kept.items())[:RETAINED_MAX]:
            if subject_error(subject) == "":
                self._until_s[subject] = until_s
                self._on_interest(subject, True)

    def store(self) -> None:
        """Write the topics to the file, if they have changed."""
        if self._file is not None and self._is_changed:
            self._is_changed = False
            replace_file(self._file, json.dumps(self._until_s))
