"""Apply one mutation to a private copy of the code and see what notices.

In: the tree, a mutation. Out: a Verdict: which test, scenario or seed failed and after how long, that nothing did, or
that the mutation is not valid (it cannot be imported, or fails by a name that does not exist).
"""

from __future__ import annotations

import json
import os
import queue
import re
import shutil
import subprocess
import sys
import threading
import time
from dataclasses import dataclass
from pathlib import Path

from tests.mutations.known_mutations import Mutation

COPIED = ("regraft", "producers", "controller", "overlay", "schemas", "streaming", "infra", "tests")
STAGE_SECONDS_MAX = {"start": 60.0, "tests": 120.0, "model": 180.0, "deaths": 120.0, "slow model": 600.0}
SEARCH_SLACK_S = 60.0  # One run takes a fraction of a second; one that takes so long does not end.
KILLED, SURVIVED, INVALID = "killed", "survived", "invalid"
_NAME_FAULTS = re.compile(r"\b(NameError|UnboundLocalError)\b")


@dataclass(frozen=True)
class Options:
    """How long the random search may take, and whether slow scenarios of the model are checked behind it."""

    search_seconds: float = 20.0
    is_thorough: bool = True


@dataclass(frozen=True)
class Verdict:
    """What became of one mutation: ``killer`` is the test, scenario or seed, ``text`` the end of what it said."""

    name: str
    outcome: str
    killer: str
    seconds: float
    text: str = ""


class MutatedCopy:
    """A copy of the code in its own folder, into which one mutation after the other is put."""

    def __init__(self, root: Path, folder: Path) -> None:
        self.root = root
        self.folder = folder
        for name in COPIED:
            shutil.copytree(root / name, folder / name, symlinks=True, ignore=shutil.ignore_patterns("__pycache__"))
        shutil.copy(root / "pyproject.toml", folder)

    def judge(self, mutation: Mutation, options: Options) -> Verdict:
        """Apply a mutation, run what should notice, and take the mutation back."""
        began_s = time.monotonic()
        if fault := mutation.fault(self.root):
            return Verdict(mutation.name, INVALID, "", 0.0, fault)
        original = (self.root / mutation.file).read_text()
        self._put(mutation.file, mutation.applied(original))
        try:
            outcome, killer, text = self._run_killers(mutation, options)
        finally:
            self._put(mutation.file, original)
        return Verdict(mutation.name, outcome, killer, time.monotonic() - began_s, text[-2000:])

    def _put(self, file: str, text: str) -> None:
        """Write a file and remove what was compiled from it: equal size and second would pass for unchanged."""
        path = self.folder / file
        path.write_text(text)
        for compiled in (path.parent / "__pycache__").glob(f"{path.stem}.*.pyc"):
            compiled.unlink()

    def _run_killers(self, mutation: Mutation, options: Options) -> tuple[str, str, str]:
        part = "controller" if mutation.file.startswith("controller") else "brokers"
        thoroughness = "thorough" if options.is_thorough else "quick"
        asked = [part, mutation.overlay, str(options.search_seconds), thoroughness]
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.mutations.run_killers", *asked],
            cwd=self.folder,
            env=os.environ | {"PYTHONHASHSEED": "0", "PYTHONPATH": str(self.folder)},
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        try:
            return self._heard(process, options)
        finally:
            process.kill()
            process.wait()

    def _heard(self, process: subprocess.Popen[str], options: Options) -> tuple[str, str, str]:
        """Read what the killers say, each stage within its time."""
        assert process.stdout is not None
        lines: queue.SimpleQueue[str] = queue.SimpleQueue()
        threading.Thread(target=_read_into, args=(process.stdout, lines), daemon=True).start()
        stage, said = "start", ""
        limits = STAGE_SECONDS_MAX | {"search": options.search_seconds + SEARCH_SLACK_S}
        while True:
            try:
                said = lines.get(timeout=limits[stage])
            except queue.Empty:
                return KILLED, f"{stage}: does not end", ""
            if not said:
                return (INVALID if stage == "start" else KILLED), f"{stage}: the process died", ""
            record = json.loads(said)
            if "stage" in record:
                stage = record["stage"]
                continue
            text = record.get("text", "")
            is_invalid = record.get("is_import") or _NAME_FAULTS.search(text)
            outcome = INVALID if is_invalid else KILLED if record["killer"] else SURVIVED
            return outcome, record["killer"], text


def _read_into(source: object, lines: queue.SimpleQueue[str]) -> None:
    for line in source:  # type: ignore[attr-defined]
        if line.startswith("{"):
            lines.put(line)
    lines.put("")
