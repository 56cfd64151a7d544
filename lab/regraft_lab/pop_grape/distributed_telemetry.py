"""Measure what windowed telemetry costs for the same information: batches, bytes sent, and brokers' memory.

Brokers send batches directly to Kafka, not over the overlay's links, and link exchanges need them anyway; relocation
only uses the delivery cells.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

import msgspec

from regraft.api.emulation import CELLS_KEPT_S
from regraft.api.records import TelemetryBatch, encode
from regraft_lab.pop_grape.distributed_traces import COUNT_BYTES, ID_BYTES, NUMBER_BYTES

# Publisher; block and second; two masks; deliveries and bytes.
CELL_BYTES = ID_BYTES + 2 * COUNT_BYTES + 2 * NUMBER_BYTES + 2 * NUMBER_BYTES
SECOND_MS = 1_000


@dataclass(slots=True)
class TelemetryTally:
    """A sink that only counts batches, their encoded bytes, and the bytes of delivery cells among these.

    ``cells_max``: by broker, the largest number of cells kept at a time.
    """

    batches: int = 0
    bytes_whole: int = 0
    bytes_of_cells: int = 0
    cells_max: Counter[str] = field(default_factory=Counter)
    _cells: dict[str, dict[tuple[int, str, int], None]] = field(default_factory=dict)

    def send_batch(self, batch: TelemetryBatch) -> None:
        """Measure the batch as it would be sent, packed, with and without its cells, and discard it."""
        self.batches += 1
        packed = batch.packed()
        whole = len(encode(packed))
        self.bytes_whole += whole
        if batch.deliveries:
            self.bytes_of_cells += whole - len(encode(msgspec.structs.replace(packed, seconds=())))
            self._keep(batch)

    @property
    def memory_bytes_max(self) -> dict[str, int]:
        """The peak size of the fields of each broker's cells."""
        return {broker: CELL_BYTES * count for broker, count in self.cells_max.items()}

    def _keep(self, batch: TelemetryBatch) -> None:
        cells = self._cells.setdefault(batch.broker, {})
        for cell in batch.deliveries:
            cells[cell.second, cell.publisher, cell.block] = None
        oldest = batch.time_ms // SECOND_MS - CELLS_KEPT_S
        while cells and next(iter(cells))[0] < oldest:  # Cells arrive nearly in order of time.
            del cells[next(iter(cells))]
        self.cells_max[batch.broker] = max(self.cells_max[batch.broker], len(cells))
