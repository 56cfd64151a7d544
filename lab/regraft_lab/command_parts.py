"""Command-line parts that the programs of experiments share: a checked count, and a console for tables."""

from __future__ import annotations

import argparse

from rich.console import Console

PLAIN_WIDTH = 140  # Without a terminal, each row of a table stays on one line.


def instance_count(text: str) -> int:
    """Return the requested number of instances; raise argparse.ArgumentTypeError if it is below 1."""
    count = int(text)
    if count < 1:
        raise argparse.ArgumentTypeError(f"{count} instances give no figures: at least 1")
    return count


def table_console() -> Console:
    """Return a console on the terminal; without a terminal one with plain lines of a fixed width."""
    console = Console()
    return console if console.is_terminal else Console(width=PLAIN_WIDTH)
