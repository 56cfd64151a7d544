"""Tabulate claims with their verdicts: a summary between the markers of a README, the evidence in `claims.md`."""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from regraft.api.programs import Figure
from regraft.api.records import replace_file
from regraft_lab.claim_evidence import Claim, Measured, Verdict

END = "<!-- claims: end -->"
EXIT_CALL = 2
HOLDS = (Verdict.REPRODUCED, Verdict.EXCEEDED)
EVIDENCE_CHARS_MAX = 120

Document = Callable[[dict[str, Any], Sequence[Figure]], str]


def begin_marker(program: str) -> str:
    """Return the line that precedes the tables of a program."""
    return f"<!-- claims: begin, made by {program} -->"


def claim_rows(claims: Sequence[Claim], measured: Measured) -> list[str]:
    """Return a table with a row for each claim."""
    lines = ["| where | claim | judged by | verdict | figures |", "|---|---|---|---|---|"]
    for claim in claims:
        judgement = claim.judged(measured)
        lines.append(
            f"| {claim.place} | {claim.text} | {claim.test} | **{judgement.verdict}** | {judgement.evidence} |"
        )
    return lines


def summary_rows(claims: Mapping[str, Sequence[Claim]], measured: Measured) -> list[str]:
    """Return how often each verdict was reached, by the source of the claims, and a row for each that does not hold."""
    lines, rows = [], []
    for source, some in claims.items():
        judged = [(claim, claim.judged(measured)) for claim in some]
        counts = Counter(judgement.verdict for _, judgement in judged)
        texts = ", ".join(f"{counts[verdict]} {verdict}" for verdict in Verdict if counts[verdict])
        lines.append(f"{source}: {texts}.")
        rows += [
            f"| {claim.text} ({_read(claim)}) | {judgement.verdict} | {shorten(judgement.evidence)} |"
            for claim, judgement in judged
            if judgement.verdict not in HOLDS
        ]
    table = ["", "| does not hold, or not in every reading | verdict | figures |", "|---|---|---|", *rows]
    return [*lines, *(table if rows else [])]


def _read(claim: Claim) -> str:
    """Return where the claim is, and in which reading, if it has several."""
    reading = claim.test.split(";")[0]
    return f"{claim.place}, {reading}" if reading.startswith("reading: ") else claim.place


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
    all tables, to print or for claims.md beside the README, ``readme_of`` those for the README.
    """
    parser = argparse.ArgumentParser(prog=f"python -m {program}", description=put_claims.__doc__)
    parser.add_argument("--json", type=Path, required=True, metavar="FILE", help=f"figures of `{command}`")
    parser.add_argument("--readme", type=Path, metavar="FILE", help="replaces its marked block, and that of claims.md")
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
        claims, begin_line = given.readme.with_name("claims.md"), begin_marker(program)
        text = claims.read_text(encoding="utf-8") if claims.exists() else f"{begin_line}\n{END}\n"
        replace_file(claims, with_block(text, document_of(*read_figures(given.json)), begin_line))
    except (OSError, ValueError) as error:
        sys.stderr.write(f"could not write the tables to {given.readme}: {error}\n")
        return EXIT_CALL
    return 0
