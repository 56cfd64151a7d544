"""Moving publishers over paths of every length, one each."""

from regraft_lab.claim_evidence import Measured
from regraft_lab.pop_grape.time_migration import HOPS_MAX, migration_figures


def test_every_length_is_moved_and_longer_paths_take_longer_by_the_papers_protocol() -> None:
    """By the paper's protocol the wait grows with the path; in our transition a publisher waits for one handover."""
    found = Measured(migration_figures(2, 1, repeats=1))
    assert found.steps("move_ms", "hops") == list(range(1, HOPS_MAX + 1))
    paper, ours = (
        [found.value(name, hops=hops) or 0.0 for hops in range(1, HOPS_MAX + 1)]
        for name in ("paper_wait_ms", "publisher_wait_ms")
    )
    assert sum(paper[5:]) > sum(paper[:5])
    assert max(ours) < max(paper)
