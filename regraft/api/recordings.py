"""Recordings: open one, and read its records in order."""

from regraft.producers.recordings.read_recording import open_recording

__all__ = [
    "open_recording",
]
