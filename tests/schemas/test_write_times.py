"""Points in time in texts are in UTC and marked as such."""

from regraft.schemas.texts import time_text, window_name


def test_a_time_is_given_in_utc() -> None:
    """No reader of an event has to convert milliseconds since 1970."""
    assert time_text(1_795_633_575_000) == "2026-11-25 19:06:15 UTC"
    assert time_text(1_795_633_575_999) == "2026-11-25 19:06:15 UTC"


def test_a_windows_name_contains_its_end() -> None:
    """The subject of an event is one word and sorts by time."""
    assert window_name(1_795_633_575_000) == "window-2026-11-25T19:06:15Z"
