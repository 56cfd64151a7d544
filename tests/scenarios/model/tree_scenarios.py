"""Scenarios of a tree that routes by content; :mod:`scripted_scenario` explains the steps."""

from __future__ import annotations

from tests.scenarios.model.death_scenarios import DEATH_TREES
from tests.scenarios.model.member_scenarios import MEMBER_TREES
from tests.scenarios.model.plain_controller import plan
from tests.scenarios.model.scripted_scenario import Scenario, links_of, tree

TWO = tree("b0-b1")
LINE = tree("b0-b1", "b1-b2")
BENT = links_of("b0-b2", "b1-b2")
LONG = tree("b0-b1", "b1-b2", "b2-b3")
BOW = links_of("b0-b3", "b1-b2", "b2-b3")
MOVE = plan(moves=(("p", "b0", "b1"),))
SWAP = plan(links=BENT)

# Each of these once showed a fault of the protocol.
FAULTS = (
    Scenario(
        "tree_early_end", "a publisher ends before it is confirmed, then a plan comes", TWO, {"p": "@b0 -"}, (plan(),)
    ),
    Scenario(
        "tree_reconnect",
        "a publisher ends and comes again elsewhere under its name",
        TWO,
        {"s": "@b1 |", "p": "@b0 | * - @b1 *"},
    ),
    Scenario(
        "tree_phantom_forward",
        "a publisher that is to move ends meanwhile; a later one comes",
        TWO,
        {"p": "@b0 |", "q": "@b1 | -", "r": "@b0>plan1 *", "s": "@b1 |"},
        (plan(moves=(("p", "b0", "b1"), ("q", "b1", "b0"))),),
    ),
    Scenario(
        "tree_leak",
        "a far broker derives a subscription from a publisher that others have forgotten",
        LINE,
        {"p": "@b2 | -", "s": "@b0 |"},
        (plan(),),
    ),
)

DRAWN = (  # Found among random scenarios.
    Scenario(
        "tree_mover_comes_late",
        "a publisher that was to move comes during the plan",
        TWO,
        {"p": "@b0 *", "s": "@b1 |"},
        (MOVE,),
    ),
    Scenario(
        "tree_reconnect_early",
        "a publisher ends before it is confirmed and comes elsewhere during a plan",
        tree("b0-b2", "b1-b2"),
        {"p": "@b1 - @b2", "s": "@b0 |"},
        (plan(),),
    ),
)

MOVES = (
    Scenario("tree_move", "a publisher moves, a subscription ends", TWO, {"p": "@b0 | * *", "s": "@b1 | -"}, (MOVE,)),
    Scenario(
        "tree_move_subscribe", "a publisher moves, somebody subscribes", TWO, {"p": "@b0 | * *", "s": "@b1"}, (MOVE,)
    ),
    Scenario(
        "tree_move_near", "a publisher moves away from a subscriber", TWO, {"p": "@b0 | * *", "s": "@b0 -"}, (MOVE,)
    ),
    Scenario("tree_move_end", "a publisher ends while it moves", TWO, {"p": "@b0 | * -", "s": "@b1 | -"}, (MOVE,)),
    Scenario(
        "tree_move_back",
        "a publisher moves, perhaps not, and moves back",
        TWO,
        {"p": "@b0 | * *", "s": "@b1 |"},
        (plan(moves=(("p", "b0", "b1"),), may_abort=True), plan(moves=(("p", "b1", "b0"),))),
    ),
    Scenario(
        "tree_move_reconnect",
        "a publisher that is to move ends and comes again elsewhere",
        TWO,
        {"p": "@b0 | - @b1 *", "s": "@b0 |"},
        (MOVE,),
    ),
    Scenario(
        "tree_move_swap",
        "a publisher moves along while links are swapped",
        LINE,
        {"p": "@b0 | * *", "s": "@b1 | -"},
        (plan(links=BENT, moves=(("p", "b0", "b1"),)),),
    ),
    Scenario(
        "tree_move_swap_subscribe",
        "a publisher moves while links are swapped and somebody subscribes",
        LINE,
        {"p": "@b0 | * *", "s": "@b2"},
        (plan(links=BENT, moves=(("p", "b0", "b1"),)),),
    ),
    Scenario(
        "tree_move_both",
        "two publishers exchange their homes",
        TWO,
        {"p": "@b0 | *", "q": "@b1 | *", "s": "@b1"},
        (plan(moves=(("p", "b0", "b1"), ("q", "b1", "b0"))),),
    ),
)

