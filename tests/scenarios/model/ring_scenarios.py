"""Scenarios of a Chord ring; :mod:`scripted_scenario` explains the steps."""

from __future__ import annotations

from tests.scenarios.model.member_scenarios import MEMBER_RINGS
from tests.scenarios.model.plain_controller import plan
from tests.scenarios.model.ring_detours import DETOURS
from tests.scenarios.model.scripted_scenario import Scenario, ring, topic_at

PAIR = ring(b0=3, b1=40)
AT_1 = topic_at(PAIR, "b1")
AT_0 = topic_at(PAIR, "b0")
TRIO = ring(b0=3, b1=20, b2=40)
AT_2 = topic_at(TRIO, "b2")
TURN = plan(ids={"b0": 40, "b1": 3})
SHIFT = plan(ids={"b0": 20, "b1": 40, "b2": 3})
MOVE = plan(moves=(("u", "b0", "b1"),))

# Each of these once showed a fault of the protocol.
FAULTS = (
    Scenario(
        "ring_rejoin",
        "while a prepare is slow, a user ends a topic and another asks for it",
        PAIR,
        {"p": "@b1 | *>plan1", "u": "@b0 | =", "v": "@b0"},
        (plan(),),
        AT_1,
    ),
    Scenario(
        "ring_retire_held",
        "a user comes while the old epoch is drained",
        PAIR,
        {"p": "@b0 | *", "w": "@b1 |", "u": "@b0"},
        (TURN,),
        AT_1,
    ),
    Scenario(
        "ring_reconnect",
        "a publisher ends and comes again elsewhere under its name",
        TRIO,
        {"p": "@b0 | - @b1 *", "u": "@b0 | -"},
        (),
        AT_2,
    ),
    Scenario(
        "ring_late_leave",
        "a broker leaves a tree, and its parent hears of it when the epoch has been retired",
        PAIR,
        {"u": "@b0 | -"},
        (plan(),),
        AT_1,
    ),
)

DRAWN = (  # Found among random scenarios.
    Scenario(
        "ring_late_unregister",
        "a publisher's end comes to the rendezvous when the epoch has been retired",
        PAIR,
        {"p": "@b1 | - @b0 *", "u": "@b0 |"},
        (plan(),),
        AT_0,
    ),
    Scenario(
        "ring_late_unregister_end",
        "the same, with a user that comes and ends",
        PAIR,
        {"p": "@b1 | * -", "u": "@b0 ="},
        (plan(),),
        AT_0,
    ),
    Scenario(
        "ring_late_leave_comes",
        "a user leaves and comes to the rendezvous while a plan is executed",
        PAIR,
        {"p": "@b0 | -", "v": "@b1 | - @b0 -"},
        (plan(),),
        AT_0,
    ),
)

MOVES = (
    Scenario("ring_move", "a user moves", PAIR, {"p": "@b1 | * *", "u": "@b0 |"}, (MOVE,), AT_1),
    Scenario("ring_move_far", "a user moves to the rendezvous", PAIR, {"p": "@b0 | * *", "u": "@b0 |"}, (MOVE,), AT_1),
    Scenario("ring_move_subscribe", "a user comes and is to move", PAIR, {"p": "@b1 | *", "u": "@b0"}, (MOVE,), AT_1),
    Scenario("ring_move_leave", "a user leaves while it moves", PAIR, {"p": "@b0 | *", "u": "@b0 | -"}, (MOVE,), AT_1),
    Scenario(
        "ring_move_change",
        "a user changes what it wants while it moves",
        PAIR,
        {"p": "@b1 | *", "u": "@b0 | = =+"},
        (MOVE,),
        AT_1,
    ),
    Scenario(
        "ring_move_rejoin",
        "a user leaves while it moves, and comes again",
        PAIR,
        {"p": "@b1 | *", "u": "@b0 | - @b0"},
        (MOVE,),
        AT_1,
    ),
    Scenario(
        "ring_move_elsewhere",
        "a user leaves while it moves, and comes elsewhere",
        PAIR,
        {"p": "@b1 | *", "u": "@b0 | - @b1"},
        (MOVE,),
        AT_1,
    ),
    Scenario(
        "ring_move_back",
        "a user moves, perhaps not, and moves back",
        PAIR,
        {"p": "@b1 | * *", "u": "@b0 |"},
        (plan(moves=(("u", "b0", "b1"),), may_abort=True), plan(moves=(("u", "b1", "b0"),))),
        AT_1,
    ),
    Scenario(
        "ring_move_turn",
        "a user moves while IDs are exchanged",
        PAIR,
        {"p": "@b0 | * *", "u": "@b0 |"},
        (plan(ids={"b0": 40, "b1": 3}, moves=(("u", "b0", "b1"),)),),
        AT_1,
    ),
    Scenario(
        "ring_move_turn_leave",
        "a user leaves while it moves and IDs are exchanged",
        PAIR,
        {"p": "@b1 | *", "u": "@b0 | -"},
        (plan(ids={"b0": 40, "b1": 3}, moves=(("u", "b0", "b1"),)),),
        AT_1,
    ),
    Scenario(
        "ring_move_two",
        "a user moves to where another one leaves",
        PAIR,
        {"p": "@b1 | *", "u": "@b0 |", "v": "@b1 | -"},
        (MOVE,),
        AT_1,
    ),
)

