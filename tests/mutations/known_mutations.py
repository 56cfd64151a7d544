"""The list of mutations: each removes one safeguard of the protocol by replacing one text in one file.

In: the TOML files of this folder. Out: mutations, and the error of one. The old text must occur exactly once in its
file, or the list would silently go stale as the code changes. ``equivalent`` says why no run can distinguish the
mutation from the code.
"""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from pathlib import Path

FOLDER = Path(__file__).parent
TREE, RING, SCOT, BOTH, AGENTS = "tree", "ring", "scot", "both", "agents"


@dataclass(frozen=True)
class Mutation:
    """One replacement: ``removes`` is the safeguard that it removes, ``overlay`` the kind of overlay that needs it."""

    name: str
    file: str
    overlay: str
    removes: str
    old: str
    new: str
    equivalent: str = ""

    def error(self, root: Path) -> str:
        """Return why it cannot be applied to a copy of the code, or an empty string if it can."""
        path = root / self.file
        text = path.read_text() if path.exists() else ""
        if (count := text.count(self.old)) != 1:
            return f"{self.name}: the old text occurs {count} times in {self.file}, not once: adapt it to the code"
        if self.old == self.new:
            return f"{self.name}: the new text is the old one"
        try:
            compile(self.applied(text), self.file, "exec")
        except SyntaxError as error:
            return f"{self.name}: not valid when applied to {self.file}: {error}"
        return ""

    def applied(self, text: str) -> str:
        """Return the file's text with the mutation applied."""
        return text.replace(self.old, self.new)


def known_mutations() -> tuple[Mutation, ...]:
    """Return all mutations, file by file; an entry without ``overlay`` or ``file`` has the value of its list."""
    found: list[Mutation] = []
    for path in sorted(FOLDER.glob("*.toml")):
        document = tomllib.loads(path.read_text())
        common = {key: document[key] for key in ("overlay", "file")}
        found += [Mutation(**(common | entry)) for entry in document["mutation"]]
    return tuple(found)
