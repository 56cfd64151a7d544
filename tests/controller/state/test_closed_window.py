"""Windows restricted to the brokers of one overlay."""

from regraft.controller.state.closed_window import ClosedWindow
from regraft.overlay.ring.user_interests import UserInterests
from regraft.schemas.state import LinkRtt
from tests.controller.published_windows import queue_of
from tests.overlay.small_overlays import sets_of

FOUR = ("a", "b", "c", "d")


def test_a_window_over_fewer_brokers_drops_the_data_of_the_others() -> None:
    """Deliveries, homes, users, queues of links that end there; the rest is unchanged."""
    sets = sets_of(FOUR, [{"a", "d"}, {"d"}, {"a", "b"}])
    window = ClosedWindow(
        0,
        1000,
        sets,
        queues=(queue_of("a", ""), queue_of("a", "b"), queue_of("a", "d"), queue_of("d", "")),
        rtts=(LinkRtt("a", "b", 1.0, 1.0), LinkRtt("a", "d", 1.0, 1.0)),
        homes={"p": "a", "q": "d"},
        local_deliveries={("p", "a"): 2, ("p", "d"): 3},
        interests=UserInterests.of(FOUR, {"u": ("a", ["t"]), "v": ("d", ["t"])}),
        epochs=dict.fromkeys(FOUR, 3),
        boots=dict.fromkeys(FOUR, 7),
    )
    seen = window.over(("a", "b", "c"))
    assert seen.sets.brokers == ("a", "b", "c")
    assert [(one.broker, one.peer) for one in seen.queues] == [("a", ""), ("a", "b")]
    assert [(one.broker, one.peer) for one in seen.rtts] == [("a", "b")]
    assert seen.homes == {"p": "a"}
    assert seen.local_deliveries == {("p", "a"): 2}
    assert seen.interests is not None
    assert seen.interests.users == ("u",)
    assert sorted(seen.epochs) == sorted(seen.boots) == ["a", "b", "c"]
    assert window.over(("a", "b", "c")) is seen
    assert window.over(FOUR) is window


def test_subscribers_that_may_move_follow_what_is_assumed_of_them() -> None:
    """Alone if their deliveries are known, or with all subscribers of their broker."""
    homes = {"s1": "a", "s2": "a", "s3": "d"}
    window = ClosedWindow(0, 1000, sets_of(FOUR, [{"a"}]), movable=homes, single={"s1": ("a", 7)})
    assert window.over(("a", "b", "c")).movable == {"s1": "a", "s2": "a"}
    assert window.with_subscribers_moved({"a": "b"}).movable == {"s1": "b", "s2": "b", "s3": "d"}
    assert window.with_parts_moved({("a", 7): "c", ("a", 8): "d"}).movable == {"s1": "c", "s2": "a", "s3": "d"}
    assert window.without_movable().movable == {}
    other = ClosedWindow(0, 1000, sets_of(FOUR, [{"a"}]))
    assert other.without_movable() is other
