"""Estimate how far the mean gain over a few windows can be trusted: its standard error, and the limit of chance.

Pure.

The model. What a change saves depends on who subscribes where. Subscriptions come and go at random, so the correlation
of two moments a time t apart falls off as exp(-t / L) with the mean life L (an Ornstein-Uhlenbeck process); a span
shows the mean over its moments. L is measured, so the correlation of spans is known and only their scale is estimated:
generalised least squares (Aitken, 1936) has the least variance of all unbiased means, and for normal gains the mean
over its error follows Student's t with spans - 1 degrees of freedom, exactly, however strongly the spans correlate.
Uncorrelated noise in the gains makes the error too large, never too small.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from scipy.special import ndtr, stdtrit

from regraft.controller.state.overlay_state import Span
from regraft.schemas.arrays import Floats

WEIGHT_REST_MIN = 1e-3  # Avoids dividing by zero: one publisher is nearly all the traffic.
COST_MIN_PER_S = 1e-9  # Avoids dividing by zero: without traffic there is no share to save.


@dataclass(frozen=True)
class MeanGain:
    """The mean of a gain with its standard error; ``error`` is infinite for a single span, which shows no spread.

    ``freedom`` is the degrees of freedom of the error, spans - 1.
    """

    mean: float
    error: float
    freedom: int

    def limit(self, factor: float, alternatives: int = 1, choices: int = 1) -> float:
        """Return the limit that a worthless gain exceeds as rarely as a normal variable exceeds ``factor`` sigma.

        The change is the best of ``alternatives`` for each of its ``choices``. The largest of M normal gains exceeds
        sqrt(f^2 + 2 ln M) sigma no more often than one exceeds f (union bound). As the error rests on few spans, the
        limit is that of Student's t. k choices that are each the best of M add up to sqrt(k) times that. A factor of 0
        gives 0.
        """
        if not factor:
            return 0.0
        if not self.freedom or not math.isfinite(self.error):
            return math.inf
        sigmas = math.sqrt(factor**2 + 2 * math.log(max(alternatives, 1)))
        return student_sigmas(sigmas, self.freedom) * math.sqrt(max(choices, 1)) * self.error


def mean_gain(gains: Sequence[float] | Floats, spans: Sequence[Span], lifetime_s: float | None) -> MeanGain:
    """Return the mean of the gains in the spans (oldest first) and its standard error.

    Without a lifetime, the spans count as independent. Cost O(spans^3), cached per sequence of spans.
    """
    count = len(gains)
    if count == 1:
        return MeanGain(float(gains[0]), math.inf, 0)
    whitening = _whitening(tuple(spans), lifetime_s)
    values, ones = whitening @ np.asarray(gains, dtype=np.float64), whitening.sum(axis=1)
    information = float(ones @ ones)
    mean = float(values @ ones) / information
    rest = values - mean * ones
    return MeanGain(mean, math.sqrt(float(rest @ rest) / (count - 1) / information), count - 1)


def student_sigmas(sigmas: float, freedom: int) -> float:
    """Return the value that Student's t exceeds as rarely as a normal variable exceeds this many sigma."""
    return -float(stdtrit(freedom, ndtr(-sigmas)))


@lru_cache(maxsize=64)
def _whitening(spans: tuple[Span, ...], lifetime_s: float | None) -> Floats:
    """Return W with W C W^T = 1, for the correlations C of means over the spans."""
    if lifetime_s is None:
        return np.eye(len(spans))
    start, end = (np.array(times, dtype=np.float64) / lifetime_s for times in zip(*spans, strict=True))
    length = end - start

    def twice_summed(lag: Floats) -> Floats:  # Its second derivative is exp(-|lag|).
        return np.asarray(np.exp(-np.abs(lag)) + np.abs(lag))

    total = twice_summed(end[:, None] - start) + twice_summed(start[:, None] - end)
    total -= twice_summed(start[:, None] - start) + twice_summed(end[:, None] - end)
    # The small diagonal keeps C positive definite if spans are so short that they differ only by rounding.
    correlations = total / (length[:, None] * length) + 1e-9 * np.eye(len(spans))
    return np.asarray(np.linalg.inv(np.linalg.cholesky(correlations)))


def gain_across(before: Floats, after: Floats) -> MeanGain:
    """Return what a change saves, as a share of the cost, with its error across publishers.

    In time, spans that share nearly all their subscriptions are hardly more than one observation, and a gain that grows
    while traffic changes slowly looks like noise. But a gain is a sum over publishers, and who subscribes to one says
    little of who subscribes to another, so their spread shows how far chance alone could move the sum, however long the
    spans are. The share saved is a ratio of sums. Each publisher's residual is taken from the share that the others
    save: so one that carries much of the traffic does not hide its own spread (the jackknife; MacKinnon and White,
    1985, HC3). What publishers really differ in only enlarges the error. What publishers have in common, the brokers
    that want them, is not in it: on the emulator's traffic worthless changes pass as rarely as they should all the same
    (``tests/controller/decide/test_gain_noise_replayed.py``). Leaving out brokers in turn, too, was tried: the error is
    then several times too large, and no plan starts earlier.

    ``before`` and ``after`` (publishers,) are the costs of each publisher's notifications per second. The degrees of
    freedom are one less than the number of publishers, or than that of equal ones with as uneven costs. The error is
    infinite if there is only one publisher.
    """
    costs_per_s = before[before > 0]
    saved_per_s = costs_per_s - after[before > 0]
    total_per_s = max(float(costs_per_s.sum()), COST_MIN_PER_S)
    share = float(saved_per_s.sum()) / total_per_s
    if len(costs_per_s) < 2 or total_per_s <= COST_MIN_PER_S:
        return MeanGain(share, math.inf, 0)
    weights = costs_per_s / total_per_s
    residuals = (saved_per_s / total_per_s - share * weights) / (1 - weights).clip(WEIGHT_REST_MIN)
    return MeanGain(share, math.sqrt(float(residuals @ residuals)), max(int(1 / float(weights @ weights)) - 1, 0))
