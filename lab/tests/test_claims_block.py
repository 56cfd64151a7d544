"""A README shows the beginning of long evidence, cut between two of its parts."""

import pytest

from regraft_lab.claims_block import EVIDENCE_CHARS_MAX, shorten

PART = "x" * 50


@pytest.mark.parametrize(
    ("evidence", "shown"),
    [
        ("0.5 against 0.6", "0.5 against 0.6"),
        (f"{PART}; {PART}, {PART}", f"{PART}; ..."),
        (f"{PART}, {PART}, {PART}", f"{PART}, {PART}, ..."),
        ("x" * (EVIDENCE_CHARS_MAX + 1), "x" * (EVIDENCE_CHARS_MAX + 1)),
    ],
)
def test_long_evidence_is_cut_between_its_parts(evidence: str, shown: str) -> None:
    """At semicolons first, else at commas; one part is never cut."""
    assert shorten(evidence) == shown
