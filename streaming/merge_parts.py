"""Parts of batches -> merged figures, vectorised and idempotent (ARCHITECTURE.md, "From telemetry to state").

In: ``WindowParts``, in any order and with repeats. Out: columns sorted by window and names, each figure once: masks by
OR, counters by max and min, last values by (boot, time, sequence, place). Knows nothing of rows, markers, Spark or
Kafka.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from regraft.schemas.arrays import Longs
from regraft.streaming.reduce_groups import added, reduced

Doubles = NDArray[np.float64]

QUEUE_COUNTERS = ("messages_in", "messages_out", "notifications_out", "bytes_in", "bytes_out", "busy_ms", "wait_ms")
PACKED_BITS = 62  # Sort keys are packed into one signed long when their ranges fit.


@dataclass(frozen=True, eq=False, slots=True)
class Names:
    """Strings as positions in their sorted order: ``texts[codes[i]]`` is the i-th string."""

    texts: tuple[str, ...]
    codes: Longs


@dataclass(frozen=True, eq=False, slots=True)
class MergedDeliveries:
    """One row for each (window, publisher, broker), sorted so; row i has ``blocks[starts[i]:starts[i + 1]]``.

    ``masks`` are the bits of what was delivered, ``published`` of what was published; ``notifications`` counts both.
    """

    publishers: tuple[str, ...]
    brokers: tuple[str, ...]
    window_start_ms: Longs
    publisher: Longs
    broker: Longs
    notifications: Longs
    local_deliveries: Longs
    bytes: Longs
    starts: Longs
    blocks: Longs
    masks: Longs
    published: Longs

    def of_window(self, window_start_ms: int) -> slice:
        """Return the rows of a window."""
        return window_slice(self.window_start_ms, window_start_ms)


@dataclass(frozen=True, eq=False, slots=True)
class MergedQueues:
    """One row for each (window, broker, peer), sorted so; ``counters`` follows QUEUE_COUNTERS."""

    brokers: tuple[str, ...]
    peers: tuple[str, ...]
    window_start_ms: Longs
    broker: Longs
    peer: Longs
    counters: tuple[Longs, ...]
    span_ms: Longs
    queue_length_last: Longs
    queue_length_max: Longs


@dataclass(frozen=True, eq=False, slots=True)
class MergedProbes:
    """One row for each (window, broker, peer), sorted so."""

    brokers: tuple[str, ...]
    peers: tuple[str, ...]
    window_start_ms: Longs
    broker: Longs
    peer: Longs
    rtt_ms_min: Doubles
    rtt_ms_last: Doubles


@dataclass(frozen=True, eq=False, slots=True)
class MergedChanges:
    """One row for each (window, broker), sorted so."""

    brokers: tuple[str, ...]
    window_start_ms: Longs
    broker: Longs
    changes: Longs
    clients: Longs


@dataclass(frozen=True, eq=False, slots=True)
class MergedBatches:
    """One row for each (window, broker, boot), sorted so: which batches with a time in the window were received."""

    brokers: tuple[str, ...]
    window_start_ms: Longs
    broker: Longs
    boot: Longs
    sequence_min: Longs
    sequence_max: Longs
    received: Longs
    epoch_min: Longs
    epoch_max: Longs


@dataclass(frozen=True, eq=False, slots=True)
class MergedClocks:
    """One row for each (window, broker), sorted so: how the broker's clock differed from Kafka's."""

    brokers: tuple[str, ...]
    window_start_ms: Longs
    broker: Longs
    delay_ms_min: Longs
    refused: Longs


@dataclass(frozen=True, eq=False, slots=True)
class MergedWindows:
    """All figures of the windows that were closed together; ``window_starts_ms`` ascending."""

    window_starts_ms: Longs
    deliveries: MergedDeliveries
    queues: MergedQueues
    probes: MergedProbes
    changes: MergedChanges
    batches: MergedBatches
    clocks: MergedClocks


@dataclass(frozen=True, eq=False, slots=True)
class WindowParts:
    """Parts of batches, one struct each, and the start of each part's window.

    A part has broker, boot, sequence, time_ms and epoch of its batch; ``own`` (1 if the batch's own time is in the
    window); ``taken`` (1 if Kafka received it in the window, ``delay_ms`` after its time; ``is_off`` if that is too
    far); the deliveries of the window; and if ``own``, queues, probes and clients.
    """

    window_start_ms: Longs
    parts: pa.StructArray

    @staticmethod
    def joined(several: Sequence["WindowParts"]) -> "WindowParts":
        """Return the parts of several, concatenated."""
        window = np.concatenate([each.window_start_ms for each in several])
        return WindowParts(window, pa.concat_arrays([each.parts for each in several]))


def merge_parts(window_parts: WindowParts) -> MergedWindows:
    """Return the merged figures of all windows, the same for any order and any repeats of the parts."""
    window_start_ms, parts = window_parts.window_start_ms, window_parts.parts
    brokers = _names(parts.field("broker"))
    stamps = _Stamps(
        brokers.texts,
        window_start_ms,
        brokers.codes,
        *(_longs(parts.field(name)) for name in ("boot", "time_ms", "sequence")),
    )
    return MergedWindows(
        np.unique(window_start_ms),
        _merge_deliveries(stamps, parts.field("deliveries")),
        _merge_queues(stamps, parts.field("queues")),
        _merge_probes(stamps, parts.field("probes")),
        _merge_changes(stamps, parts.field("clients")),
        _merge_batches(stamps, parts),
        _merge_clocks(stamps, parts),
    )


def window_slice(window_start_ms: Longs, start_ms: int) -> slice:
    """Return the rows of one window in a column that is sorted by window."""
    return slice(
        int(np.searchsorted(window_start_ms, start_ms, "left")),
        int(np.searchsorted(window_start_ms, start_ms, "right")),
    )


def distinct(keys: Sequence[Longs]) -> tuple[list[Longs], Longs]:
    """Return the distinct combinations of the keys in ascending order, and each element's position among them."""
    order = _order(keys)
    in_order = [key[order] for key in keys]
    at = _starts(in_order)
    which = np.empty(order.size, dtype=np.int64)
    which[order] = np.repeat(np.arange(at.size), np.diff(np.append(at, order.size)))
    return [key[at] for key in in_order], which


