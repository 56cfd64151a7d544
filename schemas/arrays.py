"""Types of numpy arrays, by what they hold; shapes are in the docstrings of those who use them."""

import numpy as np
from numpy.typing import NDArray

Flags = NDArray[np.bool_]
Floats = NDArray[np.float64]
Longs = NDArray[np.int64]
Places = NDArray[np.intp]
Words = NDArray[np.uint64]
