"""How long writing rows and markers waits for Kafka: while some are accepted; only for the timeout if none is."""

from types import SimpleNamespace
from typing import Any

import pytest

from regraft.infra.kafka.kafka_access import KafkaAccess
from regraft.streaming import write_state
from regraft.streaming.encode_rows import Message
from regraft.streaming.write_state import StateWriteError, StateWriter

TIMEOUT_MS = 1_000
ROWS: list[Message] = [{"key": str(number).encode(), "value": b"row"} for number in range(100)]


class SlowKafka:
    """In place of the producer: has room for a few messages, accepts one every ``message_s`` of its clock."""

    def __init__(self, room: int, message_s: float, takes: int) -> None:
        self.room, self.message_s, self.takes = room, message_s, takes
        self.now_s, self.waiting_max = 0.0, 0
        self.waiting: list[bytes] = []
        self.taken: list[bytes] = []

    def produce_batch(self, _topic: str, messages: list[Message], **_: Any) -> None:
        for message in messages:
            if len(self.waiting) >= self.room:
                message["_error"] = write_state.KafkaError(write_state.KafkaError._QUEUE_FULL)  # type: ignore[assignment]
            else:
                self.waiting.append(message["key"])
        self.waiting_max = max(self.waiting_max, len(self.waiting))

    def poll(self, wait_s: float) -> None:
        if wait_s:
            self._take()

    def flush(self, _wait_s: float) -> int:
        self._take()
        return len(self.waiting)

    def purge(self) -> None:
        self.waiting.clear()

    def __len__(self) -> int:
        return len(self.waiting)

    def _take(self) -> None:
        self.now_s += self.message_s
        if self.waiting and len(self.taken) < self.takes:
            self.taken.append(self.waiting.pop(0))


def writer_to(kafka: SlowKafka, monkeypatch: pytest.MonkeyPatch) -> StateWriter:
    monkeypatch.setattr(write_state, "open_producer", lambda *_: kafka)
    monkeypatch.setattr(write_state, "time", SimpleNamespace(monotonic=lambda: kafka.now_s))
    return StateWriter(KafkaAccess("none:1"), "none", TIMEOUT_MS)


@pytest.mark.parametrize("room", [7, 1_000])
def test_a_slow_kafka_is_waited_for_while_it_accepts_messages(room: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows that take sixty timeouts are all written in order, and memory holds only what there is room for."""
    kafka = SlowKafka(room, TIMEOUT_MS * 0.6 / 1_000, len(ROWS))
    writer = writer_to(kafka, monkeypatch)
    writer.write_rows([dict(row) for row in ROWS])
    assert kafka.taken == [row["key"] for row in ROWS]
    assert kafka.now_s >= 59 * TIMEOUT_MS / 1_000
    assert kafka.waiting_max == min(room, len(ROWS))
    assert (writer.waits > 0) == (room < len(ROWS))


@pytest.mark.parametrize(
    ("room", "reason"),
    [
        (7, "48 messages do not fit in the queue, and none was accepted for 1000 ms"),
        (1_000, "55 messages are waiting, and none was acknowledged for 1000 ms"),
    ],
)
def test_a_kafka_that_stops_accepting_is_given_up(room: int, reason: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever it accepted before, after the timeout the error gives the number of messages left."""
    kafka = SlowKafka(room, 0.1, takes=45)
    writer = writer_to(kafka, monkeypatch)
    with pytest.raises(StateWriteError, match=f"could not write none.state: {reason}"):
        writer.write_rows([dict(row) for row in ROWS])
    assert len(kafka.taken) == 45
    assert TIMEOUT_MS / 1_000 <= kafka.now_s - 4.5 < 2 * TIMEOUT_MS / 1_000
