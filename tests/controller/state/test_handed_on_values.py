"""What one state has computed, the next one of the same windows does not compute again."""

import random

import pytest

from regraft.controller.kinds.ring import reached_ring
from regraft.controller.kinds.ring.reached_ring import ReachedRing
from regraft.controller.kinds.scot.scot_state import ScotState
from regraft.controller.kinds.tree.tree_state import TreeState
from regraft.controller.state.closed_window import ClosedWindow
from regraft.overlay.derived_values import derived_value
from regraft.overlay.overlay_configuration import link
from regraft.overlay.ring.user_interests import UserInterests
from regraft.overlay.scot.scot_configuration import ScotConfiguration
from regraft.overlay.sets.delivery_sets import DeliverySets
from regraft.overlay.tree.tree_configuration import TreeConfiguration
from tests.controller.published_windows import state_of, window_of
from tests.controller.scripted_ring import (
    BROKERS,
    FIG_2_MOVES,
    FIG_2_USERS,
    RING,
    TOPIC,
    placing,
    reassigning,
    ring_state,
    ring_window,
)
from tests.overlay.count_computations import count_computations
from tests.overlay.published_overlays import draw_overlay
from tests.overlay.small_overlays import brokers_named, inventory_of, line_of, publishers_of

OF_HOMES = [
    TreeState.window_sets,
    TreeState.sets,
    TreeState.weighted,
    TreeState.interest,
    TreeState.deliveries,
]
OF_LINKS = [TreeState.publisher_costs, TreeState.home_costs]
OF_WINDOWS = [TreeState.hand_overs, TreeState.publisher_sets]
NAMES = brokers_named(6)
SCOT = ScotConfiguration(0, (NAMES[0:2], NAMES[2:4], NAMES[4:6]), ((0, 1), (1, 2)), (("p", "b00"),))


def drawn_state() -> TreeState:
    rng = random.Random(4)
    return state_of(draw_overlay(rng, brokers_max=9), rng)


def relinked(tree: TreeConfiguration) -> TreeConfiguration:
    """Return another tree with the same homes."""
    hub, *others = tree.brokers
    links = [link(hub, other) for other in others]
    assert tuple(sorted(links)) != tree.links
    return TreeConfiguration.of(1, tree.brokers, links, tree.home_of)


def rehomed(tree: TreeConfiguration) -> TreeConfiguration:
    """Return the same tree with all publishers at one broker."""
    assert len(set(tree.home_of.values())) > 1
    return TreeConfiguration.of(1, tree.brokers, tree.links, dict.fromkeys(tree.home_of, tree.brokers[0]))


def named(value: derived_value[object]) -> str:
    return str(value.attrname)


@pytest.mark.parametrize("value", [*OF_HOMES, *OF_WINDOWS], ids=named)
def test_other_links_leave_what_depends_on_homes(value: derived_value[object], monkeypatch: pytest.MonkeyPatch) -> None:
    """A planner tries hundreds of trees on the same deliveries."""
    state, computed = drawn_state(), count_computations(monkeypatch, value)
    first = value.__get__(state)
    assert value.__get__(state.with_configuration(relinked(state.configuration))) is first
    assert computed == [state]


@pytest.mark.parametrize("value", [*OF_LINKS, *OF_WINDOWS], ids=named)
def test_other_homes_leave_what_depends_on_links(value: derived_value[object], monkeypatch: pytest.MonkeyPatch) -> None:
    """What a publisher costs at every home does not depend on where it is."""
    state, computed = drawn_state(), count_computations(monkeypatch, value)
    first = value.__get__(state)
    assert value.__get__(state.with_configuration(rehomed(state.configuration))) is first
    assert computed == [state]


