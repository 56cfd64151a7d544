"""Write times in texts for people. In: milliseconds since 1970. Out: date and time in UTC."""

from datetime import UTC, datetime


def time_text(time_ms: int) -> str:
    """Return a time to the second, such as ``2026-11-25 19:06:15 UTC``."""
    return datetime.fromtimestamp(time_ms // 1_000, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def window_name(end_ms: int) -> str:
    """Return the subject of events and alerts about the window that ends then: ``window-2026-11-25T19:06:15Z``."""
    return datetime.fromtimestamp(end_ms // 1_000, UTC).strftime("window-%Y-%m-%dT%H:%M:%SZ")
