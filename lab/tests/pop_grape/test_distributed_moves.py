"""Executing the homes' decisions: failed transitions, simultaneous decisions of publishers, traffic meanwhile."""

import random

from lab.tests.pop_grape.traced_overlays import PUBLISHER, fig_1
from regraft.api.planning import TERM_FIRST
from regraft.api.transitions import Command, CommandPhase
from regraft_lab.pop_grape.distributed_pop import PopSettings
from regraft_lab.pop_grape.distributed_relocation import RelocatingOverlay
from regraft_lab.pop_grape.distributed_selection import GrapeSettings
from regraft_lab.pop_grape.quote_workload import QuoteSettings, QuoteTraffic, draw_workload
from regraft_lab.pop_grape.testbeds import planetlab_testbed
from regraft_lab.psoop.distributed_messages import MessageKind

FOREIGN_EPOCH = 2  # the later one of the two epochs that are tried next


def test_a_publisher_whose_transition_is_refused_is_traced_again() -> None:
    """While another plan holds B8, or its epoch was aborted, nothing moves; the next round of traces moves it."""
    traced = fig_1(PopSettings(traced_max=1_000, threshold=2))
    overlay = traced.overlay
    links = (("B6", "B8"),), (("B7", "B8"),)
    digest = overlay.inventory.bootstrap.replaced(FOREIGN_EPOCH, *links).digest
    overlay.virtual.send_command(
        Command("other", CommandPhase.PREPARE, "B8", 0, FOREIGN_EPOCH, *links, digest, term=TERM_FIRST)
    )
    overlay.virtual.run_for(100.0)
    for failed in (1, 2):
        traced.publish([0.0] * 2)
        overlay.virtual.run_for(10_000.0)
        assert [decision.target for decision in overlay.decisions] == ["B6"] * failed
        assert (overlay.moves.driver.aborted, overlay.homes) == (failed, {PUBLISHER: "B1"})
        overlay.virtual.send_command(
            Command("other", CommandPhase.ABORT, "B8", 0, FOREIGN_EPOCH, digest=digest, term=TERM_FIRST)
        )
        overlay.virtual.run_for(100.0)
    traced.publish([0.0] * 2)
    assert traced.end().is_clean
    assert overlay.homes == {PUBLISHER: "B6"}
    assert len(overlay.moves.executed) == 1


def test_simultaneous_decisions_share_transitions() -> None:
    """Stock quotes of five publishers on 15 brokers: all moves lose nothing, several share a transition."""
    rng = random.Random(3)
    inventory = planetlab_testbed(rng, 15)
    workload = draw_workload(inventory.brokers, QuoteSettings("clustered", "shared", 4, 5, 12, 10.0), rng)
    overlay = RelocatingOverlay(inventory, 3, GrapeSettings(threshold=50))
    traffic = QuoteTraffic(overlay.virtual.overlay, workload, overlay.virtual.now_ms + 5_000.0)
    traffic.start()
    overlay.virtual.run_for(25_000.0)
    overlay.settle()
    traffic.stop()
    assert overlay.virtual.finish().is_clean
    moved = overlay.moves.executed
    assert {move.publisher: move.target for move, _ in moved} == {
        publisher: home for publisher, home in overlay.homes.items() if home != workload.homes[publisher]
    }
    assert 0 < overlay.moves.driver.executed < len(moved)
    counted = overlay.moves.transition_tally.messages
    # Four commands to and five answers from every broker but the executor itself: prepare, activate, drained, retire.
    assert counted[MessageKind.COMMAND] >= 3 * 14 * overlay.moves.driver.executed
    assert counted[MessageKind.MARKER] == 2 * 14 * overlay.moves.driver.executed
    assert all(over_ms > move.decided_ms for move, over_ms in moved)
