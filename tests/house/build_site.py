"""Lay out the documents and the files that they link to, and build the site: ``python -m tests.house.build_site``.

The exit code is 1 if a link or an anchor is broken. MkDocs does the rest, in a separate environment (``make docs``).
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SOURCES = ROOT / "out" / "site-sources"
LINK = re.compile(r"\]\(([^)#\s]+)[^)]*\)")


def linked_files(documents: list[Path]) -> set[Path]:
    """Return the files in the checkout that the documents link to, without folders."""
    files = set()
    for document in documents:
        for target in LINK.findall(document.read_text(encoding="utf-8")):
            file = (document.parent / target).resolve()
            if ":" not in target and file.is_file() and file.is_relative_to(ROOT):
                files.add(file)
    return files


def lay_out(sources: Path = SOURCES) -> int:
    """Copy the documents and the files they link to, each to its place below ``sources``; return how many files."""
    listed = subprocess.run(
        ["git", "ls-files", "*.md"], cwd=ROOT, check=True, capture_output=True, text=True, timeout=60
    )
    documents = [ROOT / name for name in listed.stdout.splitlines() if not name.startswith(".")]
    shutil.rmtree(sources, ignore_errors=True)
    files = {*documents, *linked_files(documents)}
    for file in files:
        place = sources / file.relative_to(ROOT)
        place.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(file, place)
    return len(files)


def main(mkdocs: str) -> int:
    """Build the site with this MkDocs and return its exit code."""
    lay_out()
    build = [mkdocs, "build", "-f", str(ROOT / "infra" / "mkdocs.yml")]
    quiet = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}  # The theme's warning of versions that are not locked here.
    return subprocess.run(build, check=False, timeout=600, env=quiet).returncode


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
