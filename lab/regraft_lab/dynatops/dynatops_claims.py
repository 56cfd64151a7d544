"""The claims of Zhao13's evaluation: the place, text and judge of each.

The judges are in :mod:`experiments.dynatops.judge_location`, ``judge_poisson`` and ``judge_reassignment``. Claims of
ours do not belong here.
"""

from __future__ import annotations

from regraft_lab.claim_evidence import Claim
from regraft_lab.dynatops.dynatops_tasks import CLUSTER
from regraft_lab.dynatops.judge_location import (
    GREATLY,
    judge_against_bayeux,
    judge_against_geops,
    judge_both_help,
    judge_handovers,
    judge_imbalance,
    judge_in_general,
    judge_larger_clusters,
    judge_load_weight,
    judge_location_management,
    judge_management,
    judge_u_shape,
)
from regraft_lab.dynatops.judge_poisson import (
    DRAMATIC,
    LOW_SHARE,
    SIGNIFICANT,
    judge_all_patterns,
    judge_changes,
    judge_cheaper_reconfiguration,
    judge_connected_delay,
    judge_connected_grows,
    judge_connected_overhead,
    judge_connected_patterns,
    judge_less_management,
    judge_less_sensitive,
    judge_saved,
)
from regraft_lab.dynatops.judge_reassignment import (
    SLIGHTLY,
    judge_always_improves,
    judge_commands,
    judge_degradation,
    judge_longer_periods,
    judge_more_when_skewed,
    judge_step_bound,
    judge_times,
)
from regraft_lab.judge_size import SIZE_TEST, Size

IN_GENERAL = f"mean over Poisson, location against Bayeux and against GeoPS, {SIZE_TEST}"
READINGS = "every grid, whom users ask, w_l 0 and 0.05"
LOCATION_TEST = f"{READINGS}, base 16 and 4, against Bayeux' best variant; {SIZE_TEST}"
GEOPS_TEST = f"{READINGS}; our reading of GeoServ; {SIZE_TEST}"
RATES_TEST = f"multimodal, every rate, base 16 and 4, against the better of the two; {SIZE_TEST}"
PATTERNS_TEST = "every pattern, base 16 and 4, below both Bayeux and TCO"

OVER_40, OVER_50, OVER_60 = (Size(share, is_least=True) for share in (0.4, 0.5, 0.6))

