"""Which overlays count for a window, and for which part of it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from regraft.controller.state.overlays_in_window import overlays_in, time_shares
from regraft.overlay.tree.configuration import TreeConfiguration
from regraft.schemas.plan import ClientMove, PhaseChange, Plan, PlanPhase
from tests.controller.scripted_windows import closed_window
from tests.overlay.small_overlays import line_of

LINE = line_of(4)
TREES = {
    0: LINE,
    1: LINE.replaced(1, [("b00", "b01")], [("b00", "b02")]),
    2: LINE.replaced(2, [("b00", "b01")], [("b00", "b03")]),
}
WINDOW = replace(closed_window(LINE.brokers, [{"b00"}], 10_000), end_ms=20_000)


def plan_of(epoch: int, used_since_ms: int | None, *moves: ClientMove) -> Plan:
    phases = [(PlanPhase.PREPARING, 1), (PlanPhase.ACTIVATING, 2)]
    phases += [] if used_since_ms is None else [(PlanPhase.DRAINING, used_since_ms)]
    return Plan(
        plan=f"plan-{epoch}",
        epoch_from=epoch - 1,
        epoch_to=epoch,
        window_end_ms=0,
        proposals=(),
        links_removed=(),
        links_added=(),
        links_target=TREES[epoch].links,
        cost_before_per_s=2.0,
        cost_predicted_per_s=1.0,
        phase=phases[-1][0],
        history=tuple(PhaseChange(phase, time_ms, "") for phase, time_ms in phases),
        moves=moves,
    )


def found_in(epochs: tuple[int, int], *plans: Plan) -> list[tuple[float, int, dict[str, str]]]:
    def overlay_of(epoch: int) -> TreeConfiguration:
        return TREES[epoch].with_homes({"kept": "b00"})

    window = replace(WINDOW, epoch_min=epochs[0], epoch_max=epochs[1])
    return [(share, one.epoch, one.home_of) for share, one in overlays_in(window, plans, overlay_of)]


MOVE = ClientMove("p", "b00", "b01")
FURTHER = ClientMove("p", "b01", "b02")


@pytest.mark.parametrize(
    ("epochs", "plans", "expected"),
    [
        ((1, 1), [plan_of(1, 15_000)], [(1.0, 1, {})]),
        ((0, 1), [plan_of(1, 13_000)], [(0.3, 0, {}), (0.7, 1, {})]),
        ((0, 1), [plan_of(1, 13_000, MOVE)], [(0.3, 0, {"p": "b00"}), (0.7, 1, {"p": "b01"})]),
        (
            (0, 2),
            [plan_of(1, 13_000, MOVE), plan_of(2, 18_000, FURTHER)],
            [(0.3, 0, {"p": "b00"}), (0.5, 1, {"p": "b01"}), (0.2, 2, {"p": "b02"})],
        ),
        ((0, 1), [plan_of(1, None)], [(1.0, 0, {})]),
        ((0, 1), [plan_of(1, 21_000)], [(1.0, 0, {})]),
        ((0, 1), [plan_of(1, 9_000), plan_of(2, 15_000)], [(1.0, 1, {})]),
    ],
    ids=["one epoch", "a switch", "a move", "two plans", "not all switched", "switched later", "a straggler"],
)
def test_each_overlay_counts_for_the_time_in_which_all_published_on_it(
    epochs: tuple[int, int], plans: list[Plan], expected: list[tuple[float, int, dict[str, str]]]
) -> None:
    """An overlay is in use once all brokers have activated it; what a plan moved is where it was at the time."""
    assert [(pytest.approx(share), *rest) for share, *rest in found_in(epochs, *plans)] == expected


def test_shares_add_up_whatever_is_outside_the_window() -> None:
    """Times before and after the window do not count."""
    assert time_shares(WINDOW, [5_000, 12_000, 30_000]) == pytest.approx([0.0, 0.2, 0.8, 0.0])
    assert time_shares(WINDOW, []) == [1.0]
