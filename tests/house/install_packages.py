"""Install locked packages and show the progress: ``python tests/house/install_packages.py LOCK [LOCK ...]``.

The script imports nothing of the project because nothing is installed yet. It returns pip's exit code, and shows pip's
last lines if that is not 0.
"""

from __future__ import annotations

import queue
import re
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TextIO

PACKAGE = re.compile(r"^[A-Za-z0-9._-]+==", re.MULTILINE)
SEEN = re.compile(r"^\s*(?:Collecting|Requirement already satisfied:) ([A-Za-z0-9._-]+)")
SIZE = re.compile(r"^\s*(?:Downloading|Using cached) \S+ \((.+?)\)")
LINES_KEPT = 20
LINES_WAITING_MAX = 1_000
SHOWN_EACH = 10  # Packages per line, if lines cannot be overwritten.
TICK_S = 1.0
WAIT_LINE_INTERVAL_S = 10.0  # Between lines that only show that pip still runs, if lines cannot be overwritten.


def count_packages(locks: Iterable[str]) -> int:
    """Return how many different packages the texts of locks name."""
    return len({name for lock in locks for name in PACKAGE.findall(lock)})


def progress_lines(output: Iterable[str], count: int) -> Iterator[str]:
    """Yield progress lines for pip's output: how many packages it has reached, the newest one and its size."""
    seen: list[str] = []
    for line in output:
        if (package := SEEN.match(line)) and package[1] not in seen:
            seen.append(package[1])
            yield f"Packages: {min(len(seen), count)} of {count}, {package[1]}"
        elif (size := SIZE.match(line)) and seen:
            yield f"Packages: {min(len(seen), count)} of {count}, {seen[-1]} ({size[1]})"
        elif line.startswith("Installing collected packages"):
            yield f"Packages: {count} of {count}, unpacking"


def main(arguments: list[str]) -> int:
    """Run pip and return its exit code."""
    count = count_packages(Path(lock).read_text(encoding="utf-8") for lock in arguments)
    install = [sys.executable, "-m", "pip", "install", "--disable-pip-version-check", "--require-hashes"]
    requirements = [word for lock in arguments for word in ("-r", lock)]
    pip = subprocess.Popen([*install, *requirements], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    assert pip.stdout is not None
    last: deque[str] = deque(maxlen=LINES_KEPT)

    def kept(output: Iterable[str]) -> Iterator[str]:
        for line in output:
            last.append(line)
            yield line

    show_lines(progress_lines(kept(pip.stdout), count), sys.stderr)
    code = pip.wait()
    if code:
        sys.stderr.write("".join(last))
    return code


def show_lines(lines: Iterable[str], out: TextIO, stopwatch_s: Callable[[], float] = time.monotonic) -> None:
    """Show each line at once, on a terminal in place of the last one, and for how long it has been shown.

    A thread reads the lines, because reading blocks while pip is silent.
    """
    waiting: queue.Queue[str | None] = queue.Queue(LINES_WAITING_MAX)

    def read() -> None:
        for line in lines:
            waiting.put(line)
        waiting.put(None)

    threading.Thread(target=read, daemon=True).start()
    newest, newest_s, written_s, count = "", stopwatch_s(), stopwatch_s(), 0
    while True:
        try:
            line = waiting.get(timeout=TICK_S)
        except queue.Empty:
            now_s = stopwatch_s()
            if newest and (out.isatty() or now_s - written_s >= WAIT_LINE_INTERVAL_S):
                written_s = now_s
                _write(out, f"{newest}, {now_s - newest_s:.0f} s")
            continue
        if line is None:
            break
        newest, newest_s, count = line, stopwatch_s(), count + 1
        if out.isatty() or "unpacking" in line or count % SHOWN_EACH == 1:
            written_s = newest_s
            _write(out, line)
    if out.isatty() and newest:
        out.write("\n")


def _write(out: TextIO, line: str) -> None:
    out.write(f"\r\x1b[K{line}" if out.isatty() else f"{line}\n")
    out.flush()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
