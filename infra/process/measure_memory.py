"""Measure the memory of processes."""

import os
import time
from collections import Counter

import psutil

YOUNG_S = 1.0


def memory_bytes(process: psutil.Process) -> int:
    """Return a process's memory: of pages that it shares, its share (PSS), where the system shows that, else all (RSS).

    Raises psutil.NoSuchProcess.
    """
    try:
        return int(process.memory_full_info().pss)
    except (AttributeError, psutil.AccessDenied):
        return int(process.memory_info().rss)


def memory_by_session() -> Counter[int]:
    """Return the memory of this process's children, and of theirs, by the process id of their session's leader.

    Processes younger than a second are left out: Java starts programs such as chmod by a copy of itself that shares all
    its memory for an instant.
    """
    by_session: Counter[int] = Counter()
    now_s = time.time()
    for member in psutil.Process().children(recursive=True):
        try:
            if now_s - member.create_time() >= YOUNG_S:
                by_session[os.getsid(member.pid)] += memory_bytes(member)
        except (psutil.NoSuchProcess, ProcessLookupError):
            continue  # it has ended meanwhile
    return by_session
