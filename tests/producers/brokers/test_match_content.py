"""Matching, intersection and covering over every content of a small world; the index compared with naive matching."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from regraft.producers.brokers.match_content import (
    Content,
    Filter,
    MatchIndex,
    Operator,
    Predicate,
    PredicateError,
    covers,
    intersects,
    matches,
)

ATTRIBUTES = ("x", "y")
NUMBERS = (0.0, 1.0, 2.0)
TEXTS = ("", "a", "ab", "b")
# Every class of numbers that predicates over NUMBERS distinguish, and texts on all sides of those over TEXTS.
WORLD_VALUES: tuple[float | str, ...] = (
    *(-1.0, 0.0, 0.5, 1.0, 1.5, 2.0, 3.0),
    *("", "\0", "a", "a\0", "aa", "ab", "ab\0", "abc", "ac", "b", "b\0", "ba", "c", "\0\0", "a\0\0", "b\0\0"),
)

values = st.one_of(st.sampled_from(NUMBERS), st.sampled_from(TEXTS))


@st.composite
def predicates(draw: st.DrawFn) -> Predicate:
    operator = draw(st.sampled_from(list(Operator)))
    attribute = draw(st.sampled_from(ATTRIBUTES))
    if operator is Operator.PRESENT:
        return Predicate(attribute, operator)
    return Predicate(attribute, operator, draw(st.sampled_from(TEXTS) if operator is Operator.PREFIX else values))


filters = st.lists(predicates(), max_size=4).map(tuple)
contents = st.dictionaries(st.sampled_from(ATTRIBUTES), st.sampled_from(WORLD_VALUES))


def every_content() -> list[Content]:
    choices: tuple[float | str | None, ...] = (None, *WORLD_VALUES)
    return [
        {name: value for name, value in zip(ATTRIBUTES, chosen, strict=True) if value is not None}
        for chosen in itertools.product(choices, repeat=len(ATTRIBUTES))
    ]


WORLD = every_content()


@pytest.mark.parametrize(
    ("operator", "value", "found", "expected"),
    [
        ("eq", 1.0, 1, True),
        ("eq", 1.0, "1.0", False),
        ("<", 2.0, 2.0, False),
        ("<=", 2.0, 2.0, True),
        (">", 2.0, 2.5, True),
        (">=", 2.0, 1.5, False),
        ("!=", 2.0, 1.5, True),
        ("!=", 2.0, "two", False),
        ("prefix", "AA", "AAPL", True),
        ("prefix", "AA", "A", False),
        ("present", None, "", True),
        ("<", "b", "abc", True),
    ],
)
def test_operators_compare_values_of_their_own_type_only(
    operator: str, value: float | str | None, found: float | str, expected: bool
) -> None:
    """A value of another type never matches."""
    assert matches((Predicate("x", Operator(operator), value),), {"x": found}) is expected


def test_an_absent_attribute_never_matches() -> None:
    """No operator, not even `!=`, matches an attribute that is absent."""
    assert not matches((Predicate("x", Operator.NE, 1.0),), {"y": 2.0})
    assert not matches((Predicate("x", Operator.PRESENT),), {})


@pytest.mark.parametrize(
    ("operator", "value"),
    [("eq", None), ("present", 1.0), ("prefix", 1.0), ("<", float("nan")), (">", float("inf"))],
)
def test_invalid_predicates_are_refused(operator: str, value: float | None) -> None:
    """They are refused when they are created."""
    with pytest.raises(PredicateError):
        Predicate("x", Operator(operator), value)


@given(filters, filters)
def test_intersection_is_exact(advertisement: Filter, subscription: Filter) -> None:
    """Two filters intersect exactly if some content of the world matches both."""
    expected = any(matches(advertisement, content) and matches(subscription, content) for content in WORLD)
    assert intersects(advertisement, subscription) is expected


@given(filters, filters)
def test_covering_is_exact(wide: Filter, narrow: Filter) -> None:
    """A filter covers another exactly if no content of the world matches only the other."""
    expected = all(matches(wide, content) for content in WORLD if matches(narrow, content))
    assert covers(wide, narrow) is expected


def test_an_unnamed_attribute_intersects() -> None:
    """An advertisement does not restrict attributes that it does not name."""
    advertisement = (Predicate("class", Operator.EQ, "STOCK"), Predicate("symbol", Operator.EQ, "A"))
    assert intersects(advertisement, (Predicate("price", Operator.LT, 3.0),))
    assert not intersects(advertisement, (Predicate("symbol", Operator.EQ, "B"),))


def test_a_prefix_at_the_last_code_point_is_covered_exactly() -> None:
    """A prefix that ends in the last code point has texts above it only if an earlier character can be raised."""
    last = chr(0x10FFFF)
    assert covers((Predicate("x", Operator.PREFIX, last),), (Predicate("x", Operator.GE, last),))
    assert not covers((Predicate("x", Operator.PREFIX, "a" + last),), (Predicate("x", Operator.GE, "a" + last),))


@given(st.lists(st.tuples(filters, st.sampled_from("ABC"), st.booleans()), max_size=12), contents)
def test_the_index_agrees_with_naive_matching(rows: list[tuple[Filter, str, bool]], content: Content) -> None:
    """The index names the same destinations and keys as matching one filter after the other."""
    index = MatchIndex()
    for number, (filter_, destination, _) in enumerate(rows):
        index.add(f"k{number}", filter_, destination)
    for number, (_, _, is_removed) in enumerate(rows):
        if is_removed:
            index.remove(f"k{number}")
    kept = {f"k{number}": row for number, row in enumerate(rows) if not row[2]}
    hits = {key: row[1] for key, row in kept.items() if matches(row[0], content)}
    assert len(index) == len(kept)
    assert index.destinations(content, None) == set(hits.values())
    assert index.destinations(content, "A") == set(hits.values()) - {"A"}
    for destination in "ABC":
        assert sorted(index.keys_for(content, destination)) == sorted(k for k, d in hits.items() if d == destination)


def test_an_emptied_index_is_empty() -> None:
    """Removed filters leave no entries, so churn does not grow the index."""
    index = MatchIndex()
    filter_ = (Predicate("x", Operator.EQ, 1.0), Predicate("y", Operator.LT, 2.0))
    index.add("k", filter_, "A")
    assert "k" in index
    assert index.destinations({"x": 1.0, "y": 0.0}) == {"A"}
    with pytest.raises(KeyError, match="remove it first"):
        index.add("k", filter_, "B")
    index.remove("k")
    assert "k" not in index
    assert index._buckets == {}
