"""Fields of words of which most are 0: kept without these, and unpacked whenever they are read.

A horizon of windows of thousands of brokers would otherwise take gigabytes, although few words have a bit.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from regraft.overlay.derived_values import KeptField
from regraft.schemas.arrays import Words

SHARE_MAX = 0.25  # Words of which more are not 0 are kept as they are: packing them would save little.

Class = TypeVar("Class", bound=type)


def sparse_fields(*names: str) -> Callable[[Class], Class]:
    """Let these fields of a dataclass, arrays of words, be kept packed if that is smaller."""

    def with_sparse_fields(owner: Class) -> Class:
        for name in names:
            setattr(owner, name, KeptField(name, _KeptWords.of))
        return owner

    return with_sparse_fields


@dataclass(frozen=True, eq=False)
class _KeptWords:
    """Words and their places, row by row; if ``places`` is None, all words in their shape."""

    shape: tuple[int, ...]
    words: Words
    places: NDArray[np.unsignedinteger[Any]] | None = None

    @classmethod
    def of(cls, words: Words) -> _KeptWords:
        if np.count_nonzero(words) > SHARE_MAX * words.size:
            return cls(words.shape, words)
        flat = words.reshape(-1)
        places = np.flatnonzero(flat)
        return cls(words.shape, flat[places], places.astype(np.min_scalar_type(words.size)))

    def __call__(self) -> Words:
        if self.places is None:
            return self.words
        words = np.zeros(self.shape, dtype=np.uint64)
        words.reshape(-1)[self.places] = self.words
        return words
