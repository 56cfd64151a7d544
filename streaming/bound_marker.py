"""Bound a window's marker to what Kafka accepts, whatever boots and names the senders of telemetry claim.

A marker that Kafka refuses would end the job, and the same micro-batch would run again at each start.
"""

from collections import Counter
from collections.abc import Sequence

from msgspec import Struct
from msgspec.structs import astuple, replace

from regraft.infra.kafka.kafka_clients import SENT_BYTES_MAX
from regraft.schemas.state import BrokerCompleteness, WindowClosed

FRAMING_BYTES = 1_024  # At most what a marker has besides its brokers and clocks.


def newest_boots(brokers: Sequence[BrokerCompleteness], boots_max: int) -> tuple[BrokerCompleteness, ...]:
    """Return the entries of at most this many boots of each broker, the newest; they are sorted by name and boot."""
    left = Counter(entry.broker for entry in brokers)
    boots = []
    for entry in brokers:
        if left[entry.broker] <= boots_max:
            boots.append(entry)
        left[entry.broker] -= 1
    return tuple(boots)


def bounded_marker(marker: WindowClosed, bytes_max: int = SENT_BYTES_MAX) -> WindowClosed:
    """Return the marker with as few boots less as fit: at last one of each broker, of those that sent most batches.

    Only invented brokers can be too many even so, for those of an inventory fit; invented ones send few batches.
    """
    boots = max(Counter(entry.broker for entry in marker.brokers).values(), default=0)
    while _bytes_of(marker) > bytes_max:
        if boots <= 1:
            return _of_busiest(marker, bytes_max)
        boots //= 2
        marker = replace(marker, brokers=newest_boots(marker.brokers, boots))
    return marker


def _of_busiest(marker: WindowClosed, bytes_max: int) -> WindowClosed:
    """Return the marker with the brokers that sent most batches, as many as fit; each has one boot."""
    clock_bytes = {clock.broker: _entry_bytes(clock) for clock in marker.clocks}
    kept: set[str] = set()
    left = bytes_max - FRAMING_BYTES
    for entry in sorted(marker.brokers, key=lambda entry: (-entry.received, entry.broker)):
        left -= _entry_bytes(entry) + clock_bytes.get(entry.broker, 0)
        if left < 0:
            break
        kept.add(entry.broker)
    return replace(
        marker,
        brokers=tuple(entry for entry in marker.brokers if entry.broker in kept),
        clocks=tuple(clock for clock in marker.clocks if clock.broker in kept),
    )


def _bytes_of(marker: WindowClosed) -> int:
    return FRAMING_BYTES + sum(map(_entry_bytes, (*marker.brokers, *marker.clocks)))


def _entry_bytes(entry: Struct) -> int:
    """Return the size of a record of texts and whole numbers in Avro: numbers have seven bits in a byte, and a sign."""
    size = 0
    for value in astuple(entry):
        text = value.encode() if isinstance(value, str) else b""
        number = len(text) if isinstance(value, str) else value
        size += len(text) + max(1, -(-(abs(number).bit_length() + 1) // 7))
    return size
