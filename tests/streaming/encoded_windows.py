"""A window of all brokers as the messages that the job writes for it."""

from dataclasses import dataclass

from regraft.streaming.close_windows import WindowRows, join_window
from regraft.streaming.encode_rows import Message, encode_marker, encode_shard


@dataclass(frozen=True)
class EncodedWindow:
    """The messages of all rows of a window, in order, and that of the marker that follows them."""

    rows: list[Message]
    marker: Message


def encode_window(window: WindowRows) -> EncodedWindow:
    """Return the messages of a window written by a single shard."""
    shard, span = encode_shard(window.shard), window.window
    joined = join_window([shard.summary], span.end_ms - span.start_ms, window.marker.late_rows)
    return EncodedWindow(shard.messages, encode_marker(joined.marker))
