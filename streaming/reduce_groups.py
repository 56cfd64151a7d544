"""Reduce each group of a sorted column to one value: by any operation, or to a sum that stays within 64 bits. Pure."""

import numpy as np

from regraft.schemas.arrays import Longs
from regraft.schemas.bounds import SUM_MAX

HALF_BITS, HALF_MASK = 32, (1 << 32) - 1


def reduced(operation: np.ufunc, values: Longs, starts: Longs) -> Longs:
    """Return one value for each group; unlike reduceat, accepts an empty column."""
    if not starts.size:
        return np.zeros(0, dtype=np.int64)
    totals: Longs = operation.reduceat(values, starts)
    return totals


def added(values: Longs, starts: Longs) -> Longs:
    """Return the sum of each group of non-negative numbers, at most SUM_MAX: a sender may claim any number."""
    sums = reduced(np.add, values, starts)
    if not values.size or int(values.max()) <= SUM_MAX // values.size:
        return sums
    high, low = reduced(np.add, values >> HALF_BITS, starts), reduced(np.add, values & HALF_MASK, starts)
    sums[high + (low >> HALF_BITS) > SUM_MAX >> HALF_BITS] = SUM_MAX
    return sums
