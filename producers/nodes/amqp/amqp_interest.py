"""What clients of a RabbitMQ broker want, as subjects: the bindings of one topic exchange. Pure.

A queue wants what it is bound to, whether or not anybody consumes from it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import structlog

from regraft.producers.nodes.amqp.amqp_keys import KeyFormError, subjects_of
from regraft.producers.nodes.connectors.groups_once import key_of
from regraft.producers.nodes.connectors.wanted_subjects import WantedSubjects

log = structlog.get_logger(__name__)

BINDINGS_MAX = 100_000
BINDINGS_OF_QUEUE_MAX = 10_000  # So that one queue does not shut out the others.
TOO_MANY = "too_many_bindings"


@dataclass(frozen=True, slots=True, order=True)
class Binding:
    """A queue or another exchange that receives what the exchange routes by ``key``.

    Arguments are left out: topic exchanges ignore them.
    """

    kind: str
    name: str
    key: str


def binding_in(headers: Mapping[str, Any], exchange: str, vhost: str) -> Binding | None:
    """Return the binding of an exchange that a broker's event is about, None if it is about something else."""
    is_ours = (headers.get("source_name"), headers.get("vhost")) == (exchange, vhost)
    parts = [headers.get(name) for name in ("destination_kind", "destination_name", "routing_key")]
    return Binding(*(str(part) for part in parts)) if is_ours and None not in parts else None


class AmqpInterest:
    """All that is wanted at one exchange. The node's queues, named ``own`` or ``own.*``, want nothing."""

    def __init__(self, on_interest: Callable[[str, bool], None], own: str, counts: Counter[str]) -> None:
        self.counts, self.groups_once = counts, frozenset[str]()
        self._own = own
        self._bindings: set[Binding] = set()
        self._of_queue: Counter[str] = Counter()
        self._waiting: dict[Binding, None] = {}  # Those that found no room, in order of arrival.
        self._wanted = WantedSubjects(on_interest)

    def want_always(self, keys: Iterable[str]) -> None:
        """Treat these binding keys as always wanted; raise KeyFormError for an invalid one."""
        for key in keys:
            self._wanted.add(subjects_of(key))

    def begin(self, binding: Binding) -> None:
        """Note a binding; a known one changes nothing."""
        if binding in self._bindings or self._is_own(binding):
            return
        try:
            subjects = self._subjects_of(binding)
        except KeyFormError as error:
            self.counts["bad_filter"] += 1
            log.warning("interest_refused", queue=binding.name, reason=str(error))
            return
        if not self._has_room(binding):
            self.counts[TOO_MANY] += 1
            if len(self._waiting) < BINDINGS_MAX:
                self._waiting[binding] = None
            return
        self._bindings.add(binding)
        self._of_queue[binding.name] += 1
        self._wanted.add(subjects)

    def _has_room(self, binding: Binding) -> bool:
        return len(self._bindings) < BINDINGS_MAX and self._of_queue[binding.name] < BINDINGS_OF_QUEUE_MAX

    def end(self, binding: Binding) -> None:
        """Note that a binding was removed; an unknown one changes nothing."""
        self._waiting.pop(binding, None)
        if binding not in self._bindings:
            return
        self._bindings.discard(binding)
        self._of_queue[binding.name] -= 1
        if not self._of_queue[binding.name]:
            del self._of_queue[binding.name]
        self._wanted.remove(self._subjects_of(binding))
        following = next((one for one in self._waiting if self._has_room(one)), None) if self._waiting else None
        if following is not None:
            del self._waiting[following]
            self.begin(following)

    def replace(self, bindings: Iterable[Binding]) -> None:
        """Replace all known bindings, adding before removing, so that a subject in both stays wanted throughout."""
        there = set(bindings)
        gone = self._bindings - there
        self._waiting.clear()
        for binding in sorted(there):
            self.begin(binding)
        for binding in sorted(gone):
            self.end(binding)

    def _subjects_of(self, binding: Binding) -> tuple[str, ...]:
        """Return what a binding wants; raise KeyFormError if its key is invalid."""
        subjects = subjects_of(binding.key)
        is_group = binding.kind == "queue" and binding.name in self.groups_once
        return tuple(key_of(subject, binding.name) for subject in subjects) if is_group else subjects

    def _is_own(self, binding: Binding) -> bool:
        return binding.kind == "queue" and (binding.name == self._own or binding.name.startswith(f"{self._own}."))
