"""Parts of Jaeger07's claims: names of planners, and claims that only a long run can decide.

The claims themselves do not belong here.
"""

from __future__ import annotations

from dataclasses import dataclass

from regraft_lab.claim_evidence import Claim, Judgement, Measured, undecided

PAPER_TICKS = 25_000  # The length of Fig. 5, and the time between two changes in Fig. 4.
NAMES = {
    "random_tree": "random tree",
    "minimum_spanning_tree": "MST",
    "maximum_interest_tree": "MIT",
    "swap_links_lmst": "lMST",
    "swap_links_lmit": "lMIT",
    "swap_links_ci": "CI",
    "swap_links_cost": "Regraft",
}


@dataclass(frozen=True, slots=True)
class PaperClaim(Claim):
    """A claim of Jaeger07.

    ``full_length_of``: the experiment that must have the paper's length for a verdict; empty if none.
    """

    full_length_of: str = ""

    def judged(self, measured: Measured) -> Judgement:
        """Return the judgement; undecided after a short run, which mostly shows the initial adaptation."""
        readings = self.judge(measured)
        ticks = measured.steps("cost_vs_random", "ticks", figure=self.full_length_of) if self.full_length_of else []
        if not ticks or ticks[-1] >= PAPER_TICKS:
            return readings
        return undecided(f"{readings.evidence}; only {ticks[-1]:,.0f} ticks")
