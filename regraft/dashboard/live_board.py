"""The newest state of everything that pages show, and what each page still lacks.

In: whole values of parts. Out: for a page at some version, the entries that changed since, as one JSON text. There is
no queue: a slow page gets the newest state with its next update. Where values come from does not belong here.
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
    """A part that is sent whole whenever it changes."""

    value: Any = None
    version: int = 0

    def replace(self, value: Any, version: int) -> bool:
        """Replace the value; return True if it has changed."""
        if value == self.value:
            return False
        self.value, self.version = value, version
        return True

    def since(self, version: int) -> Any:
        """Return the update for a page at ``version``."""
        return {"whole": self.value}


@dataclass
class SeriesPart:
    """A list that grows at its end, is cut at its front, and sometimes changes an entry.

    ``key`` identifies an entry, so that a list cut at its front is recognised as the same list. ``base`` counts the
    entries cut so far; pages number entries from it. ``whole_version`` is the version at which the list was last
    replaced by an unrelated one.
    """

    key: Key
    base: int = 0
    version: int = 0
    whole_version: int = 0
    _entries: list[Any] = field(default_factory=list)
    _versions: list[int] = field(default_factory=list)

    @property
    def value(self) -> list[Any]:
        """The current entries."""
        return self._entries

    def replace(self, value: Sequence[Any], version: int) -> bool:
        """Replace the list by the newest one; return True if it has changed."""
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
        """Return how many entries were cut from the front, or None if this is another list."""
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
        """Return the update for a page at ``version``: the base, and the changed entries with their numbers."""
        is_whole = self.whole_version > version or version == 0
        changed = [
            [self.base + position, entry]
            for position, (entry, changed_at) in enumerate(zip(self._entries, self._versions, strict=True))
            if is_whole or changed_at > version
        ]
        return {"base": self.base, "is_whole": is_whole, "entries": changed}


Part = WholePart | SeriesPart


class LiveBoard:
    """All parts under one increasing version number; ``boot`` distinguishes this process's board from earlier ones."""

    def __init__(self, series: Mapping[str, Key]) -> None:
        self.boot = secrets.token_hex(4)
        self.version = 0
        self.is_closed = False
        self._parts: dict[str, Part] = {name: SeriesPart(key) for name, key in series.items()}
        self._changed = asyncio.Condition()
        self._texts: dict[int, str] = {}

    def value(self, part: str) -> Any:
        """Return a part's current value, or None if there is none."""
        shown = self._parts.get(part)
        return None if shown is None else shown.value

    def values(self) -> dict[str, Any]:
        """Return the current values of all parts."""
        return {name: part.value for name, part in self._parts.items()}

    async def replace(self, values: Mapping[str, Any]) -> tuple[str, ...]:
        """Replace the values of some parts, wake the pages, and return the names of the parts that changed."""
        version = self.version + 1
        changed = []
        for name, value in values.items():
            part = self._parts.setdefault(name, WholePart())
            if part.replace(value, version):
                changed.append(name)
        if changed:
            self.version = version  # Before any await, so that two callers never share a number.
            self._texts.clear()
            async with self._changed:
                self._changed.notify_all()
        return tuple(changed)

    async def close(self) -> None:
        """Release all waiting pages."""
        async with self._changed:
            self.is_closed = True
            self._changed.notify_all()

    async def wait_beyond(self, version: int, wait_s_max: float) -> None:
        """Wait until there is a newer version, the board is closed, or the time is up."""
        with suppress(TimeoutError):
            async with asyncio.timeout(wait_s_max), self._changed:
                await self._changed.wait_for(lambda: self.version > version or self.is_closed)

    def text_since(self, version: int) -> str:
        """Return the update for a page at ``version`` as JSON, everything if 0; encoded once for all pages."""
        text = self._texts.get(version)
        if text is None:
            parts = {name: part.since(version) for name, part in self._parts.items() if part.version > version}
            text = msgspec.json.encode({"boot": self.boot, "version": self.version, "parts": parts}).decode()
            self._texts[version] = text
        return text