TURNS = (
    Scenario("ring_turn", "IDs are exchanged", PAIR, {"p": "@b0 | * *", "u": "@b0 |"}, (TURN,), AT_1),
    Scenario(
        "ring_turn_leave", "IDs are exchanged, a user leaves", PAIR, {"p": "@b0 | * *", "u": "@b0 | -"}, (TURN,), AT_1
    ),
    Scenario(
        "ring_turn_subscribe",
        "IDs are exchanged, a user comes and leaves",
        PAIR,
        {"p": "@b0 | *", "u": "@b0 -"},
        (TURN,),
        AT_1,
    ),
    Scenario(
        "ring_turn_end", "IDs are exchanged, a publisher ends", PAIR, {"p": "@b0 | * -", "u": "@b1 | -"}, (TURN,), AT_1
    ),
    Scenario(
        "ring_turn_advertise",
        "IDs are exchanged, a publisher comes",
        PAIR,
        {"p": "@b0 * *", "u": "@b0 | -"},
        (TURN,),
        AT_1,
    ),
    Scenario(
        "ring_turn_two",
        "IDs are exchanged, one user leaves, another comes",
        PAIR,
        {"p": "@b1 | *", "u": "@b0 | -", "v": "@b0"},
        (TURN,),
        AT_1,
    ),
    Scenario(
        "ring_turn_abort",
        "IDs are exchanged, perhaps called off, and exchanged again",
        PAIR,
        {"p": "@b0 | * *", "u": "@b1 | -"},
        (plan(ids={"b0": 40, "b1": 3}, may_abort=True), TURN),
        AT_1,
    ),
    Scenario("ring_shift", "three brokers exchange IDs", TRIO, {"p": "@b0 | * *", "u": "@b1 |"}, (SHIFT,), AT_2),
    Scenario(
        "ring_shift_leave",
        "three brokers exchange IDs, a user leaves",
        TRIO,
        {"p": "@b0 | *", "u": "@b1 | -"},
        (SHIFT,),
        AT_2,
    ),
    Scenario(
        "ring_shift_end",
        "three brokers exchange IDs, a publisher ends",
        TRIO,
        {"p": "@b0 | * -", "u": "@b1 |"},
        (SHIFT,),
        AT_2,
    ),
)

LARGE = (
    Scenario(
        "ring_repeat_two_plans",
        "every command comes twice, the first of two plans may be called off",
        PAIR,
        {"p": "@b0 | *", "u": "@b0 |"},
        (plan(ids={"b0": 40, "b1": 3}, may_abort=True), plan()),
        AT_1,
        is_large=True,
        is_repeating=True,
    ),
    Scenario(
        "ring_shift_subscribe",
        "three brokers exchange IDs, a user comes and leaves",
        TRIO,
        {"p": "@b0 | *", "u": "@b1 -"},
        (SHIFT,),
        AT_2,
        is_large=True,
    ),
    Scenario(
        "ring_reconnect_turn",
        "a publisher comes again elsewhere while IDs are exchanged",
        PAIR,
        {"p": "@b0 | * - @b1 *", "u": "@b0 |"},
        (TURN,),
        AT_1,
        is_large=True,
    ),
    Scenario(
        "ring_shift_move",
        "three brokers exchange IDs, a user moves and leaves",
        TRIO,
        {"p": "@b0 | *", "u": "@b1 | -"},
        (plan(ids={"b0": 20, "b1": 40, "b2": 3}, moves=(("u", "b1", "b2"),)),),
        AT_2,
        is_large=True,
    ),
    Scenario(
        "ring_two_plans",
        "two plans, the first perhaps called off, while a user comes and goes",
        PAIR,
        {"p": "@b0 | * -", "u": "@b0 | - @b0"},
        (plan(ids={"b0": 40, "b1": 3}, moves=(("u", "b0", "b1"),), may_abort=True), plan(ids={"b0": 3, "b1": 40})),
        AT_1,
        is_large=True,
    ),
)