@pytest.mark.parametrize("value", OF_HOMES, ids=named)
def test_what_depends_on_homes_follows_them(value: derived_value[object], monkeypatch: pytest.MonkeyPatch) -> None:
    """The deliveries of the publishers at their former homes would be another overlay's."""
    state, computed = drawn_state(), count_computations(monkeypatch, value)
    value.__get__(state)
    seen = state.with_configuration(rehomed(state.configuration))
    value.__get__(seen)
    assert computed == [state, seen]


def test_other_homes_leave_the_costs_of_a_cyclic_overlay(monkeypatch: pytest.MonkeyPatch) -> None:
    """They are costs of every publisher at every home, and follow only the places of brokers."""
    sets = publishers_of(NAMES, {"p": ("b00", [{"b04"}] * 8)})
    state = ScotState(SCOT, inventory_of(line_of(6), {}), (window_of(0, sets, {"p": "b00"}),))
    computed, first = count_computations(monkeypatch, ScotState.costs), state.costs
    assert state.with_configuration(SCOT.with_homes({"p": "b03"})).costs is first
    assert computed == [state]
    turned = ScotConfiguration(1, (NAMES[2:4], NAMES[0:2], NAMES[4:6]), SCOT.region_links, SCOT.homes)
    assert state.with_configuration(turned).costs is not first
    handed = state.hand_overs
    assert state.with_configuration(turned).hand_overs is handed


def test_a_move_prices_only_the_topics_that_it_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    """A ring with hundreds of topics is not priced again for a user that stays away, nor for one that moves."""
    priced: list[int] = []
    compute = reached_ring.topic_roots

    def counted(ring: object, topics: tuple[str, ...]) -> object:
        priced.append(len(topics))
        return compute(ring, topics)  # type: ignore[arg-type]

    monkeypatch.setattr(reached_ring, "topic_roots", counted)
    users = FIG_2_USERS | {"v": ("b01", ["another"])}
    start = ReachedRing(ring_state(RING, ring_window(users, {TOPIC: 10, "another": 1})), 1.0)
    start.after(placing(("left", "b00", "b01"))).after(placing(("v", "b01", "b02")))
    assert priced == [0, 1]
    before = start.configuration
    reached = start.after(reassigning(*FIG_2_MOVES))
    assert priced == [0, 1, 2]
    assert (start.configuration, reached.configuration != before) == (before, True)


@pytest.mark.parametrize("owner", [DeliverySets, UserInterests])
def test_a_window_at_other_homes_is_made_once(owner: type, monkeypatch: pytest.MonkeyPatch) -> None:
    """A horizon asks for the same homes at every decision until a client moves."""
    made: list[object] = []
    at_homes = owner.at_homes  # type: ignore[attr-defined]

    def counted(self: object, homes: dict[str, str]) -> object:
        made.append(homes)
        return at_homes(self, homes)

    monkeypatch.setattr(owner, "at_homes", counted)
    sets = publishers_of(BROKERS, {"p": ("b00", [{"b04"}] * 8)})
    interests = UserInterests.of(BROKERS, {"p": ("b00", ["a"])})
    window = ClosedWindow(0, 1000, sets, homes={"p": "b00"}, interests=interests)
    asked = window.sets_at if owner is DeliverySets else window.interests_at
    first = asked({"p": "b02"})
    assert asked({"p": "b02"}) is first
    assert made == [{"p": "b02"}]
    asked({"p": "b03"})
    assert made == [{"p": "b02"}, {"p": "b03"}]


def test_a_window_over_fewer_brokers_is_made_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """The overlay lacks the same brokers at every decision until one returns."""
    made: list[object] = []
    over = DeliverySets.over

    def counted(self: DeliverySets, brokers: tuple[str, ...]) -> DeliverySets:
        made.append(brokers)
        return over(self, brokers)

    monkeypatch.setattr(DeliverySets, "over", counted)
    window = ClosedWindow(0, 1000, publishers_of(BROKERS, {"p": ("b00", [{"b04"}] * 8)}))
    fewer = BROKERS[:6]
    assert window.over(fewer) is window.over(fewer)
    assert made == [fewer]
