"""Between which brokers of a fleet's overlays one is, before, during and after a plan."""

from __future__ import annotations

from msgspec.structs import replace

from regraft.overlay.scot.scot_configuration import ScotConfiguration
from regraft.overlay.tree.tree_configuration import TreeConfiguration
from regraft.producers.real_fleet.fleet_nodes import FleetOverlays, separation_by
from regraft.schemas.command import Command, CommandPhase

BROKERS = ("b01", "b02", "b03", "b04")


def together(overlays: FleetOverlays, one: str, other: str) -> list[bool]:
    """Return, for each overlay, whether two brokers are still connected without b02."""
    return [not separates(one, other) for separates in overlays.separations_by("b02")]


def test_during_a_plan_there_are_two_overlays() -> None:
    """A line through b02 becomes one around it: the first counts alone, from activation on both, then the other."""
    start = TreeConfiguration.of(1, BROKERS, [("b01", "b02"), ("b02", "b03"), ("b03", "b04")])
    overlays = FleetOverlays(start)
    assert together(overlays, "b01", "b03") == [False]
    after = TreeConfiguration.of(2, BROKERS, [("b01", "b03"), ("b02", "b03"), ("b03", "b04")])
    command = Command("plan-1", CommandPhase.PREPARE, "b01", 1, 2, (("b01", "b02"),), (("b01", "b03"),), after.digest)
    for broker in BROKERS:
        assert not overlays.note_command(replace(command, broker=broker))
    assert together(overlays, "b01", "b03") == [False]
    assert overlays.note_command(replace(command, phase=CommandPhase.ACTIVATE))
    assert not overlays.note_command(replace(command, phase=CommandPhase.ACTIVATE, broker="b02"))
    assert together(overlays, "b01", "b03") == [False, True]
    overlays.note_command(replace(command, phase=CommandPhase.RETIRE))
    assert together(overlays, "b01", "b03") == [True]


def test_an_aborted_plan_leaves_the_overlay_as_it_is() -> None:
    """An overlay that was prepared but not activated carries nothing."""
    overlays = FleetOverlays(TreeConfiguration.of(1, BROKERS, [("b01", "b02"), ("b02", "b03"), ("b03", "b04")]))
    after = TreeConfiguration.of(2, BROKERS, [("b01", "b03"), ("b02", "b03"), ("b03", "b04")])
    command = Command("plan-1", CommandPhase.PREPARE, "b01", 1, 2, (("b01", "b02"),), (("b01", "b03"),), after.digest)
    overlays.note_command(command)
    overlays.note_command(replace(command, phase=CommandPhase.ABORT))
    assert not overlays.note_command(replace(command, phase=CommandPhase.ACTIVATE))
    assert together(overlays, "b01", "b03") == [False]


def test_on_a_structured_cyclic_overlay_a_broker_is_between_those_whose_static_route_crosses_it() -> None:
    """b02 has no part in what b01 publishes for b03, although all are linked in circles."""
    separates = separation_by("b02", ScotConfiguration(0, (("b01", "b02"), ("b03", "b04")), ((0, 1),)))
    assert separates("b01", "b04")
    assert not separates("b01", "b03")
    assert separates("b01", "b09")
