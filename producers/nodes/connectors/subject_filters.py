"""Subjects with wildcards as filters over content, so that the overlay routes by them.

Tokens are attributes ``t1``, ``t2``, ..., their number is ``n``: ``*`` matches any token, ``>`` one or more at the end.
"""

from __future__ import annotations

from regraft.producers.brokers.match_content import Content, Filter, Operator, Predicate
from regraft.schemas.wire_grammar import ANY, REST, TOKENS_MAX, filter_error


class SubjectError(ValueError):
    """An invalid subject; the message says which and why."""


def filter_of(subject: str) -> Filter:
    """Return the filter that matches what a subscription to the subject does; raise SubjectError if it is invalid."""
    if error := filter_error(subject):
        raise SubjectError(error)
    tokens = subject.split(".")
    is_open = tokens[-1] == REST
    count = Predicate("n", Operator.GE if is_open else Operator.EQ, float(len(tokens)))
    named = tokens[:-1] if is_open else tokens
    return (
        *(
            Predicate(f"t{place}", Operator.EQ, token)
            for place, token in enumerate(named, start=1)
            if token != ANY
        ),
        count,
    )  # fmt: skip


def subject_of_filter(filter_: Filter) -> str:
    """Return the subject whose filter this is; one that matches everything if it is none of a subject."""
    named = {predicate.attribute: predicate for predicate in filter_}
    count = named.pop("n", None)
    length = count.value if count is not None else None
    if (
        count is None
        or not isinstance(length, float)
        or not 1 <= length <= TOKENS_MAX
        or len(named) != len(filter_) - 1
    ):
        return REST
    is_open = count.operator is Operator.GE
    tokens = [ANY] * (int(length) - is_open)
    for attribute, predicate in named.items():
        place = attribute.removeprefix("t")
        if not (place.isascii() and place.isdigit() and 1 <= int(place) <= len(tokens)):
            return REST
        if predicate.operator is not Operator.EQ or not isinstance(predicate.value, str):
            return REST
        tokens[int(place) - 1] = predicate.value
    subject = ".".join([*tokens, REST] if is_open else tokens)
    return REST if filter_error(subject) else subject


def content_of(subject: str) -> Content:
    """Return the content of a message with this subject."""
    tokens = subject.split(".")
    content: dict[str, float | str] = {"n": float(len(tokens))}
    for place, token in enumerate(tokens, start=1):
        content[f"t{place}"] = token
    return content
