"""Decide which repetitions of an error are logged, so that many do not flood the log; all of them are counted."""


def is_logged(count: int) -> bool:
    """Return True for the 1st, 2nd, 4th, 8th ... time that something happened."""
    return count & (count - 1) == 0
