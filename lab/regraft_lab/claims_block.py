"""Tabulate claims with their verdicts, and put such tables between the markers of a README.

A README has what a reader needs to judge a claim; `claims.md` has all figures.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from regraft.api.programs import Figure
from regraft.api.records import replace_file
from regraft_lab.claim_evidence import Claim, Measured

END = "<!-- claims: end -->"
EXIT_CALL = 2
EVIDENCE_CHARS_MAX = 120

Document = Callable[[dict[str, Any], Sequence[Figure]], str]


def begin_marker(program: str) -> str:
    """Return the line that precedes the tables of a program."""
    return f"<!-- claims: begin, made by {program} -->"


def claim_rows(claims: Sequence[Claim], measured: Measured, *, is_short: bool = False) -> list[str]:
    """Return a table with a row for each claim; ``is_short`` cuts long evidence, as for a README."""
    lines = ["| where | claim | judged by | verdict | figures |", "|---|---|---|---|---|"]
    for claim in claims:
        judgement = claim.judged(measured)
        evidence = shorten(judgement.evidence) if is_short else judgement.evidence
        lines.append(f"| {claim.place} | {claim.text} | {claim.test} | **{judgement.verdict}** | {evidence} |")
    return lines


def shorten(evidence: str) -> str:
    """Return the first parts and the last part of long evidence, with three dots for those between."""
    if len(evidence) <= EVIDENCE_CHARS_MAX:
        return evidence
    for separator in ("; ", ", "):
        *parts, last = evidence.split(separator)
        head = ""
        while parts and len(head) + len(parts[0]) + len(last) <= EVIDENCE_CHARS_MAX:
            head += parts.pop(0) + separator
        if head:
            return f"{head}{'...' + separator if parts else ''}{last}"
    return evidence


def read_figures(path: Path) -> tuple[dict[str, Any], list[Figure]]:
    """Return the run and the figures of a file. Raises OSError or ValueError if it is not a file of figures."""
    document = json.loads(path.read_text(encoding="utf-8"))
    try:
        return document["run"], [Figure(**figure) for figure in document["figures"]]
    except (KeyError, TypeError) as error:
        raise ValueError(f"no run and figures in it: {error}") from error


def with_block(text: str, block: str, begin_line: str) -> str:
    """Return the text with ``block`` between its markers. Raises ValueError unless it has both markers."""
    head, begin, rest = text.partition(begin_line)
    _, end, tail = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"no lines {begin_line!r} and {END!r} in it")
    return f"{head}{begin}\n\n{block}\n{END}{tail}"


def put_claims(
    program: str,
    command: str,
    document_of: Document,
    readme_of: Document,
    arguments: Sequence[str] | None,
) -> int:
    """Print the tables of a file of figures, or replace those in a README; exit with 2 if a file is unusable.

    ``program`` is the name of this program, ``command`` the command that writes the figures. ``document_of`` returns
    the tables to print, ``readme_of`` those for the README.
    """
    parser = argparse.ArgumentParser(prog=f"python -m {program}", description=put_claims.__doc__)
    parser.add_argument("--json", type=Path, required=True, metavar="FILE", help=f"figures of `{command}`")
    parser.add_argument("--readme", type=Path, metavar="FILE", help="file whose marked block is replaced")
    given = parser.parse_args(arguments)
    try:
        document = (readme_of if given.readme else document_of)(*read_figures(given.json))
    except (OSError, ValueError) as error:
        sys.stderr.write(f"{given.json} is not a file of figures ({error}): name a file that `{command}` wrote\n")
        return EXIT_CALL
    if given.readme is None:
        sys.stdout.write(document)
        return 0
    try:
        text = given.readme.read_text(encoding="utf-8")
        replace_file(given.readme, with_block(text, document, begin_marker(program)))
    except (OSError, ValueError) as error:
        sys.stderr.write(f"could not write the tables to {given.readme}: {error}\n")
        return EXIT_CALL
    return 0