@dataclass(frozen=True, eq=False, slots=True)
class _Stamps:
    """Each part's values for all its rows."""

    brokers: tuple[str, ...]
    window: Longs
    broker: Longs
    boot: Longs
    time_ms: Longs
    sequence: Longs


def _merge_deliveries(stamps: _Stamps, lists: pa.ListArray) -> MergedDeliveries:
    part, cells = _owner(lists), lists.flatten()
    publishers = _names(cells.field("publisher"))
    keys = [stamps.window[part], publishers.codes, stamps.broker[part]]
    keys += [_longs(cells.field("block")), _longs(cells.field("second"))]
    order = _order(keys)
    keys = [key[order] for key in keys]
    bits = [_longs(cells.field(name))[order] for name in ("mask", "published")]
    local, size = (_longs(cells.field(name))[order] for name in ("local_deliveries", "bytes"))
    # A cell may be sent early and again: OR its bits, take its largest counters.
    at = _starts(keys)
    bits = [reduced(np.bitwise_or, each, at) for each in bits]
    local, size = reduced(np.maximum, local, at), reduced(np.maximum, size, at)
    keys = [key[at] for key in keys[:-1]]
    # The seconds of a block: OR the bits, add the counters.
    at = _starts(keys)
    masks, published = (reduced(np.bitwise_or, each, at) for each in bits)
    local, size = added(local, at), added(size, at)
    *names, blocks = (key[at] for key in keys)
    at = _starts(names)
    window, publisher, broker = (key[at] for key in names)
    counts = np.bitwise_count((masks | published).view(np.uint64)).astype(np.int64)
    return MergedDeliveries(
        publishers=publishers.texts,
        brokers=stamps.brokers,
        window_start_ms=window,
        publisher=publisher,
        broker=broker,
        notifications=reduced(np.add, counts, at),
        local_deliveries=added(local, at),
        bytes=added(size, at),
        starts=np.append(at, blocks.size),
        blocks=blocks,
        masks=masks,
        published=published,
    )


