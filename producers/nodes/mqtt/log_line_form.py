"""How the lines of Mosquitto's log begin, and what it calls the node: learned from a line about the node itself.

What entries mean belongs to :mod:`producers.nodes.mqtt.mqtt_interest`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

LINE_BYTES_MAX = 999  # Mosquitto cuts a line here, and does not show which lines it has cut.
SHOWN_MAX = 100
CUT, UNREADABLE = "log_line_cut", "log_line_unreadable"
_PARTS = re.compile(r"\s*\d+|[^\W\d_]+|\s+|.", re.DOTALL)


class LineError(ValueError):
    """A line that says nothing for certain; ``what`` is the count it belongs to."""

    def __init__(self, what: str, reason: str) -> None:
        super().__init__(reason)
        self.what = what


@dataclass(frozen=True, slots=True)
class LineForm:
    """``own_name`` is what the log calls the node: its client ID, or its user with ``use_username_as_clientid``."""

    own_name: str
    example: str
    begin: re.Pattern[str]

    def entry(self, line: bytes) -> str:
        """Return a line without its time; raise LineError if it may have been cut, or begins otherwise."""
        text = line.decode(errors="replace")
        if len(line) >= LINE_BYTES_MAX:
            raise LineError(
                CUT,
                f"Mosquitto cuts lines of its log at {LINE_BYTES_MAX} bytes, so this one does not show what a client "
                f"wants: name its filter in connectors.mqtt.filters ({text[:SHOWN_MAX]!r}...)",
            )
        time = self.begin.match(text)
        if time is None:
            raise LineError(
                UNREADABLE, f"{text[:SHOWN_MAX]!r} does not begin like the node's own line, {self.example!r}"
            )
        return text[time.end() :]


def form_of(line: str, own_filter: str, names: Sequence[str]) -> LineForm | None:
    """Return the form of a log that holds this line about ``own_filter``; None if it is a line about something else.

    The node may be called by one of ``names``, or by a name of its certificate, which the node does not know.
    """
    match = re.fullmatch(rf"(.*) \d+ {re.escape(own_filter)}", line, re.DOTALL)  # The number is the quality of service.
    if match is None:
        return None
    head = match[1]
    name = next((one for one in names if one and (head == one or head.endswith(f": {one}"))), "")
    name = name or head.rpartition(": ")[2]
    return LineForm(name, line, re.compile(_begin_of(head.removesuffix(name))))


def _begin_of(time: str) -> str:
    """Return what matches this time and every other in the same format: numbers, names of days, padding may differ."""
    parts = [_pattern_of(part) for part in _PARTS.findall(time)]
    return "".join([" *", *parts]) if parts else ""


def _pattern_of(part: str) -> str:
    if part[-1].isdigit():
        return r" *\d+"
    if part[0].isalpha():
        return r"[^\W\d_]+"
    if part.isspace():
        return " +"
    return "[+-]" if part in "+-" else re.escape(part)
