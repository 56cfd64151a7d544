"""Judge what brokers claim about their neighbours: whose claims that one is dead count, and how many agree.

A claim alone never proves a death: windows show whether the broker is heard (:mod:`controller.loop.follow_members`),
and a plan waits for a second witness (:mod:`controller.execute.transition`).

Brokers of one agent are one party: what they agree on about another agent's broker is one word.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from regraft.schemas.command import CommandResult
from regraft.schemas.topics import NO_AGENT

WITNESSES_MIN = 2  # Independent parties that must agree that a broker is dead which may live.
PEERS_MAX = 1_000  # Neighbours that one answer may report dead; no broker has more.
CLAIM_KEPT_MS = 60_000  # How long a claim about a broker that is heard waits for a second witness.
UNFOUNDED_MAX = 3  # Claims about brokers that are heard, after which a broker's word is ignored,
MUTED_MS = 10 * 60_000  # for this long.


@dataclass(frozen=True, slots=True)
class Claim:
    """One broker's claim that a neighbour is dead, with the time in its answer and that at which we read it."""

    by: str
    reported_ms: int
    received_ms: int
    is_judged: bool = False


def parties(speakers: Iterable[str], about: str, agent_of: Mapping[str, str]) -> int:
    """Return how many independent parties these brokers are that say the same about another one.

    Each broker of the other one's own agent is one, and so is each other agent.
    """
    own = agent_of.get(about, NO_AGENT)
    agents = ((agent_of.get(one, NO_AGENT), one) for one in speakers)
    return len({(agent, one if agent == own else "") for agent, one in agents})


class PeerClaims:
    """The claims of a fleet's brokers; ``note`` is called with the outcome of each, for the metric.

    ``agent_of`` is kept up to date by the owner of the fleet. Memory is bounded by the links of the overlay.
    """

    def __init__(
        self, agent_of: Mapping[str, str] | None = None, note: Callable[[str], None] = lambda outcome: None
    ) -> None:
        self.agent_of: Mapping[str, str] = agent_of or {}
        self._note = note
        self._claims: dict[str, dict[str, Claim]] = {}  # By the broker that they are about, and the one that claims.
        self._unfounded: dict[str, int] = {}
        self._muted_until_ms: dict[str, int] = {}

    def counted(self, result: CommandResult, neighbours: Collection[str], now_ms: int) -> tuple[str, ...]:
        """Keep an answer's claims about neighbours in a live overlay, and return whom they are about.

        The sender's time is clamped: with a clock ahead of ours, its claim would still count after a later admission.
        """
        named = result.lost_peers[:PEERS_MAX]
        if named and self.is_muted(result.broker, now_ms):
            self._note("muted")
            return ()
        peers = tuple(peer for peer in named if peer in neighbours and peer != result.broker)
        if len(peers) < len(named):
            self._note("not_a_neighbour")
        for peer in peers:
            claim = Claim(result.broker, min(result.time_ms, now_ms), now_ms)
            self._claims.setdefault(peer, {})[result.broker] = claim
            self._note("counted")
        return peers

    def about(self, broker: str, since_ms: int, now_ms: int, speakers: Collection[str]) -> list[Claim]:
        """Return the claims about a broker that was in its present state since a time, made by any of ``speakers``."""
        claims = self._claims.get(broker, {})
        for by in [by for by, one in claims.items() if now_ms - one.received_ms > CLAIM_KEPT_MS]:
            del claims[by]
        return [one for by, one in sorted(claims.items()) if one.reported_ms >= since_ms and by in speakers]

    def forget(self, broker: str) -> None:
        """Forget the claims about a broker whose state has changed."""
        self._claims.pop(broker, None)

    def are_believed(self, claims: Sequence[Claim], about: str, now_ms: int) -> bool:
        """Return True if a broker that is heard is to be admitted again because these brokers ignore it.

        Independent parties are believed. One broker alone is believed only about another one of its own agent, who is
        responsible for both, and then muted: so no broker can have others readmitted again and again.
        """
        if parties((one.by for one in claims), about, self.agent_of) >= WITNESSES_MIN:
            return True
        own = self.agent_of.get(about, NO_AGENT)
        for by in [one.by for one in claims if self.agent_of.get(one.by, NO_AGENT) == own]:
            self.mute(by, now_ms)
            return True
        return False

    def count_unfounded(self, claim: Claim, about: str, now_ms: int) -> bool:
        """Count a claim about a broker that is heard against the one that made it; return True if that mutes it.

        Each claim counts once; it stays until a second witness has had time to confirm it.
        """
        if claim.is_judged:
            return False
        self._claims[about][claim.by] = Claim(claim.by, claim.reported_ms, claim.received_ms, is_judged=True)
        self._note("unfounded")
        self._unfounded[claim.by] = self._unfounded.get(claim.by, 0) + 1
        if self._unfounded[claim.by] < UNFOUNDED_MAX:
            return False
        self.mute(claim.by, now_ms)
        return True

    def mute(self, broker: str, now_ms: int) -> None:
        """Ignore what a broker claims for MUTED_MS, and what it has claimed."""
        self._unfounded.pop(broker, None)
        self._muted_until_ms[broker] = now_ms + MUTED_MS
        for claims in self._claims.values():
            claims.pop(broker, None)

    def is_muted(self, broker: str, now_ms: int) -> bool:
        """Return True if what the broker claims is ignored."""
        return now_ms < self._muted_until_ms.get(broker, 0)
