"""Topics and filters of MQTT as subjects: they match as MQTT specifies, and convert back unchanged."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from regraft.producers.brokers.match_content import matches
from regraft.producers.nodes.connectors.subject_filters import content_of, filter_of
from regraft.producers.nodes.mqtt.mqtt_headers import MqttFields, block_of, fields_of
from regraft.producers.nodes.mqtt.mqtt_topics import TopicError, subject_of, subjects_of, topic_of
from regraft.schemas.wire_grammar import is_clean

LEVELS = st.sampled_from(["", "a", "b", " ", "a.b", "*", ">", "ä\u00a0", "x2e"])
TOPICS = st.lists(LEVELS, min_size=1, max_size=4).map("/".join).filter(bool)
FILTERS = st.tuples(
    st.lists(st.one_of(LEVELS, st.just("+")), min_size=0, max_size=4), st.sampled_from([[], ["#"]])
).map(lambda parts: "/".join([*parts[0], *parts[1]]) or "#")  # fmt: skip
ANY_TEXTS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=8)
TEXTS = ANY_TEXTS.filter(is_clean)
PROPERTIES = st.lists(st.tuples(TEXTS, TEXTS), max_size=4).map(tuple)


def plainly_matches(wanted: str, topic: str) -> bool:
    """Compare level by level, as the standard (MQTT 5, section 4.7) describes it."""
    levels, names = wanted.split("/"), topic.split("/")
    for place, level in enumerate(levels):
        if level == "#":
            return len(names) >= place
        if place >= len(names) or level not in ("+", names[place]):
            return False
    return len(levels) == len(names)


@given(FILTERS, TOPICS)
@example("a/#", "a")
@example("#", "/")
@example("+/+", "/")
def test_subjects_match_what_the_filter_matches(wanted: str, topic: str) -> None:
    content = content_of(subject_of(topic))
    found = any(matches(filter_of(subject), content) for subject in subjects_of(wanted))
    assert found == plainly_matches(wanted, topic)


@given(st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0+#"), min_size=1, max_size=20))
def test_a_topic_converts_back_unchanged(topic: str) -> None:
    """Any topic that may be published, including dots, wildcards of NATS, spaces and empty levels."""
    subject = subject_of(topic)
    assert "" not in subject.split(".")
    if is_clean(topic) and not topic.startswith("$"):
        assert topic_of(subject) == topic
    else:
        with pytest.raises(TopicError):
            topic_of(subject)


@pytest.mark.parametrize(
    ("topic", "subject"), [("a/b", "a.b"), ("a.b", "a//b"), ("/a", "/.a"), ("a b", "a/x20/b"), ("a//b", "a./.b")]
)
def test_common_topics_are_the_usual_nats_subjects(topic: str, subject: str) -> None:
    assert subject_of(topic) == subject


@pytest.mark.parametrize(
    "subject",
    [
        "a/b.c",
        "a.+",
        "a#",
        "a/x.b",
        "a/x110000/",
        "a" * 70_000,
        "$SYS.a",
        "/x24/SYS.a",
        "a./x1/",
        "a.\x01",
        "a./xd800/",
        "a./xfdd0/",
        "a./x2b/",
        "a./x23/",
    ],
)
def test_a_subject_that_is_no_topic_is_refused(subject: str) -> None:
    """A subject that only NATS can express is reported and never renamed."""
    with pytest.raises(TopicError):
        topic_of(subject)


@pytest.mark.parametrize("wanted", ["", "a/#/b", "a+", "a/b#", "$share/g", "$share/g/"])
def test_an_impossible_filter_is_refused(wanted: str) -> None:
    with pytest.raises(TopicError):
        subjects_of(wanted)


def test_a_shared_subscription_wants_what_its_filter_wants() -> None:
    """Topics of the broker itself never cross, so they are not requested elsewhere."""
    assert subjects_of("$share/g/a/+") == ("a.*",)
    assert subjects_of("$SYS/broker/uptime") == ()


@given(st.lists(st.tuples(ANY_TEXTS, ANY_TEXTS), max_size=4).map(tuple), ANY_TEXTS)
def test_no_field_makes_a_broker_end_the_connection(properties: tuple[tuple[str, str], ...], content_type: str) -> None:
    """Brokers end it for a text with control characters; such a property leaves encoded, and crosses on unchanged."""
    fields = fields_of(block_of(MqttFields(properties=properties, content_type=content_type)))
    assert all(is_clean(text) for one in fields.properties for text in one)
    assert is_clean(fields.content_type)
    assert len(fields.properties) == len(properties)
    assert fields_of(block_of(fields)) == fields


@given(
    st.builds(
        MqttFields,
        properties=PROPERTIES,
        qos=st.integers(0, 1),
        is_retained=st.booleans(),
        is_text=st.booleans(),
        content_type=TEXTS,
        correlation=st.none() | st.binary(max_size=8),
        expiry_s=st.none() | st.integers(0, 2**32 - 1),
    )
)
def test_fields_convert_back_unchanged(fields: MqttFields) -> None:
    assert fields_of(block_of(fields)) == fields


def test_headers_of_nats_are_user_properties() -> None:
    """They keep their order and repetitions; a status in the first line is not a header."""
    block = b"NATS/1.0 503\r\nA: 1\r\nA:2\r\nRegraft-Publisher: p 7\r\n\r\n"
    assert fields_of(block) == MqttFields((("A", "1"), ("A", "2"), ("Regraft-Publisher", "p 7")))
