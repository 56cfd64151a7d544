"""Apply one mutation to a private copy of the code and find out which check notices it.

In: the tree, a mutation. Out: a Verdict: the test, scenario or seed that failed and after how long, that none did, or
that the mutation is invalid (it cannot be imported, fails because a name does not exist, or the checks themselves end
without a result, which shows nothing).
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

from tests.mutations.known_mutations import AGENTS, Mutation

COPIED = ("regraft", "producers", "controller", "schemas", "streaming", "infra", "tests")
STAGE_SECONDS_MAX = {"start": 60.0, "tests": 120.0, "model": 180.0, "deaths": 120.0, "slow model": 600.0}
SEARCH_SLACK_S = 60.0  # A run takes a fraction of a second; one that takes this long hangs.
KILLED, SURVIVED, INVALID = "killed", "survived", "invalid"
_NAME_ERRORS = re.compile(r"\b(NameError|UnboundLocalError)\b")


@dataclass(frozen=True)
class Options:
    """How long the random search may take, and whether the model's slow scenarios follow it."""

    search_seconds: float = 20.0
    is_thorough: bool = True


@dataclass(frozen=True)
class Verdict:
    """The outcome of one mutation: ``killer`` is the test, scenario or seed, ``text`` the end of its output."""

    name: str
    outcome: str
    killer: str
    seconds: float
    text: str = ""


class MutatedCopy:
    """A copy of the code in its own folder, which gets one mutation at a time."""

    def __init__(self, root: Path, folder: Path) -> None:
        self.root = root
        self.folder = folder
        for name in COPIED:
            shutil.copytree(root / name, folder / name, symlinks=True, ignore=shutil.ignore_patterns("__pycache__"))
        shutil.copy(root / "pyproject.toml", folder)
        self._errors = folder / "standard-error"

    def judge(self, mutation: Mutation, options: Options) -> Verdict:
        """Apply a mutation, run the checks that should notice it, and revert it."""
        began_s = time.monotonic()
        if error := mutation.error(self.root):
            return Verdict(mutation.name, INVALID, "", 0.0, error)
        original = (self.root / mutation.file).read_text()
        self._put(mutation.file, mutation.applied(original))
        try:
            outcome, killer, text = self._run_killers(mutation, options)
        finally:
            self._put(mutation.file, original)
        return Verdict(mutation.name, outcome, killer, time.monotonic() - began_s, text[-2000:])

    def _put(self, file: str, text: str) -> None:
        """Write a file and remove its compiled code: with equal size and second it would pass for unchanged."""
        path = self.folder / file
        path.write_text(text)
        for compiled in (path.parent / "__pycache__").glob(f"{path.stem}.*.pyc"):
            compiled.unlink()

    def _run_killers(self, mutation: Mutation, options: Options) -> tuple[str, str, str]:
        part = "controller" if mutation.file.startswith("controller") else "brokers"
        part = mutation.overlay if mutation.overlay == AGENTS else part
        thoroughness = "thorough" if options.is_thorough else "quick"
        asked = [part, mutation.overlay, str(options.search_seconds), thoroughness]
        with self._errors.open("w") as errors:
            process = subprocess.Popen(
                [sys.executable, "-m", "tests.mutations.run_killers", *asked],
                cwd=self.folder,
                env=os.environ | {"PYTHONHASHSEED": "0", "PYTHONPATH": str(self.folder)},
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
            )
        try:
            return self._read_output(process, options)
        finally:
            process.kill()
            process.wait()

    def _read_output(self, process: subprocess.Popen[str], options: Options) -> tuple[str, str, str]:
        """Read the output of the killers, limiting the time of each stage."""
        assert process.stdout is not None
        lines: queue.SimpleQueue[str] = queue.SimpleQueue()
        threading.Thread(target=_read_into, args=(process.stdout, lines), daemon=True).start()
        stage, line = "start", ""
        limits = STAGE_SECONDS_MAX | {"search": options.search_seconds + SEARCH_SLACK_S}
        while True:
            try:
                line = lines.get(timeout=limits[stage])
            except queue.Empty:
                return KILLED, f"{stage}: does not end", ""
            if not line:
                return INVALID, stage, f"the process died: {self._errors.read_text()}"
            record = json.loads(line)
            if "stage" in record:
                stage = record["stage"]
                continue
            text = record.get("text", "")
            is_invalid = record.get("is_import") or _NAME_ERRORS.search(text)
            outcome = INVALID if is_invalid else KILLED if record["killer"] else SURVIVED
            return outcome, record["killer"], text


def _read_into(source: object, lines: queue.SimpleQueue[str]) -> None:
    for line in source:  # type: ignore[attr-defined]
        if line.startswith("{"):
            lines.put(line)
    lines.put("")
