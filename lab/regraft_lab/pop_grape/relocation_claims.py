"""The claims of Cheung09's evaluation: the place, text and judge of each.

The judges are in :mod:`experiments.pop_grape.judge_relocation` and, for the brokers' own protocols, in
:mod:`experiments.pop_grape.judge_brokers`. Claims of ours do not belong here.
"""

from __future__ import annotations

from regraft_lab.claim_evidence import Claim
from regraft_lab.judge_size import SIZE_TEST, Size
from regraft_lab.pop_grape.distributed_runs import GRAPE_THRESHOLDS, POP_THRESHOLDS
from regraft_lab.pop_grape.judge_brokers import (
    GRAPE_VARIANTS,
    OVERHEAD_ABOVE_MAX,
    POP_ABOVE_GRAPE,
    PROPORTIONAL_MIN,
    judge_fewer,
    judge_first_trigger,
    judge_gathering,
    judge_grape_triggers,
    judge_last_hops,
    judge_memory,
    judge_migration_proportional,
    judge_migration_time,
    judge_overhead,
    judge_pop_triggers,
    judge_random_messages,
    judge_range,
    judge_slower_selection,
    judge_worst_overhead,
)
from regraft_lab.pop_grape.judge_relocation import (
    ALMOST_ALL_BUT,
    GRAPE_WAYS,
    MATCHES,
    VIRTUALLY,
    judge_all_at_one,
    judge_best,
    judge_delay_lowest,
    judge_delay_sacrificed,
    judge_load_lowest,
    judge_load_sacrificed,
    judge_more_output,
    judge_overloads,
    judge_pop_between,
    judge_random_alike,
    judge_random_like_baseline,
    judge_random_output,
    judge_random_pop,
    judge_random_weights,
    judge_selection_time,
    judge_session_hops,
    judge_short_sessions,
    judge_weight_ends,
    judge_weights,
    judge_worse_than_baseline,
)

