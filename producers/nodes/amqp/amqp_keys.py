"""AMQP routing keys as subjects of the overlay, and binding keys as subjects with wildcards. Pure.

``*`` is one word in both; ``#`` is zero or more words anywhere in a binding key, ``>`` one or more tokens at the end of
a subject. A key that is not a valid subject does not cross.
"""

from __future__ import annotations

from collections.abc import Sequence

from regraft.schemas.wire_grammar import subject_error

KEY_BYTES_MAX = 255
ANY, OPEN = "#", ">"


class KeyFormError(ValueError):
    """A key or subject without a counterpart; the message says which and why."""


def subject_of(key: str) -> str:
    """Return the subject of a routing key; raise KeyFormError if the key is not a valid subject."""
    if error := subject_error(key):
        raise KeyFormError(error)
    return key


def key_of(subject: str) -> str:
    """Return the routing key of a subject; raise KeyFormError if it is too long."""
    if len(subject.encode()) > KEY_BYTES_MAX:
        raise KeyFormError(f"{subject[:80]!r}... is longer than the {KEY_BYTES_MAX} bytes of a routing key")
    return subject


def binding_key_of(subject: str) -> str:
    """Return a binding key that matches all that a subject with wildcards does; the widest if that is too long."""
    key = f"{subject[: -len(OPEN)]}{ANY}" if subject.split(".")[-1] == OPEN else subject
    return key if len(key.encode()) <= KEY_BYTES_MAX else ANY


def subjects_of(binding_key: str) -> tuple[str, ...]:
    """Return subjects that together match all that a binding key matches, and more if # is not at its end.

    Raises KeyFormError if the key is empty, or has an empty word, a space or the word >.
    """
    words = binding_key.split(".") if binding_key else []
    if OPEN in words:
        raise KeyFormError(f"{binding_key!r} has the word >, which is a wildcard in the overlay")
    _check(binding_key, [word for word in words if word != ANY])
    if ANY not in words:
        if not words:
            raise KeyFormError("an empty binding key has no subject")
        return (".".join(words),)
    place = words.index(ANY)
    before, is_at_end = words[:place], all(word == ANY for word in words[place:])
    wanted = ".".join([*before, OPEN])
    return (".".join(before), wanted) if before and is_at_end else (wanted,)


def _check(key: str, words: Sequence[str]) -> None:
    if "" in words or any(character.isspace() for character in key):
        raise KeyFormError(f"{key!r} has an empty word or a space: words are separated by single dots")