def _merge_queues(stamps: _Stamps, lists: pa.ListArray) -> MergedQueues:
    part, samples = _owner(lists), lists.flatten()
    peers = _names(samples.field("peer"))
    keys = [stamps.window[part], stamps.broker[part], peers.codes, stamps.boot[part]]
    time_ms = stamps.time_ms[part]
    order = _order([*keys, time_ms, stamps.sequence[part], _place(lists)])
    keys, time_ms = [key[order] for key in keys], time_ms[order]
    boots = _starts(keys)
    boot_keys = [key[boots] for key in keys]
    queues = _starts(boot_keys[:-1])
    window, broker, peer = (key[queues] for key in boot_keys[:-1])
    first = boots[queues] if queues.size else queues
    last = np.append(first[1:], len(samples))[: first.size] - 1

    def moved(values: Longs) -> Longs:
        """Return max - min within each boot, added over the boots of a queue."""
        return added(reduced(np.maximum, values, boots) - reduced(np.minimum, values, boots), queues)

    return MergedQueues(
        brokers=stamps.brokers,
        peers=peers.texts,
        window_start_ms=window,
        broker=broker,
        peer=peer,
        counters=tuple(moved(_longs(samples.field(name))[order]) for name in QUEUE_COUNTERS),
        span_ms=moved(time_ms),
        queue_length_last=_longs(samples.field("queue_length"))[order][last],
        queue_length_max=reduced(np.maximum, _longs(samples.field("queue_length_max"))[order], first),
    )


def _merge_probes(stamps: _Stamps, lists: pa.ListArray) -> MergedProbes:
    part, samples = _owner(lists), lists.flatten()
    peers = _names(samples.field("peer"))
    keys = [stamps.window[part], stamps.broker[part], peers.codes]
    order = _order([*keys, stamps.boot[part], stamps.time_ms[part], stamps.sequence[part], _place(lists)])
    keys = [key[order] for key in keys]
    rtt_ms = samples.field("rtt_ms").to_numpy(zero_copy_only=False).astype(np.float64)[order]
    at = _starts(keys)
    window, broker, peer = (key[at] for key in keys)
    last = np.append(at[1:], rtt_ms.size)[: at.size] - 1
    lowest = np.minimum.reduceat(rtt_ms, at) if at.size else rtt_ms
    return MergedProbes(stamps.brokers, peers.texts, window, broker, peer, lowest, rtt_ms[last])


def _merge_changes(stamps: _Stamps, lists: pa.ListArray) -> MergedChanges:
    part, changes = _owner(lists), lists.flatten()
    keys = [stamps.window[part], stamps.broker[part], _names(changes.field("client")).codes]
    keys.append(_longs(changes.field("sequence")))
    order = _order(keys)
    keys = [key[order] for key in keys]
    distinct = [key[_starts(keys)] for key in keys]
    first_of_client, first_of_broker = _starts(distinct[:3]), _starts(distinct[:2])
    client_brokers = [key[first_of_client] for key in distinct[:2]]
    window, broker = (key[first_of_broker] for key in distinct[:2])
    counts = np.diff(np.append(first_of_broker, distinct[0].size))
    clients = np.diff(np.append(_starts(client_brokers), first_of_client.size))
    return MergedChanges(stamps.brokers, window, broker, counts, clients)


def _merge_batches(stamps: _Stamps, parts: pa.StructArray) -> MergedBatches:
    own = parts.field("own").to_numpy(zero_copy_only=False).astype(np.bool_)
    keys = [stamps.window[own], stamps.broker[own], stamps.boot[own], stamps.sequence[own]]
    epoch = _longs(parts.field("epoch"))[own]
    order = _order(keys)
    keys, epoch = [key[order] for key in keys], epoch[order]
    boots = _starts(keys[:3])
    window, broker, boot = (key[boots] for key in keys[:3])
    sequence = keys[3]
    is_new = np.zeros(sequence.size, dtype=np.int64)
    is_new[_starts(keys)] = 1
    return MergedBatches(
        brokers=stamps.brokers,
        window_start_ms=window,
        broker=broker,
        boot=boot,
        sequence_min=reduced(np.minimum, sequence, boots),
        sequence_max=reduced(np.maximum, sequence, boots),
        received=reduced(np.add, is_new, boots),
        epoch_min=reduced(np.minimum, epoch, boots),
        epoch_max=reduced(np.maximum, epoch, boots),
    )