BEST_TEST = f"PlanetLab: best mean over X and workloads, {SIZE_TEST}"
SPREAD_TEST = "PlanetLab, certain over all X > 1"
PAPER_CLAIMS = (
    Claim(
        "abstract, 5.2",
        "GRAPE cuts the input utilisation by up to 68 %",
        BEST_TEST,
        judge_best("load", Size(0.68), GRAPE_WAYS),
    ),
    Claim(
        "abstract, 5.2",
        "GRAPE cuts the message rate by up to 85 %",
        BEST_TEST,
        judge_best("message_rate", Size(0.85), GRAPE_WAYS),
    ),
    Claim(
        "abstract, 5.2",
        "GRAPE cuts the delivery delay by up to 68 %",
        BEST_TEST,
        judge_best("client_delay", Size(0.68), GRAPE_WAYS),
    ),
    Claim(
        "1, 5.2", "POP cuts the input utilisation by up to 64 %", BEST_TEST, judge_best("load", Size(0.64), ("pop",))
    ),
    Claim(
        "1, 5.2", "POP cuts the message rate by up to 85 %", BEST_TEST, judge_best("message_rate", Size(0.85), ("pop",))
    ),
    Claim(
        "1, 5.2",
        "POP cuts the delivery delay by up to 63 %",
        BEST_TEST,
        judge_best("client_delay", Size(0.63), ("pop",)),
    ),
    Claim(
        "5.2, Fig. 5a",
        "all subscribers of a publisher at one broker: all make the same decision, to go there",
        "PlanetLab, X = 1: every publisher of every way",
        judge_all_at_one,
    ),
    Claim(
        "5.2, Fig. 5a",
        "clustered: load100 yields the lowest message rate at every other X",
        "PlanetLab, mean at each X > 1; TRMs not counted",
        judge_load_lowest,
    ),
    Claim(
        "5.2, Fig. 5c",
        "clustered: delay100 has the lowest delay at almost every X",
        f"PlanetLab, mean at each X > 1, at most {ALMOST_ALL_BUT} exception",
        judge_delay_lowest,
    ),
    Claim(
        "5.2, Fig. 5c-d",
        "clustered: load100 sacrifices delay and hops",
        f"{SPREAD_TEST}: above delay100",
        judge_delay_sacrificed,
    ),
    Claim(
        "5.2, Fig. 5a-b",
        "clustered: delay100 sacrifices messages and load",
        f"{SPREAD_TEST}: above load100",
        judge_load_sacrificed,
    ),
    Claim("5.2", "clustered: delay100's output utilisation is above load100's", SPREAD_TEST, judge_more_output),
    Claim(
        "5.2",
        "clustered, on the cluster: load100's delay is above even the baseline's",
        "mean at any X > 1",
        judge_worse_than_baseline,
    ),
    Claim(
        "5.2, Fig. 5",
        "clustered: POP's load, delay and hops are between load100's and delay100's",
        f"PlanetLab, mean over X > 1, within {VIRTUALLY:g} of the baseline's",
        judge_pop_between,
    ),
    Claim(
        "5.2, Fig. 5g",
        "random: load100 and delay100 virtually do not differ",
        f"PlanetLab, mean at each X: messages, load, delay, hops within {VIRTUALLY:g} of the baseline's",
        judge_random_alike("delay100", ("message_rate", "load", "client_delay", "hops")),
    ),
    Claim(
        "5.2",
        "random: GRAPE's message rate and input utilisation match the baseline's",
        f"PlanetLab, mean at each X: at most {MATCHES:g} saved",
        judge_random_like_baseline,
    ),
    Claim(
        "5.2",
        "random: GRAPE's output utilisation is above the baseline's",
        "PlanetLab, load100, mean at each X > 1",
        judge_random_output,
    ),
    Claim("5.2, Fig. 5g", "random: POP's delay is below delay100's", SPREAD_TEST, judge_random_pop),
    Claim(
        "5.2",
        "random: POP has the hops and the utilisations of GRAPE",
        f"PlanetLab, mean at each X: hops, load, output within {VIRTUALLY:g} of the baseline's, against load100",
        judge_random_alike("pop", ("hops", "load", "output")),
    ),
    Claim(
        "5.2, Fig. 5h",
        "clustered: load1 is virtually delay100, delay1 virtually load100",
        f"exact count, mean over X > 1: messages, delay, hops within {VIRTUALLY:g} of the baseline's",
        judge_weight_ends,
    ),
    Claim(
        "5.2, Fig. 5h",
        "clustered: less weight on load means less delay and more messages, and the reverse",
        f"exact count, mean over X > 1, no step against it by more than {VIRTUALLY:g}",
        judge_weights,
    ),
    Claim(
        "5.2",
        "random: neither the metric nor its weight matters",
        f"exact count, mean at each X: messages, delay, hops within {VIRTUALLY:g} of the baseline's",
        judge_random_weights,
    ),
    Claim(
        "5.2, Fig. 6f",
        "G_threshold = 10: more messages than the baseline",
        "cluster, clustered, X = 16, exact count with TIR, TIA and migration; load100 or delay100, certain",
        judge_short_sessions,
    ),
    Claim(
        "5.2, Fig. 6e",
        "G_threshold = 10: more hops than with any longer session",
        "the same, delay100",
        judge_session_hops,
    ),
    Claim(
        "5.2",
        "the baseline, POP and delay100 overload 1 to 3 inner brokers, load100 none",
        "PlanetLab, X > 1, both workloads: at the rate that load100's busiest broker just bears, at least one",
        judge_overloads,
    ),
    Claim(
        "4.2",
        "selection takes less than 70 ms with 63 brokers",
        "word by word as in Algorithms 1 to 3, the slowest",
        judge_selection_time,
    ),
    Claim(
        "5.2, Fig. 5f",
        "clustered: POP's message overhead is at most 32 %",
        f"brokers' protocols on PlanetLab, worst X, at most {OVERHEAD_ABOVE_MAX:g} above",
        judge_overhead("clustered", ("pop",), 0.32),
    ),
    Claim(
        "5.2, Fig. 5f",
        "clustered: GRAPE's message overhead is at most 16 %",
        f"the same, load100 and delay100, pings counted separately; at most {OVERHEAD_ABOVE_MAX:g} above",
        judge_overhead("clustered", GRAPE_VARIANTS, 0.16),
    ),
    Claim(
        "5.2",
        "random: GRAPE's message overhead is at most 5 %",
        f"the same, at most {OVERHEAD_ABOVE_MAX:g} above",
        judge_overhead("random", GRAPE_VARIANTS, 0.05),
    ),
    Claim(
        "1, 5.2, 6",
        "GRAPE's overhead is lower than POP's by up to 91 %",
        f"the same, best X, {SIZE_TEST}",
        judge_fewer(Size(0.91)),
    ),
    Claim(
        "5.2",
        "random: POP has about 50 % more messages than GRAPE",
        f"the same, notifications and overhead, mean over X, give or take {POP_ABOVE_GRAPE.within:g}",
        judge_random_messages,
    ),
    Claim("5.2, Fig. 5e", "GRAPE needs more memory than POP", "the same, traces of a broker, every X", judge_memory),
    Claim(
        "5.2, Fig. 6a-b",
        "GRAPE takes longer to select a broker than POP",
        "the same, mean time with pings, delay100, every X",
        judge_slower_selection,
    ),
    Claim(
        "5.2, Fig. 6b",
        "fetching statistics takes at most 5 s without pings",
        "the same, from the request to the last answer, the slowest",
        judge_gathering,
    ),
    Claim(
        "5.2, Fig. 6f-g",
        "a greater G_threshold means later decisions and less overhead",
        "brokers' protocols on the cluster, clustered, X = 16, load100: overhead at each threshold, time at the ends",
        judge_grape_triggers,
    ),
    Claim(
        "5.2, Fig. 6h",
        "a greater P_threshold means later decisions and more overhead",
        "the same, N half of it; overhead at each threshold, time at the ends",
        judge_pop_triggers,
    ),
    Claim(
        "5.2, Fig. 6f",
        "G_threshold = 10: more messages than the baseline",
        "the same, load100 or delay100, notifications and overhead",
        judge_first_trigger,
    ),
    Claim(
        "5.2, Fig. 6e",
        "G_threshold = 10: the final hops are more than with any other",
        "the same, delay100",
        judge_last_hops,
    ),
    Claim(
        "3, Fig. 6h",
        "POP's overhead varies between 6 and 57 % with its settings",
        f"the same, P_threshold from 10 to 200, within {OVERHEAD_ABOVE_MAX:g}",
        judge_range(("pop P",), POP_THRESHOLDS, 0.06, 0.57),
    ),
    Claim(
        "4, Fig. 6g",
        "GRAPE's overhead varies between 0 and 46 % with its settings",
        f"the same, load100 and delay100, G_threshold from 10 to 200, within {OVERHEAD_ABOVE_MAX:g}",
        judge_range(("load100 G", "delay100 G"), GRAPE_THRESHOLDS, 0.0, 0.46),
    ),
    Claim(
        "4",
        "in the worst case GRAPE's overhead is 20 % less than POP's",
        f"the same, each at its worst threshold, {SIZE_TEST}",
        judge_worst_overhead(Size(0.2)),
    ),
    Claim(
        "3.3, Fig. 6c",
        "a migration over 10 hops takes at most 5 s",
        "PlanetLab, by the paper's protocol without queues",
        judge_migration_time,
    ),
    Claim(
        "5.2, Fig. 6c",
        "the publisher's wait is proportional to the length of the migration path",
        f"the same: correlation of mean waits with hops at least {PROPORTIONAL_MIN:g}",
        judge_migration_proportional,
    ),
)
