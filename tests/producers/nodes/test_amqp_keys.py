"""Binding keys as subjects: a property test against a plain matcher of AMQP."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from regraft.producers.brokers.match_content import MatchIndex
from regraft.producers.nodes.amqp.amqp_keys import KEY_BYTES_MAX, KeyFormError, key_of, subject_of, subjects_of
from regraft.producers.nodes.connectors.subject_filters import content_of, filter_of

WORDS = st.sampled_from(["a", "b", "ä/$"])
KEYS = st.lists(WORDS, min_size=1, max_size=4)
BINDING_KEYS = st.lists(st.one_of(WORDS, st.sampled_from(["*", "#"])), min_size=1, max_size=4)


def matches(binding: list[str], words: list[str]) -> bool:
    """Match as AMQP specifies: * is one word, # any number of words."""
    if not binding:
        return not words
    if binding[0] == "#":
        return matches(binding[1:], words) or (bool(words) and matches(binding, words[1:]))
    return bool(words) and binding[0] in ("*", words[0]) and matches(binding[1:], words[1:])


@given(BINDING_KEYS, KEYS)
def test_the_overlay_carries_everything_that_a_binding_matches(binding: list[str], words: list[str]) -> None:
    """A bound queue misses nothing; if # is only at the end, or absent, nothing more is carried."""
    index = MatchIndex()
    for subject in subjects_of(".".join(binding)):
        index.add(subject, filter_of(subject), "there")
    is_carried = bool(index.destinations(content_of(subject_of(".".join(words)))))
    is_matched = matches(binding, words)
    assert is_carried or not is_matched
    if "#" not in binding[:-1]:
        assert is_carried == is_matched


@pytest.mark.parametrize("key", ["", "a..b", "a b", "a.*", ">"])
def test_a_key_that_is_no_subject_is_refused(key: str) -> None:
    """The message names what a subject cannot contain."""
    with pytest.raises(KeyFormError):
        subject_of(key)


@pytest.mark.parametrize("key", ["", "a..#", "a.>.b", "a\tb"])
def test_a_binding_key_that_is_no_subject_is_refused(key: str) -> None:
    """So is one that no subject with wildcards can express."""
    with pytest.raises(KeyFormError):
        subjects_of(key)


def test_an_overlong_subject_is_no_key() -> None:
    """AMQP limits the length of keys; any other subject is its own key."""
    assert key_of("a" * KEY_BYTES_MAX) == "a" * KEY_BYTES_MAX
    with pytest.raises(KeyFormError, match="255 bytes"):
        key_of("ä" * 128)
