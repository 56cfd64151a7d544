"""Scenarios of a ring on which a path leads over another broker, or becomes shorter or longer."""

from __future__ import annotations

from tests.scenarios.model.plain_controller import plan
from tests.scenarios.model.scripted_scenario import Scenario, ring, topic_at

NEAR = ring(b0=3, b1=12, b2=20)
IN_NEAR, FROM_NEAR = topic_at(NEAR, "b1"), topic_at(NEAR, "b2")
DETOUR = plan(ids={"b0": 20, "b1": 12, "b2": 3})  # The path from b2 to b1 led over b0, and becomes direct.
BYPASS = plan(ids={"b0": 12, "b1": 3, "b2": 20})  # The same, and b2 stays where it is.

DETOURS = (
    Scenario(
        "ring_detour", "a publisher's way becomes shorter", NEAR, {"p": "@b2 | * *", "u": "@b1 |"}, (DETOUR,), IN_NEAR
    ),
    Scenario(
        "ring_detour_leave",
        "a publisher's way becomes shorter, a user leaves",
        NEAR,
        {"p": "@b2 | *", "u": "@b1 | -"},
        (DETOUR,),
        IN_NEAR,
    ),
    Scenario(
        "ring_detour_end",
        "a publisher's way becomes shorter, publisher and user end",
        NEAR,
        {"p": "@b2 | -", "u": "@b1 | -"},
        (DETOUR,),
        IN_NEAR,
    ),
    Scenario(
        "ring_move_from_between",
        "a user moves away from between the rendezvous and another one that comes",
        NEAR,
        {"p": "@b2 | *", "u": "@b0 |", "v": "@b1"},
        (plan(moves=(("u", "b0", "b2"),)),),
        FROM_NEAR,
    ),
    Scenario(
        "ring_bypass_again",
        "a user ends its topic, another one asks for it when the way is shorter",
        NEAR,
        {"p": "@b2 | * *>plan1", "u": "@b1 | -", "v": "@b1>plan1"},
        (BYPASS,),
        FROM_NEAR,
    ),
    Scenario(
        "ring_bypass", "a user's way becomes shorter", NEAR, {"p": "@b2 | * *", "u": "@b1 |"}, (BYPASS,), FROM_NEAR
    ),
    Scenario(
        "ring_bypass_two",
        "a user's way becomes shorter, another's longer, one leaves",
        NEAR,
        {"p": "@b2 | *", "u": "@b1 |", "v": "@b0 | -"},
        (BYPASS,),
        FROM_NEAR,
    ),
)

# Shows a fault that still exists: a publisher's end in the old epoch overtakes its notifications in the new one.
OPEN = Scenario(
    "ring_detour_end_behind",
    "a publisher's way becomes shorter, it publishes and ends, and so does a user",
    NEAR,
    {"p": "@b2 | * -", "u": "@b1 | -"},
    (DETOUR,),
    IN_NEAR,
)
