"""A broker of any other kind reports to Regraft, without its package. One that plans change also answers commands.

`python report_telemetry.py BOOTSTRAP BROKER SECONDS` plays a broker where p publishes to one subscriber.
"""

import io
import json
import struct
import sys
import time
from pathlib import Path

import confluent_kafka
import fastavro

SCHEMA = Path(__file__).parents[2] / "schemas" / "avsc" / "telemetry_batch.v3.avsc"
HEADER = struct.pack(">bI", 0, 103)  # Confluent framing, with the id of this version of the record.
FLUSH_S, KEPT_S = 0.25, 5
CELL = ("second", "publisher", "block", "mask", "published", "local_deliveries", "bytes")


class Telemetry:
    """Note what the broker does, and flush every FLUSH_S; without news, too, so that windows close."""

    def __init__(self, broker: str) -> None:
        self.broker, self.boot, self.sequence = broker, int(time.time() * 1000), 0
        self.schema = fastavro.parse_schema(json.loads(SCHEMA.read_text()))
        self.cells: dict[tuple[int, str, int], list[int]] = {}

    def note(self, publisher: str, number: int, published_s: float, size: int, subscribers: int, is_own: bool) -> None:
        """Note that a notification was handed to so many subscribers here, and whether a client here published it."""
        cell = self.cells.setdefault((int(published_s), publisher, number // 64), [0, 0, 0, 0])
        bit = 1 << number % 64
        more = bit * bool(subscribers), bit * is_own, subscribers, subscribers * size
        cell[:] = [cell[0] | more[0], cell[1] | more[1], cell[2] + more[2], cell[3] + more[3]]

    def flush(self, epoch: int = 0) -> bytes:
        """Return the next record for the topic NAMESPACE.telemetry; a cell may be sent again, with all that it has."""
        self.cells = {key: cell for key, cell in self.cells.items() if key[0] > time.time() - KEPT_S}
        cells = [
            (*key, *(mask - (mask >> 63 << 64) for mask in cell[:2]), *cell[2:]) for key, cell in self.cells.items()
        ]
        own = {"broker": self.broker, "boot": self.boot, "sequence": self.sequence, "time_ms": int(time.time() * 1000)}
        lists = {"deliveries": [dict(zip(CELL, each, strict=True)) for each in cells]}
        lists |= {name: [] for name in ("queues", "probes", "clients", "seconds")}
        body = io.BytesIO()
        fastavro.schemaless_writer(body, self.schema, own | {"epoch": epoch} | lists)
        self.sequence += 1
        return HEADER + body.getvalue()


if __name__ == "__main__":
    producer, telemetry = confluent_kafka.Producer({"bootstrap.servers": sys.argv[1]}), Telemetry(sys.argv[2])
    for number in range(int(float(sys.argv[3]) / FLUSH_S)):
        telemetry.note("p", number, time.time(), 100, 1, True)
        producer.produce("regraft.telemetry", telemetry.flush(), key=telemetry.broker)
        producer.poll(0)
        time.sleep(FLUSH_S)
    producer.flush(10)
