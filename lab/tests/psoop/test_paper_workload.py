import numpy as np
import pytest

from regraft_lab.psoop.paper_workload import Workload, WorkloadSettings, draw_workload

SEED = 7


@pytest.fixture(scope="module")
def paper_workload() -> Workload:
    return draw_workload(WorkloadSettings(duration_ticks=25_000), np.random.default_rng(SEED))


def test_there_are_about_fifty_notifications_for_each_subscription(paper_workload: Workload) -> None:
    """Jaeger07, section 5.1: approximately 50; the rates alone give 2500 / 5 / 9 = 55.6 for each replacement."""
    replaced = paper_workload.subscriptions_issued - 50 * 9
    assert paper_workload.notification_count / replaced == pytest.approx(55.6, rel=0.05)
    assert 45 < paper_workload.notification_count / paper_workload.subscriptions_issued < 56


def test_a_type_is_published_every_five_ticks(paper_workload: Workload) -> None:
    """Rate 0.2 for each of the 50 publishers."""
    assert paper_workload.notification_count == pytest.approx(50 * 0.2 * 25_000, rel=0.01)
    assert (np.diff(paper_workload.time_of) >= 0).all()


def test_every_notification_is_wanted_at_ten_brokers(paper_workload: Workload) -> None:
    """One publisher and subscribers at nine other brokers, all different."""
    sets = paper_workload.delivery_sets([f"b{number:02d}" for number in range(100)], 1_000, 3_000, 200.0)
    bits = np.unpackbits(sets.words.view(np.uint8), axis=1, bitorder="little")
    assert (bits[:, :2_000].sum(axis=0) == 10).all()
    assert not bits[:, 2_000:].any()
    assert all(len(set(brokers)) == 10 for brokers in paper_workload.members.tolist())


def test_publishers_stay_and_one_subscriber_leaves_at_a_time(paper_workload: Workload) -> None:
    """Two successive flows of a type differ in at most one subscriber, and never in the publisher."""
    members, types = paper_workload.members, paper_workload.type_of_flow
    same_type = types[1:] == types[:-1]
    differing = (members[1:] != members[:-1])[same_type]
    assert not differing[:, 0].any()
    assert (differing.sum(axis=1) <= 1).all()


def test_subscribers_are_at_brokers_with_high_load_values() -> None:
    """Brokers are chosen by load values, which differ between brokers and are redrawn when configured so."""
    settings = WorkloadSettings(broker_count=20, type_count=40, duration_ticks=60_000, load_change_ticks=(30_000,))
    workload = draw_workload(settings, np.random.default_rng(SEED))
    early = workload.members[workload.began_at < 30_000][:, 1:]
    late = workload.members[workload.began_at > 40_000][:, 1:]
    counts = np.array([np.bincount(part.ravel(), minlength=20) / part.size for part in (early, late)])
    assert counts[0].max() > 3 * counts[0].min()
    assert np.corrcoef(counts)[0, 1] < 0.9


def test_members_at_a_time_are_those_of_the_next_notification() -> None:
    """The present interest in a type is what its next notification is delivered to, unless a change comes first."""
    workload = draw_workload(WorkloadSettings(duration_ticks=4_000), np.random.default_rng(SEED))
    at = 2_000.0
    now = workload.members_at(at)
    following = workload.first_id_at(at)
    seen: dict[int, int] = {}
    for identifier in range(following, workload.notification_count):
        flow = int(workload.flow_of[identifier])
        seen.setdefault(int(workload.type_of_flow[flow]), flow)
    unchanged = [kind for kind, flow in seen.items() if workload.began_at[flow] <= at]
    assert len(unchanged) > 40
    assert all((now[kind] == workload.members[seen[kind]]).all() for kind in unchanged)


def test_the_same_seed_gives_the_same_traffic() -> None:
    """Figures are reproducible."""
    settings = WorkloadSettings(duration_ticks=1_000)
    first, second = (draw_workload(settings, np.random.default_rng(SEED)) for _ in range(2))
    assert (first.time_of == second.time_of).all()
    assert (first.members[first.flow_of] == second.members[second.flow_of]).all()
