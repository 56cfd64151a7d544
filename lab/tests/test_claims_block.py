"""A README shows the first parts of long evidence and the last one."""

import pytest

from regraft_lab.claims_block import EVIDENCE_CHARS_MAX, shorten

PART = "x" * 50


@pytest.mark.parametrize(
    ("evidence", "shown"),
    [
        ("0.5 against 0.6", "0.5 against 0.6"),
        (f"{PART}; {PART}, {PART}; 1", f"{PART}; ...; 1"),
        (f"{PART}, {PART}, {PART[:9]}, {PART[:9]}", f"{PART}, {PART}, ..., {PART[:9]}"),
        (f"{PART}, {PART}, {PART}, 1, 2", f"{PART}, {PART}, ..., 2"),
        ("x" * (EVIDENCE_CHARS_MAX + 1), "x" * (EVIDENCE_CHARS_MAX + 1)),
    ],
)
def test_long_evidence_is_shown_by_its_first_and_last_parts(evidence: str, shown: str) -> None:
    """At semicolons first, else at commas; one part is never cut."""
    assert shorten(evidence) == shown