SWAPS = (
    Scenario("tree_swap", "links are swapped", LINE, {"p": "@b0 | * *", "s": "@b1 |"}, (SWAP,)),
    Scenario(
        "tree_swap_cancel", "links are swapped, a subscription ends", LINE, {"p": "@b0 | * *", "s": "@b1 | -"}, (SWAP,)
    ),
    Scenario(
        "tree_swap_subscribe", "links are swapped, somebody subscribes", LINE, {"p": "@b0 | * *", "s": "@b1 -"}, (SWAP,)
    ),
    Scenario(
        "tree_swap_advertise", "links are swapped, a publisher comes", LINE, {"p": "@b0 * *", "s": "@b1 | -"}, (SWAP,)
    ),
    Scenario(
        "tree_swap_new", "links are swapped, publisher and subscription come", LINE, {"p": "@b0 *", "s": "@b1"}, (SWAP,)
    ),
    Scenario(
        "tree_swap_abort",
        "links are swapped, perhaps called off, and swapped again",
        LINE,
        {"p": "@b0 | * *", "s": "@b1 |"},
        (plan(links=BENT, may_abort=True), SWAP),
    ),
    Scenario(
        "tree_swap_abort_subscribe",
        "links are swapped, perhaps called off, while somebody subscribes",
        LINE,
        {"p": "@b0 | *", "s": "@b1 -"},
        (plan(links=BENT, may_abort=True),),
    ),
    Scenario(
        "tree_swap_end",
        "links are swapped, a publisher and a subscription end",
        LINE,
        {"p": "@b0 | -", "s": "@b1 | -"},
        (SWAP,),
    ),
    Scenario(
        "tree_swap_two",
        "links are swapped while one subscription ends and another comes",
        LINE,
        {"p": "@b0 | *", "s": "@b1 | -", "t": "@b1"},
        (SWAP,),
    ),
    Scenario(
        "tree_swap_one_stays",
        "links are swapped, a publisher ends, another stays",
        LINE,
        {"p": "@b0 | * -", "q": "@b2 | *", "s": "@b1 |"},
        (SWAP,),
    ),
    Scenario(
        "tree_swap_back",
        "links are swapped and swapped back while somebody subscribes",
        LINE,
        {"p": "@b0 | *", "s": "@b1 -"},
        (SWAP, plan(links=links_of("b0-b1", "b1-b2"))),
    ),
)

LARGE = (
    Scenario(
        "tree_repeat_two_plans",
        "every command comes twice, the first of two plans may be called off",
        TWO,
        {"p": "@b0 | *", "s": "@b1 |"},
        (plan(moves=(("p", "b0", "b1"),), may_abort=True), plan()),
        is_large=True,
        is_repeating=True,
    ),
    Scenario(
        "tree_long_swap",
        "four brokers, links are swapped",
        LONG,
        {"p": "@b0 | * *", "s": "@b2 -"},
        (plan(links=BOW),),
        is_large=True,
    ),
    Scenario(
        "tree_reconnect_swap",
        "a publisher comes again elsewhere while links are swapped",
        LINE,
        {"p": "@b0 | * - @b2 *", "s": "@b1 |"},
        (SWAP,),
        is_large=True,
    ),
    Scenario(
        "tree_churn",
        "everybody comes and goes while links are swapped",
        LINE,
        {"p": "@b0 | * -", "q": "@b2 *", "s": "@b1 -"},
        (SWAP,),
        is_large=True,
    ),
    Scenario(
        "tree_two_plans",
        "two plans, the first perhaps called off, while everybody comes and goes",
        LINE,
        {"p": "@b0 | * -", "s": "@b1 -"},
        (plan(links=BENT, moves=(("p", "b0", "b1"),), may_abort=True), plan(links=links_of("b0-b1", "b1-b2"))),
        is_large=True,
    ),
)

MORE = (
    Scenario("tree_plain", "publishers and subscriptions come and go", LINE, {"p": "@b0 * -", "s": "@b2 -"}),
    Scenario("tree_plain_two", "two publishers come and go", LINE, {"p": "@b0 | * -", "q": "@b2 * -", "s": "@b1 |"}),
    Scenario("tree_reconnect_twice", "a publisher comes again twice", LINE, {"p": "@b0 | - @b1 - @b2"}),
    Scenario("tree_reconnect_home", "a publisher comes again at once", TWO, {"p": "@b0 - @b0 *", "s": "@b1"}),
    Scenario("tree_quiet_plan", "a plan that changes nothing", LINE, {"p": "@b0 | * -", "s": "@b2 -"}, (plan(),)),
    Scenario(
        "tree_abort_end",
        "a plan is called off while a publisher and a subscription end",
        LINE,
        {"p": "@b2 | * -", "s": "@b0 | -"},
        (plan(links=BENT, may_abort=True),),
    ),
    Scenario(
        "tree_end_later",
        "a publisher ends while links are swapped, a later one comes",
        LINE,
        {"p": "@b2 | -", "q": "@b1>plan1 *", "s": "@b0 |"},
        (SWAP,),
    ),
    Scenario(
        "tree_end_next",
        "a publisher ends during a plan; the next plan moves another",
        LINE,
        {"p": "@b2 | -", "q": "@b0 | *>plan1", "s": "@b0 |"},
        (plan(), plan(moves=(("q", "b0", "b2"),))),
    ),
    Scenario(
        "tree_move_wrong",
        "the controller is mistaken about where a publisher is",
        TWO,
        {"p": "@b0 | * *", "s": "@b1 |"},
        (plan(moves=(("p", "b1", "b0"),)), plan(moves=(("p", "b0", "b1"),))),
    ),
    Scenario(
        "tree_move_wrong_far",
        "the controller is mistaken about where a publisher is that is to move elsewhere",
        LINE,
        {"p": "@b0 | * *", "s": "@b1 |"},
        (plan(moves=(("p", "b1", "b2"),)),),
    ),
    Scenario(
        "tree_move_two",
        "two publishers of one home move",
        TWO,
        {"p": "@b0 | *", "q": "@b0 | * *", "s": "@b1 |"},
        (plan(moves=(("p", "b0", "b1"), ("q", "b0", "b1"))),),
    ),
    Scenario(
        "tree_move_middle",
        "a publisher moves to the middle, a subscription ends",
        LINE,
        {"p": "@b0 | * *", "s": "@b2 | -"},
        (plan(moves=(("p", "b0", "b1"),)),),
    ),
    Scenario(
        "tree_move_new",
        "a publisher moves while another comes",
        TWO,
        {"p": "@b0 | *", "q": "@b1 *", "s": "@b0 |"},
        (MOVE,),
    ),
)

