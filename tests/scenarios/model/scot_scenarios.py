"""Structured cyclic overlays whose plans move publishers alone; :mod:`scripted_scenario` explains the steps.

Both epochs of such a plan have the same subscriptions. In the square, b0-b1 and b2-b3 are regions, b0-b2 and b1-b3
clusters; the pair and the line have one cluster.
"""

from __future__ import annotations

from regraft.overlay.scot.scot_configuration import ScotConfiguration
from tests.scenarios.model.plain_controller import plan
from tests.scenarios.model.scripted_scenario import Scenario

PAIR = ScotConfiguration(0, (("b0",), ("b1",)), ((0, 1),))
LINE = ScotConfiguration(0, (("b0",), ("b1",), ("b2",)), ((0, 1), (1, 2)))
SQUARE = ScotConfiguration(0, (("b0", "b1"), ("b2", "b3")), ((0, 1),))
MOVE = plan(moves=(("p", "b0", "b1"),))
ACROSS = plan(moves=(("p", "b0", "b2"),))
MAYBE = plan(moves=(("p", "b0", "b2"),), may_abort=True)
PERHAPS = plan(moves=(("p", "b0", "b1"),), may_abort=True)
BACK = plan(moves=(("p", "b1", "b0"),))

SCOTS = (
    Scenario(
        "scot_end", "a subscription ends while a publisher moves", PAIR, {"p": "@b0 | * *", "s": "@b1 | -"}, (MOVE,)
    ),
    Scenario("scot_ends", "a publisher ends while it moves", PAIR, {"p": "@b0 | * -", "s": "@b1"}, (MOVE,)),
    Scenario(
        "scot_late", "a publisher that was to move comes during the plan", PAIR, {"p": "@b0 *", "s": "@b1"}, (MOVE,)
    ),
    Scenario(
        "scot_again",
        "a publisher that is to move ends and comes again elsewhere",
        PAIR,
        {"p": "@b0 | - @b1 *", "s": "@b1"},
        (MOVE,),
    ),
    Scenario(
        "scot_repeated",
        "all commands come twice",
        PAIR,
        {"p": "@b0 | * *", "s": "@b1"},
        (MOVE,),
        is_repeating=True,
    ),
    Scenario(
        "scot_back",
        "a publisher moves, perhaps not, and moves again",
        PAIR,
        {"p": "@b0 | * *", "s": "@b1"},
        (PERHAPS, MOVE, BACK),
    ),
    Scenario("scot_line", "a subscription comes two brokers away", LINE, {"p": "@b0 | * *", "s": "@b2"}, (MOVE,)),
    Scenario(
        "scot_line_abort",
        "a subscription comes during a plan that may be aborted, and during the next one",
        LINE,
        {"p": "@b0 | * *", "s": "@b2"},
        (PERHAPS, MOVE),
    ),
    Scenario(
        "scot_death",
        "a broker dies while a publisher moves and a subscription comes",
        LINE,
        {"p": "@b0 | *", "s": "@b1"},
        (MOVE,),
        mortals=("b2",),
    ),
    Scenario(
        "scot_rival",
        "two controllers move a publisher",
        PAIR,
        {"p": "@b0 | *", "s": "@b1"},
        (PERHAPS,),
        rival=PERHAPS,
    ),
    Scenario("scot_cluster", "a publisher moves to another cluster", SQUARE, {"p": "@b0 | * *", "s": "@b3 |"}, (MOVE,)),
    Scenario("scot_near", "a subscription comes at the next home", SQUARE, {"p": "@b0 | *", "s": "@b1"}, (MOVE,)),
    Scenario("scot_region", "a subscription comes in the old region", SQUARE, {"p": "@b0 | *", "s": "@b1"}, (ACROSS,)),
    Scenario(
        "scot_region_end", "a subscription ends in the next region", SQUARE, {"p": "@b0 | *", "s": "@b3 | -"}, (ACROSS,)
    ),
    Scenario("scot_abort", "a subscription comes in the next region", SQUARE, {"p": "@b0 | *", "s": "@b3"}, (MAYBE,)),
    Scenario(
        "scot_publisher",
        "a publisher and a subscription come during a plan",
        SQUARE,
        {"p": "@b0 *", "s": "@b1"},
        (plan(),),
    ),
)
