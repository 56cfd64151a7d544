"""Pauses between a connector's attempts to connect."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from regraft.producers.nodes.connectors.connector_addresses import RETRY_S, RETRY_S_MAX, RetryPause


@given(st.lists(st.floats(0.0, RETRY_S_MAX, exclude_max=True) | st.none(), max_size=12))
def test_pauses_grow_while_no_connection_lasts(lasted_s: list[float | None]) -> None:
    """Whether connections are refused (None) or end soon, each pause is twice the last, up to the limit."""
    pause = RetryPause()
    now_s = 0.0  # A sum would be rounded.
    for number, each in enumerate(lasted_s):
        if each is not None:
            pause.note_open(now_s)
        assert pause.after(now_s + (each or 0.0)) == min(RETRY_S * 2**number, RETRY_S_MAX)


def test_a_connection_that_lasted_resets_the_pause() -> None:
    """A broker that was connected for a while is called again at once."""
    pause = RetryPause()
    for _ in range(10):
        pause.after(0.0)
    pause.note_open(10.0)
    assert pause.after(10.0 + RETRY_S_MAX) == RETRY_S
