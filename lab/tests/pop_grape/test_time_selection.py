"""The timed selections choose alike; times themselves are not asserted."""

from regraft_lab.claim_evidence import Measured
from regraft_lab.pop_grape.time_selection import selection_figures


def test_both_selections_choose_the_same_broker() -> None:
    """In all instances of a small overlay, and every size has both times."""
    reported: list[str] = []
    found = Measured(selection_figures((7, 15), 1, lambda what, done: reported.append(f"{done} {what}")))
    assert reported == ["0 7 brokers", "1 15 brokers"]
    for brokers in (7, 15):
        assert found.value("identical_share", brokers=brokers) == 1.0
        for way in ("grape", "grape_quadratic"):
            middle, most = (found.value(f"{way}_ms_{name}", brokers=brokers) for name in ("p50", "max"))
            assert middle is not None
            assert most is not None
            assert 0 < middle <= most
    assert found.value("identical_choices", instances=1_000) == 1_000
