"""Estimate the error of a gain across publishers, where the windows are too few to show it in time.

Pure.

The model. Right after traffic has changed, all spans share nearly all their subscriptions: in time they are hardly more
than one observation. But a gain is a sum over publishers, and who subscribes to one says little of who subscribes to
another, so their spread shows how far chance alone could move the sum. The share saved is a ratio of sums. Each
publisher's residual is taken from the share that the others save: so one that carries much of the traffic does not hide
its own spread (the jackknife; MacKinnon and White, 1985, HC3). What publishers really differ in only enlarges the
error. What publishers have in common, the brokers that want them, is not in it: on the emulator's traffic worthless
changes pass as rarely as they should all the same (``tests/controller/decide/test_gain_noise_replayed.py``). Leaving
out brokers in turn, too, was tried: the error is then several times too large, and no plan starts earlier.
"""

from __future__ import annotations

import math

from regraft.controller.decide.gain_noise import MeanGain
from regraft.schemas.arrays import Floats

WEIGHT_REST_MIN = 1e-3  # Avoids dividing by zero: one publisher is nearly all the traffic.
COST_MIN_PER_S = 1e-9  # Avoids dividing by zero: without traffic there is no share to save.


def gain_across(before: Floats, after: Floats) -> MeanGain:
    """Return what a change saves, as a share of the cost, with its error across publishers.

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
