"""The writer of records while Kafka is down: what waits, what is lost, and what closing drops."""

from msgspec.structs import replace

from regraft.infra.kafka.kafka_access import KafkaAccess
from regraft.infra.kafka.record_writer import RecordWriter
from regraft.schemas.command import Command, CommandPhase

NOBODY = KafkaAccess("127.0.0.1:1")
COMMAND = Command("plan-1", CommandPhase.ACTIVATE, "b1", 0, 1)


def test_full_buffer_counts_what_it_cannot_hold() -> None:
    """While Kafka is down the buffer fills to its bound; further records count as lost, and nothing blocks."""
    writer = RecordWriter(NOBODY, outage_s_max=60, buffer_records_max=10, linger_ms=0)
    for _ in range(15):
        writer.write("topic", "b1", COMMAND)
    assert writer.waiting_count == 10
    assert writer.lost == {"topic": 5}


def test_records_that_an_outage_outlasts_are_counted() -> None:
    """A record that cannot be sent within its time-out is lost and counted."""
    writer = RecordWriter(NOBODY, outage_s_max=0.5, buffer_records_max=10, linger_ms=0)
    writer.write("topic", "b1", COMMAND)
    assert writer.flush(30.0) == 0
    assert (writer.lost, writer.waiting_count) == ({"topic": 1}, 0)


def test_closing_counts_what_was_still_to_be_sent() -> None:
    """Nothing is dropped silently: what is unsent at the time-out counts as lost."""
    writer = RecordWriter(NOBODY, outage_s_max=60, buffer_records_max=10, linger_ms=0)
    for topic in ("a", "a", "b"):
        writer.write(topic, "b1", COMMAND)
    writer.close()
    assert (writer.lost, writer.waiting_count) == ({"a": 2, "b": 1}, 0)


def test_a_record_that_readers_would_refuse_is_counted_and_not_sent() -> None:
    """It ends neither its writer nor a reader; what follows is sent."""
    writer = RecordWriter(NOBODY, outage_s_max=60, buffer_records_max=10, linger_ms=0)
    writer.write("topic", "b1", replace(COMMAND, epoch_to=-1))
    writer.write("topic", "b1", COMMAND)
    assert (writer.lost, writer.waiting_count) == ({"topic": 1}, 1)
