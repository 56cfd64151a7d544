"""Subjects as filters: they match as NATS specifies, also in an index of many."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from regraft.producers.brokers.match_content import MatchIndex, covers, intersects, matches
from regraft.producers.nodes.connectors.subject_filters import SubjectError, content_of, filter_of

TOKENS = st.sampled_from(["a", "b", "ä", "1"])
SUBJECTS = st.lists(TOKENS, min_size=1, max_size=4).map(".".join)
WILDCARDS = st.tuples(
    st.lists(st.one_of(TOKENS, st.just("*")), min_size=0, max_size=4), st.sampled_from([[], [">"]])
).map(lambda parts: ".".join([*parts[0], *parts[1]]) or ">")


def plainly_matches(wanted: str, subject: str) -> bool:
    """Compare token by token, as the documentation of NATS describes it."""
    tokens, names = wanted.split("."), subject.split(".")
    for place, token in enumerate(tokens):
        if token == ">":
            return len(names) > place
        if place >= len(names) or token not in ("*", names[place]):
            return False
    return len(tokens) == len(names)


@given(WILDCARDS, SUBJECTS)
def test_filter_matches_what_the_subject_matches(wanted: str, subject: str) -> None:
    assert matches(filter_of(wanted), content_of(subject)) == plainly_matches(wanted, subject)


@given(st.lists(WILDCARDS, max_size=8), SUBJECTS)
def test_the_index_finds_all_matches(wanted: list[str], subject: str) -> None:
    index = MatchIndex()
    for number, one in enumerate(wanted):
        index.add(str(number), filter_of(one), "local")
    found = {wanted[int(key)] for key in index.keys_for(content_of(subject), "local")}
    assert found == {one for one in wanted if plainly_matches(one, subject)}


@given(WILDCARDS, WILDCARDS, SUBJECTS)
def test_relations_of_filters_hold_for_every_subject(first: str, second: str, subject: str) -> None:
    """No subject matches two filters that do not intersect, or only the narrower of two if one covers the other."""
    one, other, content = filter_of(first), filter_of(second), content_of(subject)
    if matches(one, content) and matches(other, content):
        assert intersects(one, other)
    if covers(one, other) and matches(other, content):
        assert matches(one, content)


@pytest.mark.parametrize("subject", ["", "a..b", ".a", "a.", "a b", "a.>.b", ".".join("a" * 65)])
def test_an_impossible_subject_is_refused(subject: str) -> None:
    with pytest.raises(SubjectError):
        filter_of(subject)
