"""Third-party images are pinned by digest, in every file that names one, or nothing is changed."""

import re
from pathlib import Path

import pytest

from tests.house import pin_images
from tests.house.pin_images import IMAGE, ROOT, NoDigestError, ask_docker, files_with_images, pinned

PINNED = re.compile(r"@sha256:[0-9a-f]{64}")
DIGEST = f"sha256:{'0a' * 32}"


def test_every_third_party_image_is_found_and_pinned_once() -> None:
    """Base image, servers in the compose file and in the manifests; pinning again changes nothing."""
    asked: list[str] = []

    def digest_of(image: str) -> str:
        asked.append(image)
        return DIGEST

    for file in files_with_images(ROOT):
        once = pinned(file.read_text(), digest_of)
        assert pinned(once, digest_of) == once
        assert once.replace(f"@{DIGEST}", "") == PINNED.sub("", file.read_text())
    servers = {"apache/kafka", "valkey/valkey", "nats", "eclipse-mosquitto"}
    assert {image.split(":")[0] for image in asked} == {"python", *servers}


def test_all_third_party_images_are_pinned_and_equal_ones_alike() -> None:
    """Every committed tag has a digest, the same one everywhere."""
    digests: dict[str, set[str]] = {}
    for file in files_with_images(ROOT):
        for found in IMAGE.finditer(file.read_text()):
            digest = PINNED.search(found[0])
            digests.setdefault(found["name"], set()).add(digest[0] if digest else "none")
    assert len(digests) == 5
    assert all(len(found) == 1 and "none" not in found for found in digests.values()), digests


@pytest.mark.parametrize(
    ("script", "reason"),
    [("echo no such image >&2; exit 1", "no such image"), ("echo latest", "latest"), (None, "cannot be asked")],
)
def test_an_image_without_a_digest_is_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str | None, reason: str
) -> None:
    """Without Docker, without its registry, or with an invalid digest, no file is written."""
    if script:
        (tmp_path / "docker").write_text(f"#!/bin/sh\n{script}\n")
        (tmp_path / "docker").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/bin" if script else str(tmp_path))
    with pytest.raises(NoDigestError, match=reason) as caught:
        ask_docker("image:1")
    assert "image:1" in str(caught.value)
    before = [file.read_text() for file in files_with_images(ROOT)]
    with pytest.raises(SystemExit):
        pin_images.main()
    assert [file.read_text() for file in files_with_images(ROOT)] == before
