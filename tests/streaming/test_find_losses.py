"""What is reported about lost telemetry, and how another topic of the same name is recognised."""

import pytest

from regraft.schemas.codec import decode, encode
from regraft.schemas.event import AdaptationEvent
from regraft.streaming.find_losses import Loss, TopicRecreatedError, check_same_topics, loss_event

DAY_MS = 24 * 3_600_000


def test_a_micro_batch_that_ends_before_its_start_is_of_another_topic() -> None:
    """Spark goes back without a warning; empty micro-batches and new partitions do not count."""
    start = {("t", 0): 7, ("t", 1): 3, ("gone", 0): 5}
    check_same_topics(start, {("t", 0): 7, ("t", 1): 9, ("t.west", 0): 1})
    with pytest.raises(TopicRecreatedError, match="topic t was recreated"):
        check_same_topics(start, {("t", 0): 8, ("t", 1): 2})


def test_the_event_names_the_lost_records_and_their_time() -> None:
    """It has offsets and number by partition, with an agent's topic, from the last read record to the first kept."""
    losses = [Loss(("regraft.telemetry", 0), 10, 40, 2 * DAY_MS), Loss(("regraft.telemetry.west", 3), 5, 6, None)]
    event = loss_event("regraft.telemetry", 31, losses, DAY_MS)
    assert event.text == (
        "31 records of regraft.telemetry, from 1970-01-02 00:00:00 UTC to 1970-01-03 00:00:00 UTC, were deleted before "
        "they were read: partition 0 offsets 10 to 39 (30 records); partition 3 of regraft.telemetry.west "
        "offsets 5 to 5 (1 records). Check whether the streaming job was down for longer than the topic's retention."
    )
    assert decode(encode(event), AdaptationEvent) == event


def test_an_event_about_thousands_of_partitions_stays_short() -> None:
    """Some are named and the others counted; if Kafka does not answer, only the number is reported."""
    many = loss_event("t", 5_000, [Loss(("t", number), 0, 1, None) for number in range(5_000)], 0)
    assert "; and 4980 more partitions" in many.text
    assert len(many.details) == 23
    assert "from an unknown time to an unknown time" in many.text
    assert "at unknown offsets" in loss_event("t", 7, [], 0).text
