"""Scenarios in which brokers of a tree die and plans repair it; :mod:`scripted_scenario` explains the steps."""

from __future__ import annotations

from tests.scenarios.model.plain_controller import plan
from tests.scenarios.model.scripted_scenario import Scenario, links_of, tree

LINE = tree("b0-b1", "b1-b2")
LONG = tree("b0-b1", "b1-b2", "b2-b3")
EXCHANGE = plan(links=links_of("b0-b1", "b0-b2"))
REPAIR = plan(links=links_of("b0-b2"), is_repair=True)

LEAVE = plan(links=links_of("b0-b2"))
ONE_BY_ONE = (plan(links=links_of("b0-b2", "b2-b3"), is_repair=True), plan(links=links_of("b0-b3"), is_repair=True))

DEATH_TREES = (
    Scenario(
        "tree_death",
        "the broker between two others dies, and they are linked",
        LINE,
        {"p": "@b0 | * *", "s": "@b2 |"},
        (REPAIR,),
        mortals=("b1",),
    ),
    Scenario(
        "tree_death_subscribe",
        "a broker dies around a subscription",
        LINE,
        {"p": "@b0 | *>plan1", "s": "@b2 -"},
        (REPAIR,),
        mortals=("b1",),
    ),
    Scenario(
        "tree_death_stays",
        "a broker dies while a publisher ends and comes again",
        LINE,
        {"p": "@b0 | - @b0"},
        (REPAIR,),
        mortals=("b1",),
    ),
    Scenario(
        "tree_death_elsewhere",
        "a broker dies while a publisher ends and comes again beyond it",
        LINE,
        {"p": "@b0 | - @b2"},
        (REPAIR,),
        mortals=("b1",),
    ),
    Scenario(
        "tree_death_exchange",
        "a broker dies, perhaps while a plan is prepared or drains",
        LINE,
        {"p": "@b0 | * *", "s": "@b2 |"},
        (EXCHANGE, REPAIR),
        mortals=("b1",),
    ),
    Scenario(
        "tree_death_exchange_end",
        "a broker dies around the end of a publisher, perhaps in a plan",
        LINE,
        {"p": "@b0 | -"},
        (EXCHANGE, REPAIR),
        mortals=("b1",),
    ),
    Scenario(
        "tree_death_exchange_advertise",
        "a broker dies while a publisher comes, perhaps in a plan",
        LINE,
        {"p": "@b0 *>plan2", "s": "@b2 |"},
        (EXCHANGE, REPAIR),
        mortals=("b1",),
    ),
    Scenario(
        "tree_death_abort",
        "a broker dies, perhaps in a plan that is called off",
        LINE,
        {"p": "@b0 | -"},
        (plan(links=links_of("b0-b1", "b0-b2"), may_abort=True), REPAIR),
        mortals=("b1",),
    ),
    Scenario(
        "tree_death_leave",
        "a broker leaves and dies, perhaps in that plan, around the end of a publisher",
        LINE,
        {"p": "@b0 | -"},
        (LEAVE, REPAIR),
        mortals=("b1",),
    ),
    Scenario(
        "tree_death_two",
        "two brokers die, perhaps the second one in the repair of the first",
        LONG,
        {"p": "@b0 | -"},
        ONE_BY_ONE,
        mortals=("b1", "b2"),
    ),
    Scenario(
        "tree_death_two_publish",
        "two brokers die, perhaps the second one in the repair of the first",
        LONG,
        {"p": "@b0 | *>plan1", "s": "@b3 |"},
        ONE_BY_ONE,
        mortals=("b1", "b2"),
    ),
)
