"""MQTT topics as subjects of the overlay, whose tokens are joined by dots, and back. Pure.

``/`` becomes a dot; characters that a subject cannot hold are escaped with ``/``, which no level of a topic can
contain. Common cases are as in the NATS server's own MQTT: ``a/b`` is ``a.b``, ``.`` is ``//``.
"""

from __future__ import annotations

import re
from functools import lru_cache

from regraft.producers.nodes.connectors.groups_once import key_of
from regraft.schemas.wire_grammar import is_clean

MARK = "/"
TOPIC_BYTES_MAX = 65_535
TOPICS_KEPT_MAX = 2_000  # Clients keep publishing to the same few.
_ODD = re.compile(r"[.*>\s]")
_MARKED = re.compile(r"/(/|a|g|x[0-9a-f]+/)|/")
_FORBIDDEN = ("+", "#")  # Not allowed in a topic that is published.
_MARKS = {".": "//", "*": "/a", ">": "/g"}
_UNMARKED = {mark[1:]: character for character, mark in _MARKS.items()}
SHARE = "$share"


class TopicError(ValueError):
    """A topic, filter or subject without a counterpart; the message says which and why."""


@lru_cache(maxsize=TOPICS_KEPT_MAX)
def subject_of(topic: str) -> str:
    """Return the subject of a topic that is published."""
    return ".".join(_token(level) for level in topic.split("/"))


@lru_cache(maxsize=TOPICS_KEPT_MAX)
def topic_of(subject: str) -> str:
    """Return the topic of a subject; raise TopicError if it has none, as some subjects of NATS do."""
    topic = "/".join(_level(token) for token in subject.split("."))
    if any(each in topic for each in _FORBIDDEN) or not is_clean(topic):
        raise TopicError(f"{subject[:80]!r} contains +, # or a control character, which no topic may")
    if topic.startswith("$"):
        raise TopicError(f"{subject[:80]!r} would be one of the broker's own topics")
    if len(topic.encode()) > TOPIC_BYTES_MAX:
        raise TopicError(f"{subject[:80]!r}... is longer than the {TOPIC_BYTES_MAX} bytes of a topic")
    return topic


def subjects_of(wanted: str, groups_once: frozenset[str] = frozenset()) -> tuple[str, ...]:
    """Return the subjects, with wildcards, that together match what a filter matches; none for the broker's own topics.

    ``#`` also matches the level above it, which takes a second subject. A shared subscription wants what its filter
    does, for its group if that is one of ``groups_once``. Raises TopicError for an invalid filter.
    """
    if wanted.startswith(f"{SHARE}/"):
        group = wanted.split("/", 2)[1]
        if group in groups_once:
            subjects = subjects_of(f"{SHARE}/any/{wanted.partition('/')[2].partition('/')[2]}")
            return tuple(key_of(subject, group) for subject in subjects)
        wanted = wanted.split("/", 2)[2] if wanted.count("/") > 1 else ""
    elif wanted.startswith("$"):
        return ()
    levels = wanted.split("/")
    if not wanted or "#" in levels[:-1]:
        raise TopicError(f"{wanted!r} is not a filter: it is empty, or # is not its last level")
    if any(len(level) > 1 and ("+" in level or "#" in level) for level in levels):
        raise TopicError(f"{wanted!r} is not a filter: + and # stand for whole levels")
    tokens = ["*" if level == "+" else _token(level) for level in levels]
    if levels[-1] != "#":
        return (".".join(tokens),)
    above = tokens[:-1]
    if levels[-2:-1] == ["+"]:  # Any level, and what is below it: one subject says both.
        return (".".join([*above[:-1], ">"]),)
    return (".".join(above), ".".join([*above, ">"])) if above else (">",)


def _token(level: str) -> str:
    if not level:
        return MARK
    return _ODD.sub(lambda mark: _MARKS.get(mark[0], f"/x{ord(mark[0]):x}/"), level)


def _level(token: str) -> str:
    if token == MARK:
        return ""
    if MARK not in token:
        return token

    def unmark(marked: re.Match[str]) -> str:
        mark = marked[1]
        if mark is None:
            raise TopicError(f"{token!r} contains a /, which no level of an MQTT topic may contain")
        return _UNMARKED.get(mark) or chr(int(mark[1:-1], 16))

    try:
        return _MARKED.sub(unmark, token)
    except (ValueError, OverflowError) as error:
        raise TopicError(f"{token!r} is not a level of a topic ({error})") from error
