"""Where the compiled loops are kept on disk: numba's places, also those that this user can only read.

numba uses a directory only if it can write to it: next to the source, else in the user's cache. So a service would not
find what root compiled when it installed Regraft. Here a directory with a mark is sufficient: the mark names all that
compiled code depends on, and is written once everything is there.
"""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numba
from numba.core import caching, registry

SOURCES = "compiled_*.py"
MARK = "compiled-{key}.complete"
HERE = Path(__file__).parent
CONFIG: Any = numba.config  # Its names come from the environment.


class _Marked:
    """A place of numba's: a mark replaces the right to write, and a change of any source makes its code stale.

    numba itself would look at one source only, although loops of one call, and contain, those of another.
    """

    def ensure_cache_path(self) -> None:
        """Raise OSError if code is neither complete here nor can be written."""
        place: Any = self
        if not _mark_in(Path(place.get_cache_path())).is_file():
            super().ensure_cache_path()  # type: ignore[misc]

    def get_source_stamp(self) -> bytes:
        """Return a digest of all sources."""
        return _digest_of_sources()


class NamedPlace(_Marked, caching.UserProvidedCacheLocator):
    """``$NUMBA_CACHE_DIR``, if it is set."""


class PlaceOfSource(_Marked, caching.InTreeCacheLocator):
    """``__pycache__`` next to the source."""


class PlaceOfUser(_Marked, caching.UserWideCacheLocator):
    """The user's own cache."""


PLACES = (NamedPlace, PlaceOfSource, PlaceOfUser)


@contextmanager
def kept_code() -> Iterator[None]:
    """Let functions that are declared meanwhile, and only these, be kept in the places above."""
    former = CONFIG.CACHE_LOCATOR_CLASSES
    CONFIG.CACHE_LOCATOR_CLASSES = ",".join(f"{__name__}.{place.__name__}" for place in PLACES)
    try:
        yield
    finally:
        CONFIG.CACHE_LOCATOR_CLASSES = former


def mark_complete(directory: Path) -> None:
    """Write the mark where all loops were compiled to, instead of older ones; do nothing if there or not writable."""
    mark = _mark_in(directory)
    if mark.is_file():
        return
    with suppress(OSError):
        for old in directory.glob(MARK.format(key="*")):
            old.unlink()
        mark.touch()


def find_kept_code() -> Path | None:
    """Return the directory with all loops, compiled from these sources for this Python, numba and CPU, if any."""
    source = str(HERE / "compiled_kernels.py")
    places: list[Any] = [
        place(find_kept_code, source) for place in PLACES if place is not NamedPlace or CONFIG.CACHE_DIR
    ]
    directories = [Path(place.get_cache_path()) for place in places]
    return next((directory for directory in directories if _mark_in(directory).is_file()), None)


def _digest_of_sources() -> bytes:
    return hashlib.sha256(b"".join(source.read_bytes() for source in sorted(HERE.glob(SOURCES)))).digest()


def _mark_in(directory: Path) -> Path:
    cpu = registry.cpu_target.target_context.codegen().magic_tuple()
    parts = (_digest_of_sources(), numba.__version__, sys.implementation.cache_tag, cpu)
    return directory / MARK.format(key=hashlib.sha256(repr(parts).encode()).hexdigest()[:16])