def _merge_clocks(stamps: _Stamps, parts: pa.StructArray) -> MergedClocks:
    is_taken = parts.field("taken").to_numpy(zero_copy_only=False).astype(np.bool_)
    keys = [key[is_taken] for key in (stamps.window, stamps.broker, stamps.boot, stamps.sequence)]
    delay_ms, is_off = (_longs(parts.field(name))[is_taken] for name in ("delay_ms", "is_off"))
    order = _order(keys)
    keys, delay_ms, is_off = [key[order] for key in keys], delay_ms[order], is_off[order]
    at = _starts(keys)  # A repeated batch counts once.
    delay_ms, is_off = reduced(np.minimum, delay_ms, at), reduced(np.maximum, is_off, at)
    window, broker = (key[at] for key in keys[:2])
    at = _starts([window, broker])
    delay_ms_min, refused = reduced(np.minimum, delay_ms, at), reduced(np.add, is_off, at)
    return MergedClocks(stamps.brokers, window[at], broker[at], delay_ms_min, refused)


def _order(keys: Sequence[Longs]) -> Longs:
    """Return the order that sorts by the first key, then the second and so on.

    Sorting one packed long is several times as fast as sorting by columns; ranges that do not fit are rare.
    """
    if not keys[0].size:
        return np.zeros(0, dtype=np.int64)
    lows = [int(key.min()) for key in keys]
    bits = [(int(key.max()) - low).bit_length() for key, low in zip(keys, lows, strict=True)]
    if sum(bits) > PACKED_BITS:
        return np.lexsort(tuple(reversed(keys))).astype(np.int64)
    packed = np.zeros(keys[0].size, dtype=np.int64)
    for key, low, width in zip(keys, lows, bits, strict=True):
        packed <<= width
        packed |= key - low
    return np.argsort(packed).astype(np.int64, copy=False)


def _starts(keys: Sequence[Longs]) -> Longs:
    """Return where a new combination of the sorted keys begins."""
    if not keys[0].size:
        return np.zeros(0, dtype=np.int64)
    changed = np.zeros(keys[0].size, dtype=np.bool_)
    changed[0] = True
    for key in keys:
        changed[1:] |= key[1:] != key[:-1]
    return np.flatnonzero(changed).astype(np.int64, copy=False)


def _longs(array: pa.Array) -> Longs:
    longs: Longs = array.to_numpy(zero_copy_only=False).astype(np.int64, copy=False)
    return longs


def _lengths(lists: pa.ListArray) -> Longs:
    return _longs(pc.fill_null(lists.value_lengths(), 0))


def _owner(lists: pa.ListArray) -> Longs:
    """Return, for each element of the flattened lists, the position of its list."""
    return np.repeat(np.arange(len(lists), dtype=np.int64), _lengths(lists))


def _place(lists: pa.ListArray) -> Longs:
    """Return, for each element of the flattened lists, its position within its list."""
    lengths = _lengths(lists)
    ends = np.cumsum(lengths)
    return np.arange(int(lengths.sum()), dtype=np.int64) - np.repeat(ends - lengths, lengths)


def _names(strings: pa.Array) -> Names:
    encoded = strings.dictionary_encode()
    texts = encoded.dictionary.to_pylist()
    by_name = sorted(range(len(texts)), key=texts.__getitem__)
    rank = np.empty(len(texts), dtype=np.int64)
    rank[by_name] = np.arange(len(texts), dtype=np.int64)
    return Names(tuple(texts[position] for position in by_name), rank[_longs(encoded.indices)])
