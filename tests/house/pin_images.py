"""Pin third-party images by digest: ``make pin-images``, which needs Docker and a network.

Regraft's own images are not pinned: their digests are known only after the build.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

from regraft.infra.process.stack_error import StackError

ROOT = Path(__file__).resolve().parents[2]
# `FROM image:tag AS name` and `image: image:tag`; a target of the Dockerfile has no tag.
IMAGE = re.compile(r"^(?P<head>FROM |\s*(?:- )?image: )(?P<name>(?!regraft-)[^\s:@]+:[^\s@]+)(?:@\S+)?", re.MULTILINE)
DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
ASK_S_MAX = 60.0


class NoDigestError(StackError):
    """Reports which image's digest is unknown, and why."""


def files_with_images(root: Path) -> Iterator[Path]:
    """Yield the files that name third-party images."""
    yield from (root / "infra" / "Dockerfile", root / "docker-compose.yml")
    yield from sorted((root / "infra").glob("compose*.yml"))
    yield from sorted((root / "infra" / "kubernetes").glob("*.yaml"))


def pinned(text: str, digest_of: Callable[[str], str]) -> str:
    """Return the text with each third-party image pinned to the digest of its tag."""
    return IMAGE.sub(lambda image: f"{image['head']}{image['name']}@{digest_of(image['name'])}", text)


def ask_docker(image: str) -> str:
    """Return the registry's digest of an image, for all platforms. Raises NoDigestError."""
    command = ["docker", "buildx", "imagetools", "inspect", "--format", "{{.Manifest.Digest}}", image]
    try:
        answer = subprocess.run(command, capture_output=True, text=True, timeout=ASK_S_MAX, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise NoDigestError(f"Docker cannot be asked for the digest of {image} ({error}): install it.") from error
    digest = answer.stdout.strip()
    if answer.returncode != 0 or not DIGEST.fullmatch(digest):
        output = (answer.stderr or answer.stdout).strip().splitlines() or ["no output"]
        raise NoDigestError(
            f"Docker gives no digest of {image} ({output[-1]}): check that its registry can be reached from here"
        )
    return digest


def main() -> None:
    """Pin all files or none; exit with 1 and one sentence if a digest is unknown."""
    digests: dict[str, str] = {}

    def digest_of(image: str) -> str:
        if image not in digests:
            digests[image] = ask_docker(image)
        return digests[image]

    try:
        texts = {file: pinned(file.read_text(encoding="utf-8"), digest_of) for file in files_with_images(ROOT)}
    except NoDigestError as error:
        sys.stderr.write(f"{error}\n")
        sys.exit(1)
    for file, text in texts.items():
        file.write_text(text, encoding="utf-8")
    for image, digest in digests.items():
        sys.stdout.write(f"{image}@{digest}\n")


if __name__ == "__main__":
    main()
