"""What `regraft topics --show` prints of records: packed ones unpacked, and the reason if one does not decode."""

import numpy as np
import pytest
from confluent_kafka import Message
from typer.testing import CliRunner

from regraft.cli import app
from regraft.commands.show_records import SHOWN_TYPES, shown_message, shown_record
from regraft.schemas.codec import encode
from regraft.schemas.packed_deliveries import DeliveryColumns, PackedDeliveries
from regraft.schemas.state import StateRow
from regraft.schemas.telemetry import Delivery, TelemetryBatch
from regraft.schemas.topics import TELEMETRY, TOPICS
from tests.infra.kafka_message import kafka_message


def telemetry_message(value: bytes | None) -> Message:
    return kafka_message("regraft.telemetry", value, 7, b"b01", 1_700_000_000_250, partition=2)


def test_packed_telemetry_is_shown_cell_by_cell() -> None:
    """Every publisher and block of a broker's report is shown by name, as if it had been sent unpacked."""
    cell = Delivery("p1", 3, 1_700_000_000, 0b101, 2, 400, 0b1)
    batch = TelemetryBatch("b01", 1, 5, 1_700_000_000_200, 4, (cell,)).packed()
    shown = shown_message(telemetry_message(encode(batch)), TELEMETRY)
    assert (shown["partition"], shown["offset"], shown["key"]) == (2, 7, "b01")
    assert shown["time"] == "2023-11-14T22:13:20.250+00:00"
    assert list(shown["record"]["deliveries"]) == [
        {
            "publisher": "p1",
            "block": 3,
            "second": 1_700_000_000,
            "mask": 0b101,
            "local_deliveries": 2,
            "bytes": 400,
            "published": 0b1,
        }
    ]
    assert "seconds" not in shown["record"]


def test_packed_state_is_shown_row_by_row() -> None:
    """Every publisher and broker of a window is an entry with their names and the blocks of that row only."""
    one, two = np.array([1]), np.array([1, 2])
    columns = DeliveryColumns(
        ("p1",), ("b1", "b2"), one.repeat(2) - 1, two - 1, one.repeat(2), two, two, two, two + 6, two, two - two
    )
    shown = shown_record(StateRow(0, 5_000, "packed_deliveries", "0", packed_deliveries=PackedDeliveries.of(columns)))
    assert [(row["publisher"], row["broker"], row["blocks"]) for row in shown["packed_deliveries"]] == [
        ("p1", "b1", (7,)),
        ("p1", "b2", (8,)),
    ]


@pytest.mark.parametrize(("body", "reason"), [(b"rubbish", "starts with"), (b"", "empty")])
def test_an_undecodable_record_is_shown_with_the_reason(body: bytes, reason: str) -> None:
    """The output has its position, the reason and its length."""
    shown = shown_message(telemetry_message(body), TELEMETRY)
    assert reason in shown["error"]
    assert shown["bytes"] == len(body)
    assert "record" not in shown


def test_every_topic_can_be_shown() -> None:
    """Every topic of the table has a record type, which has the name given in the table."""
    assert {topic.suffix: topic.record for topic in TOPICS} == {
        name: record.__name__ for name, record in SHOWN_TYPES.items()
    }


def test_an_unknown_topic_is_refused_with_the_known_ones() -> None:
    """A misspelt topic is answered with the list."""
    result = CliRunner().invoke(app, ["topics", "--show", "telemetri"])
    assert result.exit_code == 2
    assert "dead-letters" in result.output
