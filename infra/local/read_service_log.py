"""Move a service's log aside when it is large, and read what its newest process wrote at its end."""

import json
from pathlib import Path

TAIL_BYTES = 4_000
CAUSE_LENGTH_MAX = 400


def rotate_log(log_file: Path, bytes_max: int) -> int:
    """Make the log's directory, move a log of more than ``bytes_max`` aside, and return the size of what is left."""
    log_file.parent.mkdir(parents=True, exist_ok=True)
    size = log_file.stat().st_size if log_file.exists() else 0
    if size > bytes_max:
        log_file.replace(log_file.with_name(log_file.name + ".1"))
        return 0
    return size


def log_tail(log_file: Path, begin: int = 0) -> str:
    """Return the end of a log, at most TAIL_BYTES and nothing before ``begin``; "" if it cannot be read."""
    try:
        with log_file.open("rb") as stream:
            stream.seek(max(begin, log_file.stat().st_size - TAIL_BYTES))
            return stream.read().decode(errors="replace")
    except OSError:
        return ""


def cause_of(tail: str) -> str:
    """Return why a process ended by its last log entry with a reason, else its last line; "" if it wrote nothing."""
    lines = [line.strip() for line in tail.splitlines() if line.strip()]
    for line in reversed(lines):
        try:
            entry = json.loads(line)
        except ValueError:
            continue
        if isinstance(entry, dict) and entry.get("reason"):
            return _shortened(str(entry["reason"]))
    return _shortened(lines[-1]) if lines else ""


def _shortened(text: str) -> str:
    text = text.rstrip(".")
    return text if len(text) <= CAUSE_LENGTH_MAX else text[: CAUSE_LENGTH_MAX - 1] + "…"