PAPER_CLAIMS = (
    Claim("abstract, 1", "30 % less notification delay in general", IN_GENERAL, judge_in_general("delay", Size(0.3))),
    Claim("abstract, 1", "30 % less overhead in general", IN_GENERAL, judge_in_general("messages", Size(0.3))),
    Claim(
        "abstract, 1, 6.3.1",
        "reconfiguration costs over 80 % less than TCO's when subscriptions change fast",
        f"multimodal, highest rate: Eq. 7 against links changed, {SIZE_TEST}",
        judge_cheaper_reconfiguration,
    ),
    Claim(
        "1",
        "over 40 % less subscription management than other systems",
        f"c = {CLUSTER}, both models, every reading; {SIZE_TEST}",
        judge_management(OVER_40),
    ),
    Claim(
        "4, Fig. 6a",
        "clusters of ten brokers are enough for less subscription management than all others",
        f"location, {READINGS}, base 16 and 4",
        judge_location_management,
    ),
    Claim(
        "6.3.1, Fig. 6a",
        "subscription management first falls with c, and rises by c = 50",
        f"location, {READINGS}: least neither at the smallest nor at the largest c",
        judge_u_shape,
    ),
    Claim(
        "6.3.1, Fig. 6b",
        "placement by similarity alone (w_l = 0) worsens the imbalance of loads, most in large clusters",
        "location, every grid and whom users ask: standard deviation above located homes' at c = 10, above that at 50",
        judge_imbalance,
    ),
    Claim(
        "6.3.1, Fig. 6b",
        "weighing loads greatly improves this",
        f"the same, c = 50, w_l = 1: at most {GREATLY:.0%} of it",
        judge_load_weight,
    ),
    Claim(
        "6.3.1, Fig. 6c",
        "users change brokers over 80 % less often than with GeoPS",
        f"location, c = {CLUSTER}, {READINGS}; {SIZE_TEST}",
        judge_handovers,
    ),
    Claim(
        "6.3.1, Fig. 6d",
        "user placement and broker reconfiguration each improve the delay",
        f"location, each alone against the ring with located users, {READINGS}",
        judge_both_help("delay"),
    ),
    Claim("6.3.1, Fig. 6e", "and each improves the overhead", "the same", judge_both_help("messages")),
    Claim(
        "6.3.1, Fig. 6d",
        "over 60 % less delay than Bayeux",
        LOCATION_TEST,
        judge_against_bayeux("delay", OVER_60),
    ),
    Claim("6.3.1, Fig. 6d", "30 % less delay than GeoPS", GEOPS_TEST, judge_against_geops("delay", Size(0.3))),
    Claim(
        "6.3.1, Fig. 6e",
        "over 40 % less overhead than Bayeux",
        LOCATION_TEST,
        judge_against_bayeux("messages", OVER_40),
    ),
    Claim("6.3.1, Fig. 6e", "20 % less overhead than GeoPS", GEOPS_TEST, judge_against_geops("messages", Size(0.2))),
    Claim(
        "6.3.1, Fig. 6f",
        "the improvement in delay grows with the cluster size",
        "location, users ask their homes, w_l 0 and 0.05: from the smallest c to the largest",
        judge_larger_clusters("delay"),
    ),
    Claim("6.3.1, Fig. 6f", "and that in overhead", "the same", judge_larger_clusters("messages")),
    Claim(
        "6.3.1, Fig. 7a",
        "brokers' subscriptions change 80 % less often",
        f"multimodal, c = {CLUSTER}, every rate; {SIZE_TEST}",
        judge_changes,
    ),
    Claim(
        "6.3.1, Fig. 7a",
        "resulting in significantly less subscription management",
        f"the same, exchanges every hour included, against Bayeux base 16 and 4: at least {SIGNIFICANT:.0%} less",
        judge_less_management,
    ),
    Claim(
        "6.3.1, Fig. 7c",
        "TCO's overhead is lower than Bayeux' and DYNATOPS(BNR)'s",
        "multimodal, every rate, base 16 and 4",
        judge_connected_overhead,
    ),
    Claim("6.3.1, Fig. 7b", "but its delay is worse", "the same", judge_connected_delay),
    Claim("6.3.1, Fig. 7b", "10 % less delay than Bayeux and TCO", RATES_TEST, judge_saved("delay", Size(0.1))),
    Claim(
        "6.3.1, Fig. 7c", "over 50 % less overhead than Bayeux and TCO", RATES_TEST, judge_saved("messages", OVER_50)
    ),
    Claim(
        "6.3.1, Fig. 7d",
        "TCO's reconfiguration overhead increases dramatically with the rate",
        f"multimodal: from the lowest rate to the highest it grows by at least {DRAMATIC:g} of the factor of the rate",
        judge_connected_grows,
    ),
    Claim("6.3.1, Fig. 7d", "DYNATOPS's is less sensitive to it", "the same growth", judge_less_sensitive),
    Claim(
        "6.3.1, Fig. 8a",
        "TCO has a low delay under Zipf, and a worse one under the other patterns",
        f"at most {LOW_SHARE:.0%} of the least other",
        judge_connected_patterns,
    ),
    Claim(
        "6.3.1, Fig. 8a", "DYNATOPS has the least delay under all patterns", PATTERNS_TEST, judge_all_patterns("delay")
    ),
    Claim(
        "6.3.1, Fig. 8b",
        "DYNATOPS has the least overhead under all patterns",
        PATTERNS_TEST,
        judge_all_patterns("messages"),
    ),
    Claim(
        "6.3.2, Fig. 9",
        "with a longer T_free there are fewer reconfigurations",
        "both models, shortest against longest",
        judge_longer_periods("reassignments_per_100h"),
    ),
    Claim(
        "6.3.2, Fig. 9",
        "and less reconfiguration overhead",
        "the same, by Eq. 7",
        judge_longer_periods("reassignment_messages_per_h"),
    ),
    Claim(
        "6.3.2, Fig. 9",
        "delay and overhead degrade only slightly",
        f"the same: at most {SLIGHTLY:.0%}",
        judge_degradation,
    ),
    Claim(
        "6.3.3, Fig. 10",
        "DYNATOPS's configuration is always better than consistent hashing",
        "SSBR-Greedy, mean over draws, every size and pattern",
        judge_always_improves,
    ),
    Claim(
        "6.3.3, Fig. 10",
        "the improvement is larger under skewed patterns than under uniform ones",
        "the same, 100 topics, as many topics for each broker",
        judge_more_when_skewed,
    ),
    Claim(
        "6.3.3, Table 1",
        "the greedy algorithm is efficient: 28 ms for 10 brokers, 96 s for 1,000",
        "at most the paper's, slower pattern",
        judge_times,
    ),
    Claim(
        "5.1.2",
        "steps 1 and 4 take O(V) messages",
        "the paper's protocol counted: the same for each broker on every ring",
        judge_commands,
    ),
    Claim(
        "5.1.2",
        "step 3 takes O(log V + P log V) messages for each broker that moves",
        "the paper's protocol counted, against the bound without a constant, every ring",
        judge_step_bound("pubsub"),
    ),
)
