"""Install locked packages and show how far it is: ``python infra/install_packages.py LOCK [LOCK ...]``.

In: requirements files with hashes. Out: the packages in the environment of the Python that runs this; on standard error
one line that counts them, without a terminal one line in ten. pip itself is silent for minutes. It stands alone, as
nothing is installed yet. It ends with pip's exit code, and with pip's last lines where that is not 0.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections import deque
from collections.abc import Iterable, Iterator
from pathlib import Path

PACKAGE = re.compile(r"^[A-Za-z0-9._-]+==", re.MULTILINE)
SEEN = re.compile(r"^\s*(?:Collecting|Requirement already satisfied:) ([A-Za-z0-9._-]+)")
SIZE = re.compile(r"^\s*(?:Downloading|Using cached) \S+ \((.+?)\)")
LINES_KEPT = 20
TOLD_EACH = 10  # Packages a line, where lines cannot be written over.


def count_packages(locks: Iterable[str]) -> int:
    """Count what the texts of locks name, each package once."""
    return len({name for lock in locks for name in PACKAGE.findall(lock)})


def progress_lines(output: Iterable[str], count: int) -> Iterator[str]:
    """Yield what to show for pip's lines: how many of the packages it has come to, the newest one and its size."""
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
    is_terminal = sys.stderr.isatty()
    shown = 0

    def kept(output: Iterable[str]) -> Iterator[str]:
        for line in output:
            last.append(line)
            yield line

    for line in progress_lines(kept(pip.stdout), count):
        shown += 1
        if is_terminal:
            sys.stderr.write(f"\r\x1b[K{line}")
        elif "unpacking" in line or shown % TOLD_EACH == 1:
            sys.stderr.write(f"{line}\n")
        sys.stderr.flush()
    if is_terminal and shown:
        sys.stderr.write("\n")
    code = pip.wait()
    if code:
        sys.stderr.write("".join(last))
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
