"""What the programs of experiments share on the command line: a checked count, and where tables are printed."""

from __future__ import annotations

import argparse

from rich.console import Console

PLAIN_WIDTH = 140  # Where there is no terminal, a row of the table stays on one line.


def instance_count(text: str) -> int:
    """Return the number of instances asked for; raise argparse.ArgumentTypeError below 1."""
    count = int(text)
    if count < 1:
        raise argparse.ArgumentTypeError(f"{count} instances give no figures: at least 1")
    return count


def table_console() -> Console:
    """Return the terminal, or plain lines of a fixed width where there is none."""
    console = Console()
    return console if console.is_terminal else Console(width=PLAIN_WIDTH)