MORE = (
    Scenario("ring_quiet_plan", "a plan that changes nothing", PAIR, {"p": "@b0 | * -", "u": "@b0 -"}, (plan(),), AT_1),
    Scenario("ring_flush", "a publisher and a user end", TRIO, {"p": "@b0 | * -", "u": "@b1 | -"}, (), AT_2),
    Scenario(
        "ring_flush_two",
        "two publishers end, a user leaves",
        TRIO,
        {"p": "@b0 | * -", "q": "@b1 | * -", "u": "@b1 | -"},
        (),
        AT_2,
    ),
    Scenario("ring_flush_twice", "two users end", TRIO, {"p": "@b0 | * *", "u": "@b1 | -", "v": "@b1 | -"}, (), AT_2),
    Scenario("ring_reconnect_twice", "a publisher comes again twice", TRIO, {"p": "@b0 | - @b1 - @b2"}, (), AT_2),
    Scenario("ring_change", "a user changes what it wants", TRIO, {"p": "@b0 | * *", "u": "@b1 = =+"}, (), AT_2),
    Scenario(
        "ring_move_end", "a user moves, the publisher ends", PAIR, {"p": "@b1 | * -", "u": "@b0 |"}, (MOVE,), AT_1
    ),
    Scenario(
        "ring_move_advertise", "a user moves, a publisher comes", PAIR, {"p": "@b0 * -", "u": "@b0 |"}, (MOVE,), AT_1
    ),
    Scenario(
        "ring_move_topics",
        "a user of two topics moves and ends one",
        PAIR,
        {"p": "@b1 | *", "u": f"@b0:{AT_1},{AT_0} | ={AT_1}"},
        (MOVE,),
        AT_1,
    ),
    Scenario(
        "ring_move_more",
        "a user asks for one more topic and is to move",
        PAIR,
        {"p": "@b1 | *", "u": f"@b0:{AT_0} | ={AT_0},{AT_1}"},
        (MOVE,),
        AT_1,
    ),
    Scenario(
        "ring_move_exchange",
        "two users exchange their homes",
        PAIR,
        {"p": "@b1 | *", "u": "@b0 |", "v": "@b1 | -"},
        (plan(moves=(("u", "b0", "b1"), ("v", "b1", "b0"))),),
        AT_1,
    ),
    Scenario(
        "ring_move_rejoin_topic",
        "a user that moves ends its topic, and another one asks for it",
        PAIR,
        {"u": "@b0 | =", "v": "@b0"},
        (MOVE,),
        AT_1,
    ),
    Scenario(
        "ring_move_rejoin_late",
        "the same, and what is published behind the plan is owed to the other one",
        PAIR,
        {"p": "@b1 | *>plan1", "u": "@b0 | =", "v": "@b0"},
        (MOVE,),
        AT_1,
    ),
    Scenario(
        "ring_move_two_publishers",
        "a user of two publishers moves",
        PAIR,
        {"p": "@b0 | * *", "q": "@b1 |", "u": "@b0 |"},
        (MOVE,),
        AT_1,
    ),
    Scenario(
        "ring_move_beside",
        "a user moves beside another one of its topic",
        TRIO,
        {"p": "@b2 | *", "u": "@b0 |", "v": "@b1 |"},
        (MOVE,),
        AT_2,
    ),
    Scenario(
        "ring_move_advertise_far",
        "a user moves to the rendezvous, a publisher comes elsewhere",
        TRIO,
        {"p": "@b0", "u": "@b1 |"},
        (plan(moves=(("u", "b1", "b2"),)),),
        AT_2,
    ),
    Scenario(
        "ring_turn_reconnect",
        "IDs are exchanged, a publisher ends and comes again",
        PAIR,
        {"p": "@b0 | - @b0 *", "u": "@b1 |"},
        (TURN,),
        AT_1,
    ),
)

REPEATS = (
    Scenario(
        "ring_repeat_move",
        "every command comes twice, a user moves",
        PAIR,
        {"p": "@b1 | *", "u": "@b0 |"},
        (MOVE,),
        AT_1,
        is_repeating=True,
    ),
    Scenario(
        "ring_repeat_abort",
        "every command comes twice, a plan may be called off",
        PAIR,
        {"p": "@b0 | *", "u": "@b0 |"},
        (plan(ids={"b0": 40, "b1": 3}, may_abort=True),),
        AT_1,
        is_repeating=True,
    ),
)

RIVALS = (
    Scenario(
        "ring_two_controllers",
        "two controllers that know nothing of each other want the same for the same epoch",
        PAIR,
        {"p": "@b1 | *", "u": "@b0 |"},
        (MOVE,),
        AT_1,
        rival=MOVE,
    ),
    Scenario(
        "ring_two_controllers_turn",
        "one controller moves a user, another one exchanges IDs",
        PAIR,
        {"p": "@b1 | *", "u": "@b0 |"},
        (MOVE,),
        AT_1,
        rival=plan(ids={"b0": 40, "b1": 3}),
    ),
)

RINGS = FAULTS + DRAWN + MOVES + TURNS + DETOURS + MORE + REPEATS + LARGE + RIVALS + MEMBER_RINGS
