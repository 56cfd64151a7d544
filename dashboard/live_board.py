"""The newest state of everything that pages show, and what of it each page has not seen yet.

In: values of parts, whole. Out: for a page at some version the entries that changed since, as one JSON text. There is
no queue: a page that is slow gets the newest state with its next look. Where values come from does not belong here.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable, Hashable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import msgspec

Key = Callable[[Any], Hashable]


@dataclass
class WholePart:
    """A part that pages get whole whenever it changes."""

    value: Any = None
    version: int = 0

    def replace(self, value: Any, version: int) -> bool:
        """Take a value; return True if it has changed."""
        if value == self.value:
            return False
        self.value, self.version = value, version
        return True

    def since(self, version: int) -> Any:
        """Return what a page at ``version`` needs."""
        return {"whole": self.value}


@dataclass
class SeriesPart:
    """A list that grows at its end, loses its beginning and now and then changes an entry.

    ``key`` names an entry, so that a list whose beginning was cut is seen as the same list. ``base`` counts the entries
    cut so far; pages number entries by it. ``whole_version`` is when the list last became another one altogether.
    """

    key: Key
    base: int = 0
    version: int = 0
    whole_version: int = 0
    _entries: list[Any] = field(default_factory=list)
    _versions: list[int] = field(default_factory=list)

    @property
    def value(self) -> list[Any]:
        """The entries as they are now."""
        return self._entries

    def replace(self, value: Sequence[Any], version: int) -> bool:
        """Take the newest list; return True if anything in it is new."""
        new = list(value)
        cut = self._cut_to(new)
        if cut is None:
            self.base += len(self._entries)
            self._entries, self._versions = new, [version] * len(new)
            self.version = self.whole_version = version
            return True
        kept = self._entries[cut:]
        versions = self._versions[cut:]
        is_new = cut > 0
        for position, (earlier, entry) in enumerate(zip(kept, new, strict=False)):
            if earlier != entry:
                versions[position] = version
                is_new = True
        added = len(new) - len(kept)
        is_new = is_new or added > 0
        self._entries, self._versions = new, versions + [version] * added
        self.base += cut
        if is_new:
            self.version = version
        return is_new

    def _cut_to(self, new: list[Any]) -> int | None:
        """Return how many entries were cut from the front; None where this is another list."""
        if not self._entries:
            return 0
        if not new:
            return None
        names, first = [self.key(entry) for entry in self._entries], self.key(new[0])
        cut = names.index(first) if first in names else None
        if cut is None or len(new) < len(names) - cut:
            return None
        stays = all(name == self.key(entry) for name, entry in zip(names[cut:], new, strict=False))
        return cut if stays else None

    def since(self, version: int) -> Any:
        """Return what a page at ``version`` needs: the base, and the entries that changed with their numbers."""
        is_whole = self.whole_version > version or version == 0
        changed = [
            [self.base + position, entry]
            for position, (entry, changed_at) in enumerate(zip(self._entries, self._versions, strict=True))
            if is_whole or changed_at > version
        ]
        return {"base": self.base, "is_whole": is_whole, "entries": changed}


Part = WholePart | SeriesPart


class LiveBoard:
    """All parts under one growing version number; ``boot`` distinguishes this board from that of an earlier process."""

    def __init__(self, series: Mapping[str, Key]) -> None:
        self.boot = secrets.token_hex(4)
        self.version = 0
        self.is_closed = False
        self._parts: dict[str, Part] = {name: SeriesPart(key) for name, key in series.items()}
        self._changed = asyncio.Condition()
        self._texts: dict[int, str] = {}

    def value(self, part: str) -> Any:
        """Return a part's value as it is now; None where there is none."""
        found = self._parts.get(part)
        return None if found is None else found.value

    def values(self) -> dict[str, Any]:
        """Return all parts as they are now."""
        return {name: part.value for name, part in self._parts.items()}

    async def replace(self, values: Mapping[str, Any]) -> tuple[str, ...]:
        """Take the newest values of some parts, wake the pages, and return the names of those that changed."""
        version = self.version + 1
        changed = []
        for name, value in values.items():
            part = self._parts.setdefault(name, WholePart())
            if part.replace(value, version):
                changed.append(name)
        if changed:
            self.version = version  # Before anything is waited for: two callers never share a number.
            self._texts.clear()
            async with self._changed:
                self._changed.notify_all()
        return tuple(changed)

    async def close(self) -> None:
        """Let all pages that wait go."""
        async with self._changed:
            self.is_closed = True
            self._changed.notify_all()

    async def wait_beyond(self, version: int, wait_s_max: float) -> None:
        """Return when there is a newer version, the board is closed, or the time is up."""
        with suppress(TimeoutError):
            async with asyncio.timeout(wait_s_max), self._changed:
                await self._changed.wait_for(lambda: self.version > version or self.is_closed)

    def text_since(self, version: int) -> str:
        """Return what a page at ``version`` lacks as JSON; from 0 it is everything. Made once for all that ask."""
        text = self._texts.get(version)
        if text is None:
            parts = {name: part.since(version) for name, part in self._parts.items() if part.version > version}
            text = msgspec.json.encode({"boot": self.boot, "version": self.version, "parts": parts}).decode()
            self._texts[version] = text
        return text