REPEATS = (
    Scenario(
        "tree_repeat_move",
        "every command comes twice, a publisher moves",
        TWO,
        {"p": "@b0 | *", "s": "@b1 |"},
        (MOVE,),
        is_repeating=True,
    ),
    Scenario(
        "tree_repeat_abort",
        "every command comes twice, a plan may be called off",
        TWO,
        {"p": "@b0 | *", "s": "@b1 |"},
        (plan(moves=(("p", "b0", "b1"),), may_abort=True),),
        is_repeating=True,
    ),
)

RIVALS = (
    Scenario(
        "tree_two_controllers",
        "two controllers that know nothing of each other want the same for the same epoch",
        TWO,
        {"p": "@b0 | *", "s": "@b1 |"},
        (MOVE,),
        rival=MOVE,
    ),
    Scenario(
        "tree_two_controllers_apart",
        "one controller moves a publisher, another one leaves all as it is and calls its plan the same",
        TWO,
        {"p": "@b0 | * *", "s": "@b1 |"},
        (MOVE,),
        rival=plan(),
    ),
)

COME = plan(moves=(("s", "b0", "b1"),))
SUBSCRIBERS = (
    Scenario("tree_subscriber", "a subscription moves", TWO, {"p": "@b0 | * *", "s": "@b0 |"}, (COME,)),
    Scenario(
        "tree_subscriber_near", "a subscription moves to the publisher", TWO, {"p": "@b1 | * *", "s": "@b0 |"}, (COME,)
    ),
    Scenario(
        "tree_subscriber_new",
        "a subscription that is to move comes meanwhile",
        TWO,
        {"p": "@b1 | *", "s": "@b0"},
        (COME,),
    ),
    Scenario(
        "tree_subscriber_advertise",
        "a publisher comes while a subscription moves",
        TWO,
        {"p": "@b1 *", "s": "@b0 |"},
        (COME,),
    ),
    Scenario(
        "tree_subscriber_back",
        "a subscription moves, perhaps not, and then back, or from where it is not",
        TWO,
        {"p": "@b0 | * *", "s": "@b0 |"},
        (plan(moves=(("s", "b0", "b1"),), may_abort=True), plan(moves=(("s", "b1", "b0"),))),
    ),
    Scenario(
        "tree_subscriber_end", "a subscription ends while it moves", TWO, {"p": "@b1 | *", "s": "@b0 | -"}, (COME,)
    ),
    Scenario(
        "tree_subscriber_abort_end",
        "a subscription ends while its move is perhaps called off",
        TWO,
        {"p": "@b0 | *", "s": "@b0 | -"},
        (plan(moves=(("s", "b0", "b1"),), may_abort=True),),
    ),
    Scenario(
        "tree_subscriber_swap",
        "a subscription moves while links are swapped",
        LINE,
        {"p": "@b0 | * *", "s": "@b1 |"},
        (plan(links=BENT, moves=(("s", "b1", "b2"),)),),
    ),
    Scenario(
        "tree_subscriber_exchange",
        "two subscriptions exchange their homes",
        TWO,
        {"p": "@b0 | *", "s": "@b0 |", "t": "@b1 |"},
        (plan(moves=(("s", "b0", "b1"), ("t", "b1", "b0"))),),
    ),
    Scenario(
        "tree_subscriber_and_publisher",
        "a publisher and a subscription exchange their homes",
        TWO,
        {"p": "@b0 | * *", "s": "@b1 |"},
        (plan(moves=(("p", "b0", "b1"), ("s", "b1", "b0"))),),
    ),
    Scenario(
        "tree_subscriber_two_controllers",
        "one of two controllers moves a subscription, the other moves it elsewhere",
        LINE,
        {"p": "@b0 | *", "s": "@b1 |"},
        (plan(moves=(("s", "b1", "b0"),)),),
        rival=plan(moves=(("s", "b1", "b2"),)),
    ),
)

TREES = SUBSCRIBERS + FAULTS + DRAWN + MOVES + SWAPS + MORE + REPEATS + LARGE + RIVALS + MEMBER_TREES + DEATH_TREES
