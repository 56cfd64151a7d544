"""Scenarios in which brokers join and leave; :mod:`scripted_scenario` explains the steps."""

from __future__ import annotations

from tests.scenarios.model.plain_controller import plan
from tests.scenarios.model.scripted_scenario import Scenario, links_of, ring, topic_at, tree

TWO = tree("b0-b1")
LINE = tree("b0-b1", "b1-b2")
JOIN_AS_LEAF = links_of("b0-b1", "b1-b2")
JOIN_BETWEEN = links_of("b0-b2", "b1-b2")
PAIR = ring(b0=3, b1=40)
TRIO = ring(b0=3, b1=20, b2=40)
WITH_B2 = {"b0": 3, "b1": 40, "b2": 20}
WITHOUT_B1 = {"b0": 3, "b2": 40}

MEMBER_TREES = (
    Scenario(
        "tree_join",
        "a leaf joins, a publisher ends",
        TWO,
        {"p": "@b0 | * -", "s": "@b1 |"},
        (plan(links=JOIN_AS_LEAF),),
    ),
    Scenario(
        "tree_join_between",
        "a broker joins between two others",
        TWO,
        {"p": "@b0 | * *", "s": "@b1 |"},
        (plan(links=JOIN_BETWEEN),),
    ),
    Scenario(
        "tree_join_advertise",
        "a broker joins while a publisher comes",
        TWO,
        {"p": "@b0", "s": "@b1 |"},
        (plan(links=JOIN_BETWEEN),),
    ),
    Scenario(
        "tree_join_move",
        "a publisher moves to a broker that joins",
        TWO,
        {"p": "@b0 | * *", "s": "@b1 |"},
        (plan(links=JOIN_AS_LEAF, moves=(("p", "b0", "b2"),)),),
    ),
    Scenario(
        "tree_join_abort",
        "a broker is to join, perhaps does not, and joins; a publisher ends",
        TWO,
        {"p": "@b0 | -"},
        (plan(links=JOIN_AS_LEAF, may_abort=True), plan(links=JOIN_AS_LEAF)),
    ),
    Scenario(
        "tree_leave",
        "a broker leaves from between two others",
        LINE,
        {"p": "@b0 | * *", "s": "@b2 |"},
        (plan(links=links_of("b0-b2")),),
    ),
    Scenario(
        "tree_leave_move",
        "a broker leaves, its publisher moves",
        LINE,
        {"p": "@b1 | * *", "s": "@b2 |"},
        (plan(links=links_of("b0-b2"), moves=(("p", "b1", "b0"),)),),
    ),
    Scenario(
        "tree_leave_cancel",
        "a broker leaves while a subscription of its ends",
        LINE,
        {"p": "@b0 | *", "s": "@b1 | -"},
        (plan(links=links_of("b0-b2")),),
    ),
)

MEMBER_RINGS = (
    Scenario(
        "ring_join",
        "a broker joins and becomes the rendezvous",
        PAIR,
        {"p": "@b0 | * *", "u": "@b1 |"},
        (plan(ids=WITH_B2),),
        topic_at(ring(**WITH_B2), "b2"),
    ),
    Scenario(
        "ring_join_move",
        "a user moves to a broker that joins",
        PAIR,
        {"p": "@b1 | * *", "u": "@b0 |"},
        (plan(ids=WITH_B2, moves=(("u", "b0", "b2"),)),),
        topic_at(PAIR, "b1"),
    ),
    Scenario(
        "ring_leave",
        "the rendezvous leaves",
        TRIO,
        {"p": "@b0 | * *", "u": "@b2 |"},
        (plan(ids=WITHOUT_B1),),
        topic_at(TRIO, "b1"),
    ),
    Scenario(
        "ring_leave_move",
        "a broker leaves, its user moves",
        TRIO,
        {"p": "@b0 | * *", "u": "@b1 |"},
        (plan(ids=WITHOUT_B1, moves=(("u", "b1", "b2"),)),),
        topic_at(TRIO, "b0"),
    ),
)
