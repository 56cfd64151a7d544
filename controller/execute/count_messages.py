"""Add up how many messages brokers sent each other for a plan, as they report it, without believing any single one.

In: each broker's own count, and its agent. Out: the total, on which the price of later plans rests
(:mod:`controller.decide.judge_proposals`). Counts that no message can have are refused when an answer is decoded.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping

from regraft.schemas.bounds import SUM_MAX
from regraft.schemas.topics import NO_AGENT

FREE = 100  # Messages that one party may report whatever the others do: too few to make a plan expensive.
SUM_FACTOR = 2  # How often as much as all lower parties together one may report,
MEAN_FACTOR = 8  # and this many times the mean of their brokers for each of its brokers: a hub sends more than a leaf.


def believed_total(sent_by: Mapping[str, int], agent_of: Mapping[str, str]) -> int:
    """Return the sum of the counts, each party's cut to what the others make plausible.

    A party is an agent with all its brokers, or a broker without one; within a single agent, each broker is one. The
    party whose brokers report least on average is believed. So one party multiplies an honest total by a small factor
    at most.
    """
    parties: dict[tuple[str, str], list[int]] = defaultdict(list)
    is_one_agent = len({agent_of.get(broker, NO_AGENT) for broker in sent_by}) < 2
    for broker, sent in sent_by.items():
        agent = NO_AGENT if is_one_agent else agent_of.get(broker, NO_AGENT)
        parties[agent, "" if agent else broker].append(sent)
    total = brokers = 0
    for counts in sorted(parties.values(), key=lambda counts: sum(counts) / len(counts)):
        limit = FREE + SUM_FACTOR * total + MEAN_FACTOR * len(counts) * total // brokers if brokers else sum(counts)
        total += min(sum(counts), limit)
        brokers += len(counts)
    return min(total, SUM_MAX)
