"""The rule by which claims of a size ("63.5 % less") are judged, the same for all papers: direction and size apart.

The rule for one effect:

==========================================================  ==========
the effect                                                  verdict
==========================================================  ==========
differs from the claimed size by at most ``within``         reproduced
is larger                                                   exceeded
is smaller, but has the claimed direction                   smaller
is nothing, or has the other direction                      refuted
==========================================================  ==========

So 81 % less exceeds a claim of 63.5 % less, 4 % less is smaller than 17.5 % less, and 2 % more refutes 58.6 % fewer.

"Over 40 %" names a least size, which nothing exceeds. "Up to 68 %" is judged by the largest effect alone. A claim about
several settings must hold in all of them: the worst decides, and if it holds in all, it is exceeded once it is in one.
Where the text allows several readings, one of them is meant: the claim has the verdict of all of them, or, if they
differ, is not decidable. Bounds ("at most 5 s") and comparisons ("less than static") have no size: they are reproduced
or refuted.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from regraft_lab.claim_evidence import Verdict

SIZE_WITHIN = 0.05  # Other workloads and networks are drawn here, so no share is met exactly.
SIZE_TEST = f"give or take {SIZE_WITHIN:g}"  # In tables of claims.
HELD = frozenset({Verdict.REPRODUCED, Verdict.EXCEEDED})
WORST_FIRST = (Verdict.REFUTED, Verdict.SMALLER, Verdict.REPRODUCED, Verdict.EXCEEDED)


@dataclass(frozen=True, slots=True)
class Size:
    """A claimed size, as a share; ``is_least`` if the paper claims more than it."""

    claimed: float
    within: float = SIZE_WITHIN
    is_least: bool = False

    def judge(self, effect: float) -> Verdict:
        """Return the verdict on one effect."""
        if effect > self.claimed + self.within:
            return Verdict.REPRODUCED if self.is_least else Verdict.EXCEEDED
        if effect >= self.claimed - self.within:
            return Verdict.REPRODUCED
        return Verdict.SMALLER if effect > 0 else Verdict.REFUTED

    def judge_settings(self, effects: Iterable[float]) -> Verdict:
        """Return the verdict on a claim about all of these settings."""
        return judge_all(self.judge(effect) for effect in effects)

    def judge_readings(self, effects: Iterable[float]) -> Verdict:
        """Return the verdict on a claim of which these are the readings; without any it is not decidable.

        If the size is met in all, but larger only in some, it is reproduced; if it is met in none, and the direction
        is wrong in some, it is refuted.
        """
        verdicts = {self.judge(effect) for effect in effects}
        if not verdicts or len(verdicts & HELD) not in (0, len(verdicts)):
            return Verdict.UNDECIDED
        return min(verdicts, key=WORST_FIRST.index)


def judge_all(verdicts: Iterable[Verdict]) -> Verdict:
    """Return the verdict on a claim about several settings from that on each; without any it is not decidable."""
    verdict_set = set(verdicts)
    if not verdict_set:
        return Verdict.UNDECIDED
    return max(verdict_set, key=WORST_FIRST.index) if verdict_set <= HELD else min(verdict_set, key=WORST_FIRST.index)
